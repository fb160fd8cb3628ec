"""The tutorial, followed word for word: two terminals, a real server, and what it promises to print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_readme import BIN, ROOT, places, wait_until_ready
from tests.services.ports import free_port

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
PROVIDER, APP = (text for kind, text in BLOCKS if kind == "python")
[START] = (text for kind, text in BLOCKS if kind == "bash" and "serve --dev" in text)
CONSOLES = [text for kind, text in BLOCKS if kind == "console"]
LOOKS = ("python -c", "hookledger show")
"""Commands that change nothing: they are repeated until the worker has done its work."""


class Terminals:
    """A folder with the tutorial's files, and the server that its first terminal runs."""

    def __init__(self, folder: Path) -> None:
        port, own = str(free_port()), free_port()
        self.folder = folder
        for name, code in (("provider.py", PROVIDER), ("app.py", APP)):
            assert code.count("8799") == 1
            (folder / name).write_text(code.replace("8799", port))
        self.url = f"http://127.0.0.1:{own}"
        source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")},
            **{"HOOKLEDGER_PORT": str(own), "HOOKLEDGER_OPERATOR_PORT": str(free_port()), "COLUMNS": "100"},
            **{"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": source},
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        for line in START.strip().splitlines():
            self.start(line)

    def start(self, line: str) -> None:
        if line.startswith("export "):
            self.environment |= dict(word.split("=", 1) for word in shlex.split(line)[1:])
        elif line.startswith(("hookledger", "python provider.py")):
            words = shlex.split(line.removesuffix(" &").replace("hookledger", "python -m hookledger", 1))
            with (self.folder / f"log-{len(self.processes)}").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, *words[1:]], cwd=self.folder, env=self.environment, stdout=log, stderr=log
                )
            self.processes.append(process)
        else:
            self.run(line)

    def run(self, line: str) -> str:
        hookledger = f'hookledger() {{ {shlex.quote(sys.executable)} -m hookledger "$@"; }}\n'
        done = subprocess.run(
            hookledger + line,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout

    def shown(self, line: str, promised: str) -> None:
        """Run a command that prints what the page promises, soon where it only looks."""
        deadline = time.monotonic() + 90
        while True:
            try:
                places(promised, self.run(line))
            except AssertionError:
                if not line.startswith(LOOKS) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    try:
        yield made
    finally:
        made.end()


# proves R37
def test_the_tutorial_prints_what_it_shows(terminals: Terminals) -> None:
    wait_until_ready(f"{terminals.url}/readyz")
    for console in CONSOLES:
        for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            line, promised = step.split("\n", 1)
            terminals.shown(line, promised)

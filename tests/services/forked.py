"""`python -m MODULE` in a tenth of the time: forked from a process that has imported everything already.

What runs is a process of its own all the same, with its own files, folder, environment and session, and dies as any
other does. Only the start and the end of the interpreter are saved, of which tests need hundreds; scripts/soak starts
them whole.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "hookledger.cli",
    "hookledger.cli.api",
    "hookledger.receive.http",
    "hookledger.store.postgres.store",
    "hookledger.store.sqlite.store",
    "hookledger.operate.api.http",
    "uvloop",
    "httpx2",
)


class Forked:
    """As much of subprocess.Popen as tests need."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: Path | str = os.devnull,
        stderr: Path | str = os.devnull,
    ) -> None:
        files = [os.devnull, str(stdout), str(stderr)]
        asked = {"module": module, "arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "files": files}
        self.pid: int = _server().ask(asked)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _server().ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # nobody else can have its number before we heard of its end
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def load(*modules: str) -> None:
    """Import these too before the next process is forked."""
    _server().ask({"load": modules})


def run(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run does it; what it says is kept in `folder` until it ended."""
    files = [folder / f"{name}-{time.monotonic_ns()}" for name in ("stdout", "stderr")]
    forked = Forked(module, arguments, cwd=cwd, env=env, stdout=files[0], stderr=files[1])
    try:
        code = forked.wait(60)
    finally:
        forked.kill()
        said = [file.read_text() for file in files]
        for file in files:
            file.unlink()
    return subprocess.CompletedProcess([module, *arguments], code, *said)


class _Server:
    """The process that forks; it ends when nobody can ask it any more."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._lock = threading.Lock()
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


_only: list[_Server] = []


def _server() -> _Server:
    if not _only:
        _only.append(_Server())
    return _only[0]


# ── the process that forks ───────────────────────────────────────────────────


def main() -> None:
    _import(IMPORTED)
    for line in sys.stdin.buffer:
        question = json.loads(line)
        answer: int | None = None
        if "load" in question:
            _import(question["load"])
        elif "module" not in question:
            answer = _ended(question["pid"])
        elif (answer := os.fork()) == 0:
            _become(**question)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
    gc.freeze()


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _become(*, module: str, arguments: list[str], cwd: str, env: dict[str, str], files: list[str]) -> None:
    """Never returns."""
    os.setsid()
    for number, name in enumerate(files):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1, closefd=False)  # noqa: SIM115 - for as long as the process lives
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, cwd)
    sys.argv = [module, *arguments]
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code or 0
    if isinstance(code, int):
        _end(code)
    sys.exit(str(code))


def _end(code: int) -> None:
    """As the interpreter ends, but for taking apart every module, which costs more than most commands do."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # what Python says then
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()

"""A real Prometheus, and promtool, which tests its rules.

There is no wheel of it: the programs are the machine's own, or Debian's package is downloaded and unpacked into this
environment. It is not installed, so that no service is started.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.services.ports import free_port
from tests.services.postgres import ServiceError

PLACE = Path(sys.prefix) / "prometheus"


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is; brought if need be, else ServiceError says how to bring it."""
    found = _found(name)
    if found is not None:
        return found
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise ServiceError(f"{name} is not installed: apt install prometheus")
    with Path(tempfile.gettempdir(), "hookledger-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side, and apt-get waits for nobody
        return _found(name) or _bring(name)


def _found(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=str(PLACE / "usr/bin"))


def _bring(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        said = _run(["apt-get", "-qq", "download", "prometheus"], folder)
        if os.geteuid() == 0 and not list(Path(folder).glob("prometheus_*.deb")):  # no lists yet, or old ones
            said = _run(["apt-get", "-qq", "update"], folder) + _run(
                ["apt-get", "-qq", "download", "prometheus"], folder
            )
        packages = list(Path(folder).glob("prometheus_*.deb"))
        if not packages:
            raise ServiceError(f"apt-get could not download prometheus: {said[-500:]}")
        said = _run(["dpkg", "-x", str(packages[0]), str(PLACE)], folder)
    found = _found(name)
    if found is None:
        raise ServiceError(f"the package prometheus has no {name}: {said[-500:]}")
    return found


def _run(command: list[str], folder: str) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    return done.stderr


class Prometheus:
    """One server with these rules and targets, which forgets everything when it is closed."""

    def __init__(self, folder: Path, settings: str) -> None:
        self._program = program("prometheus")
        self._folder = folder
        self._port = free_port()
        self._settings = folder / "prometheus.yml"
        self._settings.write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self._folder / "prometheus.log").read_text(errors="replace")

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series that the expression has now."""
        found = self.ask("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def __enter__(self) -> Prometheus:
        command = [
            self._program,
            f"--config.file={self._settings}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.ask("status/config")
            except (urllib.error.URLError, OSError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    raise ServiceError(f"Prometheus did not start:\n{self.log[-2000:]}") from None
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
            self._process = None

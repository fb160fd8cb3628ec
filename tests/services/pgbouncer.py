"""A real PgBouncer in transaction mode, between a test and its PostgreSQL.

There is no wheel of it: the program is the machine's own, or brought by apt where this runs as root.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.ports import free_port
from tests.services.postgres import ServiceError

APT = "apt-get -qq update && apt-get -qq install -y --no-install-recommends pgbouncer"


def program() -> str:
    """Where PgBouncer is; brought if need be, else ServiceError says how to bring it."""
    if found := _installed():
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ServiceError("PgBouncer is not installed: apt install pgbouncer")
    with Path(tempfile.gettempdir(), "hookledger-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side, and apt-get waits for nobody
        return _installed() or _bring()


def _installed() -> str | None:
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which("pgbouncer", path=search)


def _bring() -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # 1: do not start the service
    bring = ["sh", "-c", APT]
    done = subprocess.run(bring, capture_output=True, text=True, env=environment, timeout=600, check=False)
    found = _installed()
    if done.returncode != 0 or found is None:
        raise ServiceError(f"apt-get could not bring PgBouncer: {done.stderr[-500:]}")
    return found


class PgBouncer:
    """In front of one server, for every database of it. `kill` is kill -9; `start` again takes the same port."""

    def __init__(self, url: str, connections: int = 20) -> None:
        self._server = urlsplit(url)
        self._program = program()
        self._directory = Path(tempfile.mkdtemp(prefix="hookledger-pgbouncer-"))
        self.port = free_port()
        user, password = self._server.username or "", self._server.password or ""
        users, settings = self._directory / "users.txt", self._directory / "pgbouncer.ini"
        users.write_text(f'"{user}" "{password}"\n')
        settings.write_text(
            f"[databases]\n* = host={self._server.hostname} port={self._server.port} user={user}"
            f"{f' password={password}' if password else ''}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\npool_mode = transaction\n"
            f"default_pool_size = {connections}\nmax_client_conn = 500\n"
        )
        self._settings = settings
        if os.geteuid() == 0:  # it refuses to be root
            for path in (self._directory, users, settings):
                shutil.chown(path, "nobody")
        self._process: subprocess.Popen[bytes] | None = None

    def url(self) -> str:
        """Of the same database, through here."""
        netloc = f"{self._server.username}@127.0.0.1:{self.port}"
        return self._server._replace(netloc=netloc).geturl()

    def start(self, patience: float = 30.0) -> None:
        command = [self._program, "-q", str(self._settings)]
        if os.geteuid() == 0:
            command += ["-u", "nobody"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + patience
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(f"PgBouncer did not start:\n{(self._directory / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> PgBouncer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

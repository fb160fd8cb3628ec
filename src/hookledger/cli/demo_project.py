"""The demo's project: a folder with an application, settings and a database, and its server."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError, Unavailable
from .listeners import free_port
from .supervise import PARENT_PIPE

SECRET_VARIABLE = "STRIPE_WEBHOOK_SECRET"  # noqa: S105 - a name
DATABASE = "provisioning.db"
LEASE = 2.0
SETTINGS = """\
app = "app:inbox"

[intake]
port = {port}

[operator]
port = {operator_port}

[work]
lease = "{lease:g}s"  # short, so that a killed worker's event is reclaimed within seconds; the default is 60s
transaction_limit = "3s"
retry = {{ initial_delay = "200ms" }}
"""


class Project(Struct, frozen=True):
    """A demo project; `folder` holds all files needed to try it by hand."""

    folder: Path
    secret: str
    port: int
    operator_port: int

    @property
    def database(self) -> Path:
        return self.folder / DATABASE

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/stripe"

    @property
    def log(self) -> Path:
        return self.folder / "serve.log"


@contextlib.contextmanager
def project(keep: Path | None, port: int, operator_port: int) -> Iterator[Project]:
    """Make a project in `keep`, or in a temporary folder that is deleted afterwards."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigError(f"folder {keep} is not empty: name a new or empty one with --keep-database")
        folder = keep.resolve()
    else:
        folder = Path(tempfile.mkdtemp(prefix="hookledger-demo-"))
    try:
        made = Project(folder, f"whsec_{secrets.token_hex(16)}", port, operator_port)
        code = files(__package__).joinpath("demo_app.py").read_text("utf-8")
        (folder / "app.py").write_text(code, "utf-8")
        settings = SETTINGS.format(port=port, operator_port=operator_port, lease=LEASE)
        (folder / "hookledger.toml").write_text(settings, "utf-8")
        yield made
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def server(made: Project) -> Iterator[subprocess.Popen[bytes]]:
    """Run `hookledger serve` on the project; yields when ready; stops it afterwards, even if we are killed."""
    # HOOKLEDGER_ variables of another inbox must not apply to the demo.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
    read, write = os.pipe()
    environment |= {SECRET_VARIABLE: made.secret, PARENT_PIPE: str(read), "PYTHONUNBUFFERED": "1"}
    with made.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hookledger", "serve"],
            cwd=made.folder,
            env=environment,
            pass_fds=[read],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(read)
    try:
        _wait_until_ready(made, process)
        yield process
    finally:
        os.close(write)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(made: Project, process: subprocess.Popen[bytes], patience: float = 60.0) -> None:
    import httpx2  # imported here: no other command needs it

    deadline = time.monotonic() + patience
    addresses = [f"http://127.0.0.1:{made.operator_port}/readyz", f"http://127.0.0.1:{made.port}/readyz"]
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if all(httpx2.get(address, timeout=2, trust_env=False).is_success for address in addresses):
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    tail = "\n".join(made.log.read_text("utf-8", "replace").splitlines()[-20:])
    raise Unavailable(f"the demo server did not become ready; the end of its log:\n{tail}")


def choose_port(wanted: int | None, usual: int, other: int = 0) -> int:
    """Return the requested port, else the usual one if free, else any free one."""
    if wanted:
        if not _is_free(wanted):
            raise ConfigError(f"port {wanted} is in use: choose another")
        return wanted
    return usual if usual != other and _is_free(usual) else free_port("127.0.0.1")


def _is_free(port: int) -> bool:
    try:
        return bool(free_port("127.0.0.1", port))
    except ConfigError:
        return False

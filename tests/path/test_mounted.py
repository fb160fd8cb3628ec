"""Mounted in other people's applications, on their servers: every form of the path, and bodies that are gone."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hookledger import Inbox
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from tests.asgi_client import stripe_event
from tests.path.conftest import SECRET
from tests.services.ports import free_port

SERVERS = {
    "uvicorn": ["uvicorn", "--log-level", "warning"],
    "uvicorn-rooted": ["uvicorn", "--log-level", "warning", "--root-path", "/api"],
    "granian": ["granian", "--interface", "asgi", "--log-level", "warning"],
    "granian-rooted": ["granian", "--interface", "asgi", "--log-level", "warning", "--url-path-prefix", "/api"],
}


class Server:
    def __init__(self, name: str, url: str, log: Path) -> None:
        self.name, self.port, self.url, self._log = name, free_port(), url, log
        module, *options = SERVERS[name]
        command = [sys.executable, "-m", module, "tests.path.mounted_app:app", "--port", str(self.port), *options]
        environment = {**os.environ, "HOOKLEDGER_DATABASE": url, "SECRET": SECRET, "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], env=environment, stdout=output, stderr=output
            )
        deadline = time.monotonic() + 60
        while self._connect() != 0:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def _connect(self) -> int:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def ask(self, app: str, path: str, ident: str | None = None) -> int:
        """Deliver an event of this id, or only look; the status."""
        body, headers = None, {"x-app": app}
        if ident is not None:
            body = json.dumps(stripe_event(ident)).encode()
            headers |= dict(sign(find("stripe"), SECRET, body, now=time.time()))
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def recorded(self) -> set[tuple[str, str]]:
        async def look() -> set[tuple[str, str]]:
            async with Inbox(self.url).opened() as store:
                return {(row.source, row.key) for row in await store.search.events()}

        return asyncio.run(look())

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("mounted")
    url = f"sqlite:///{folder}/inbox.db"
    asyncio.run(Inbox(url).migrate())
    server = Server(request.param, url, folder / "log")
    yield server
    server.end()


PATHS = [
    ("alone", ""),
    ("starlette", "/hooks"),
    ("root", ""),
    ("nested", "/v1/hooks"),
    ("fastapi", "/hooks"),
    ("proxied", "/hooks"),  # by a proxy that takes /api away
    ("proxied", "/api/hooks"),  # and by one that does not
    ("proxied-slash", "/hooks"),
    ("looks", "/hooks"),
]


def rooted(server: Server, path: str) -> str:
    """Granian serves below its prefix; uvicorn adds its own to what a proxy has stripped."""
    return f"/api{path}" if server.name == "granian-rooted" else path


@pytest.mark.parametrize(("app", "mount"), PATHS)
def test_every_form_of_the_path(server: Server, app: str, mount: str) -> None:
    if "rooted" in server.name and app.startswith("proxied"):
        return  # two that set a root: the application overrides its server, and says itself what is right
    before, ident = server.recorded(), f"evt_{app}_{mount}"
    where = rooted(server, mount)
    assert server.ask(app, f"{where}/healthz") == 200
    for source, path in (("stripe", "/stripe"), ("nested", "/hooks/deeper"), ("again", "/hooks")):
        assert server.ask(app, f"{where}{path}", ident) == 202, (path, server.log)
        assert server.ask(app, f"{where}{path}/", ident) == 200
        before.add((source, ident))
    assert server.recorded() == before
    assert server.ask(app, f"{where}/nowhere", ident) == 404
    assert server.ask(app, f"{where or '/'}x/stripe", ident) == 404
    assert server.recorded() == before


@pytest.mark.parametrize("app", ["eats", "empties"])
def test_a_middleware_that_reads_the_body(server: Server, app: str) -> None:
    """Not the sender's fault: it must send again, and whoever looks at the log must find the cause."""
    before = server.recorded()
    assert server.ask(app, rooted(server, "/hooks/stripe"), f"evt_{app}") == 503
    assert server.recorded() == before
    assert "a middleware read it first" in server.log

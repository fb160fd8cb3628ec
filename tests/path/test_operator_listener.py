"""The operator's listener itself: where it listens, whom it asks, and that it ends."""

import asyncio
import contextlib

import pytest

from hookledger import Inbox
from hookledger.cli import api as listening
from hookledger.cli.api import OperatorListener
from hookledger.cli.listeners import listening as listening_at
from hookledger.cli.processes import _receiver
from hookledger.config import IntakeSettings, decode
from hookledger.errors import ConfigError
from hookledger.operate.health import Receiver
from tests.services.ports import free_port


class Endless(Receiver):
    """What takes longer than anybody waits."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 1)
        self._home = asyncio.get_running_loop()
        self.asked = asyncio.Event()
        self.is_cut_off = False

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        self._home.call_soon_threadsafe(self.asked.set)
        try:
            await asyncio.Event().wait()
        finally:
            self.is_cut_off = True
        return None


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.02)


async def test_what_takes_too_long_does_not_keep_it(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "GRACE", 0.1)
    inbox = Inbox(sqlite_url, settings=decode({"operator": {"port": free_port()}}))
    inbox.operator.receiver = endless = Endless()
    listener = OperatorListener(inbox)
    serving = asyncio.create_task(listener.serve())
    _, writer = await connected(inbox.settings.operator.port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    await endless.asked.wait()
    listener.stop()
    async with asyncio.timeout(30):
        await serving
    assert endless.is_cut_off
    writer.close()


def test_port_0_is_one_that_can_be_told() -> None:
    found = listening_at(IntakeSettings(), "localhost", 0)
    assert (found.host in ("127.0.0.1", "::1"), found.port > 0) == (True, True)
    assert listening_at(IntakeSettings(), None, None) == IntakeSettings()


@pytest.mark.parametrize(
    "url", ["", "receiver:8700", "http://receiver", "https://receiver:8700", "http://[x", "http://r:99999"]
)
def test_a_receiver_is_named_by_host_and_port(url: str) -> None:
    with pytest.raises(ConfigError, match="http://HOST:PORT"):
        _receiver(url)

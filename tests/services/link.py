"""An address whose server can change, as behind a failover; and a line that can be cut."""

import asyncio
from contextlib import suppress


class Link:
    """Forwards connections to a port of 127.0.0.1."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._muted = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> "Link":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cut()
        assert self._server is not None
        self._server.close()

    def cut(self) -> None:
        """End all connections; what was sent and not yet forwarded is lost. New ones are refused."""
        self.lead_to(0)

    def lead_to(self, target: int) -> None:
        """Forward new connections to this port, and end all others."""
        self._target = target
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mute(self) -> None:
        """Lose what the server says from now on; it still gets what it is sent."""
        self._muted = True

    def restore(self) -> None:
        """End all connections; new ones are whole again."""
        self._muted = False
        self.lead_to(self._target)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if not self._target:
            writer.transport.abort()
            return
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(there_writer)
            await asyncio.gather(self._forward(reader, there_writer), self._forward(there_reader, writer, back=True))

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if writer.transport.is_closing():
                    return
                if back and self._muted:
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()

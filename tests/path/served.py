"""An inbox behind its own HTTP listener, and a client with real sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hookledger.providers.catalogue import contracts
from hookledger.providers.schemes.base import Draft
from hookledger.providers.schemes.testing_keys import new_test_key
from hookledger.providers.sign import delivery, pairs
from hookledger.receive.http import Listener
from tests.asgi_client import Answer, Pairs, Site
from tests.services.ports import free_port


class Served:
    def __init__(self, site: Site, port: int) -> None:
        self.site = site
        self.port = port

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Pairs = ()) -> Answer:
        return await asyncio.to_thread(self._ask, method, path, body, headers)

    def _ask(self, method: str, path: str, body: bytes, headers: Pairs) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if body or method == "POST":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def signed(self, source: str, body: bytes, **rest: Any) -> Draft:
        """A delivery as the provider would send it to this source."""
        endpoint = self.site.inbox.sources[source].endpoint
        url = endpoint.settings.public_url or f"http://127.0.0.1:{self.port}{endpoint.path}"
        rest = {"now": time.time(), "url": url, **rest}
        return delivery(endpoint.contract, endpoint.secrets[0].key if endpoint.secrets else b"", body, **rest)

    async def send(self, source: str, draft: Draft) -> Answer:
        query = urlsplit(draft.url).query
        path = self.site.inbox.sources[source].endpoint.path + (f"?{query}" if query else "")
        return await self.ask("POST", path, draft.body, pairs(draft))

    async def post(self, source: str, body: bytes, **rest: Any) -> Answer:
        """Sign and send."""
        return await self.send(source, self.signed(source, body, **rest))


@contextlib.asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Served]:
    opened = await site.inbox.asgi.start()
    port = free_port()
    listener = Listener(opened, site.inbox.settings.intake.limits)
    task = asyncio.create_task(listener.serve("127.0.0.1", port))
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.01)
        yield Served(site, port)
    finally:
        listener.stop()
        await task


def test_key(provider: str, folder: Path) -> tuple[Path, str]:
    """A file with a private key to sign as the provider, and the public half as the source's secret."""
    file = folder / f"{provider}.pem"
    file.write_bytes(new_test_key(contracts()[provider].scheme))  # type: ignore[arg-type]
    public = serialization.load_pem_private_key(file.read_bytes(), None).public_key()
    if isinstance(public, Ed25519PublicKey):
        return file, public.public_bytes_raw().hex()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return file, base64.b64encode(public.public_bytes(serialization.Encoding.DER, form)).decode()


test_key.__test__ = False  # type: ignore[attr-defined]

"""The smallest client of an ASGI application: one request, in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from hookledger import Inbox
from hookledger.operate import search
from hookledger.providers.sign import sign
from hookledger.receive.endpoint import with_secrets
from hookledger.receive.request import Message, Scope
from hookledger.states import State
from hookledger.store.history import EventRow, History

Pairs = Sequence[tuple[str, str]]


class Answer(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    method: str,
    path: str,
    body: bytes | Sequence[bytes] = b"",
    headers: Pairs = (),
    *,
    root: str = "",
    query: bytes = b"",
) -> Answer:
    """`body` in parts is a chunked request without a content length; `root` is where the app is mounted."""
    whole = isinstance(body, bytes)
    parts = [body] if isinstance(body, bytes) else list(body)
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(0)
        if not parts:
            await asyncio.Event().wait()  # nobody hangs up
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    if whole:
        raw.append((b"content-length", b"%d" % len(body)))
    scope: Scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": raw}
    scope.update(path=root + path, root_path=root, client=("192.0.2.1", 4711))
    await app(scope, receive, send)
    start, *rest = sent
    names = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], names, b"".join(message.get("body", b"") for message in rest))


class Site:
    """An inbox as its provider and its operator meet it."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox

    async def deliver(
        self,
        content: Any,
        *,
        source: str = "stripe",
        secret: str | None = None,
        ident: str | None = None,
        kind: str | None = None,
        headers: Pairs = (),
    ) -> Answer:
        """A delivery signed as the provider signs; with `secret`, by somebody who has that one."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        endpoint = with_secrets(self.inbox.sources[source].endpoint)  # the provider has them before we start
        key = secret or endpoint.secrets[0].key
        now = self.inbox.clock.time()
        signed = sign(endpoint.contract, key, body, now=now, event_id=ident, event_type=kind)
        return await ask(self.inbox.asgi, "POST", f"/{source}", body, [*signed, *headers])

    async def work(self, *, later: float = 0.0) -> None:
        """Run a worker until nothing is due, after so many seconds."""
        self.inbox.clock.offset += later
        await self.inbox.work(drain=True)

    async def event(self, reference: str | UUID) -> History:
        async with self.inbox.opened(check=False) as store:
            return await search.find(self.inbox.context(store), str(reference))

    async def state(self, reference: str) -> State:
        return (await self.event(reference)).event.state

    async def events(self) -> list[EventRow]:
        async with self.inbox.opened(check=False) as store:
            return await store.search.events()

    async def deliveries(self) -> dict[str, int]:
        async with self.inbox.opened(check=False) as store:
            return (await search.summary(self.inbox.context(store))).deliveries


def stripe_event(ident: str = "evt_1", kind: str = "invoice.paid", **fields: Any) -> dict[str, Any]:
    event = {"id": ident, "type": kind, "created": 1_790_000_000, "data": {"object": {"id": "in_1"}}}
    return {**event, **fields}

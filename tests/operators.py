"""An inbox with a past, and its API as those with a token of each role meet it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from hookledger import Inbox
from hookledger.config import decode
from hookledger.ids import new_id
from hookledger.states import EffectState, State
from hookledger.store.ops.rejections import RejectedRequest
from hookledger.store.protocol import Store
from tests.asgi_client import Answer, ask
from tests.builders import Raw
from tests.life import Life

SECRET = "whsec_made_up_for_the_operators"
TOKENS = {role: f"a-made-up-token-of-the-{role}" for role in ("viewer", "operator", "admin")}
SETTINGS: dict[str, Any] = {
    "operator": {"tokens": [{"name": f"{role}-ada", "role": role, "token": text} for role, text in TOKENS.items()]},
    "work": {"poll": "10ms"},
}
CHANGING = (
    *("events", "actions", "effects", "effect_calls", "circuits", "identities", "requests", "deliveries"),
    *("jobs", "job_items", "job_effects", "pauses", "reconciliations", "pruned"),
)
"""The tables that an operator can change."""


def make_inbox(database: str, settings: dict[str, Any] | None = None) -> Inbox:
    inbox = Inbox(database, settings=decode(SETTINGS if settings is None else settings))
    inbox.source("stripe", provider="stripe", secrets=[SECRET])
    inbox.source("github", provider="github", secrets=[SECRET])
    return inbox


async def give_past(
    inbox: Inbox, steps: int = 400, seed: int = 7, states: Collection[State | EffectState] = ()
) -> None:
    """Events in every state, effects with every fate, odd deliveries, what was refused, a downstream that failed.
    `states`: of events and effects, what there must be, however much longer that takes."""
    async with inbox.opened(handlers=2) as store:
        await store.know_sources(list(inbox.sources))
        life = Life(store, inbox.clock, seed)
        await life.live(steps)
        for _ in range(100):  # what a life leaves behind is chance
            books = await store.consistency.report()
            found = {**books.events, **books.effects}
            if all(found.get(state.value) for state in states):
                break
            await life.live(10)
        else:
            raise AssertionError(found)
        await store.circuits.trip("mail", "ada", "down")
        refused = [("stripe", "signature_mismatch"), ("github", "stale")]
        each = dict.fromkeys(refused, 1)
        await store.rejections.add([_refusal(*one) for one in refused], each, most=10, most_bytes=10_000)
        await store.register("worker-1", [("stripe", "t*")])


def _refusal(source: str, reason: str) -> RejectedRequest:
    return RejectedRequest(
        new_id(), source, reason, "POST", f"/{source}", b"a=b", b"x-one: 1", b'{"id": 1}', "192.0.2.9"
    )


class Desk:
    """Where operators ask."""

    def __init__(self, inbox: Inbox, store: Store) -> None:
        self.inbox = inbox
        self.store = store

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = "operator",
        query: dict[str, Any] | str = "",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """`body`: bytes as they are, anything else as JSON."""
        given = {"content-type": "application/json", **(headers or {})}
        if role is not None:
            given.setdefault("authorization", f"Bearer {TOKENS[role]}")
        sent = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        text = query if isinstance(query, str) else urlencode(query, doseq=True)
        pairs = list(given.items())
        return await ask(self.inbox.operator, method, f"/api/v1{path}", sent, pairs, query=text.encode())

    async def snapshot(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: await Raw(self.store).all(table) for table in CHANGING}


@asynccontextmanager
async def desk_on(database: str, *, past: bool = True) -> AsyncIterator[Desk]:
    inbox = make_inbox(database)
    await inbox.migrate()
    if past:
        await give_past(inbox)
    async with inbox.opened(handlers=2) as store:
        await store.know_sources(list(inbox.sources))
        try:
            yield Desk(inbox, store)
        finally:
            await inbox.operator.stop()

"""What effects and tests need to talk with the sink, and to look at what the ledger has."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable

import httpx2

from hookledger import Op
from hookledger.ledger import EffectHistory
from hookledger.states import EffectState, State
from hookledger.store.history import EventRow
from hookledger.work.loop import Worker
from tests.asgi_client import Site, stripe_event
from tests.services.sink import Sink, path

OPEN = (State.PENDING, State.PROCESSING, State.RETRYING)


class Remote:
    """The sink as an effect calls it. It files operations under `SOURCE NAME` and the handler's key."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    async def post(self, op: Op, key: str | None = None, base: str | None = None) -> str:
        async with httpx2.AsyncClient(timeout=None, verify=False) as client:
            url = (base or self.sink.url) + self._path(op, key)
            answer = await client.post(url, json=None, headers={"Idempotency-Key": op.key})
        answer.raise_for_status()
        result: str = answer.json()["result"]
        return result

    def post_plainly(self, op: Op, key: str | None = None, base: str | None = None) -> str:
        url = (base or self.sink.url) + self._path(op, key)
        request = urllib.request.Request(url, b"null", {"Idempotency-Key": op.key}, method="POST")
        with urllib.request.urlopen(request) as answer:
            result: str = json.load(answer)["result"]
            return result

    def look_up(self, op: Op, key: str | None = None) -> bool:
        try:
            with urllib.request.urlopen(self.sink.url + self._path(op, key)):
                return True
        except urllib.error.HTTPError as error:
            assert error.code == 404
            return False

    def _path(self, op: Op, key: str | None) -> str:
        return path(f"{op.source} {op.name}", op.effect_key if key is None else key)


async def deliver(site: Site, ident: str, kind: str, key: str | None = None, *, source: str = "stripe") -> None:
    """An event about the entity `key`, or about itself. Sent again while it gets 503, as providers do."""
    content = stripe_event(ident, kind, data={"object": {"id": ident if key is None else key}})
    async with asyncio.timeout(60):
        while (answer := await site.deliver(content, source=source)).status == 503:
            await asyncio.sleep(0.1)
    assert answer.status in (200, 202)


async def effects(site: Site, ident: str) -> dict[str, EffectHistory]:
    """What the ledger has of one event, by the effect's name."""
    return {known.effect.name: known for known in (await site.event(ident)).effects}


def outcomes(history: EffectHistory) -> list[str | None]:
    return [call.outcome for call in history.calls]


async def event(site: Site, ident: str) -> EventRow:
    return (await site.event(ident)).event


async def finish(site: Site, *, step: float = 61.0, most: int = 20) -> None:
    """Work, and let time pass, until nothing goes on by itself. Leases of dead workers run out on the way."""
    for number in range(most):
        await site.work(later=step if number else 0.0)
        async with site.inbox.opened(check=False) as store:
            await site.inbox.lease_reclaimer(store).reclaim()
            await site.inbox.lease_reclaimer(store).mark_unknown()
            counts = await store.counts()
            histories = [await store.history(row.id) for row in await store.search.events(limit=500)]
        left = any(
            known.effect.due_at is not None or known.effect.state is EffectState.STARTED
            for history in histories
            if history is not None
            for known in history.effects
        )
        if not left and not any(counts.get(state) for state in OPEN):
            return
    raise AssertionError(f"not over after {most} rounds: {counts}")


class Running:
    """A worker and its upkeep, beside the test."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._task: asyncio.Task[None] | None = None
        self._worker: Worker | None = None

    async def __aenter__(self) -> "Running":
        started = asyncio.Event()

        def here(worker: Worker) -> None:
            self._worker = worker
            started.set()

        self._task = asyncio.create_task(self._site.inbox.work(started=here))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert started.is_set()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._worker is not None
        assert self._task is not None
        self._worker.stop()
        await self._task


async def eventually(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str, seconds: float = 90.0
) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found is True or (not isinstance(found, bool) and await found):
                return
            await asyncio.sleep(0.01)
    raise AssertionError(what)

"""A commit that claims an event and whose outcome is unknown: nothing begins the event, so the claim is released."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import HTTPException

from hookledger import Answer, Event, State
from hookledger.receive.claiming import Claiming
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from tests.asgi_client import stripe_event
from tests.builders import delivered
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.test_answers import then_cut_off
from tests.path.test_idempotent import Shop, insert, shop
from tests.services.link import Link
from tests.services.postgres import Databases

__all__ = ["shop"]


async def released(store: Store, event_id: Any) -> None:
    async with asyncio.timeout(60):
        while (await store.answers.find([event_id]))[event_id].state is not State.PENDING:
            await asyncio.sleep(0.02)


async def test_a_guarded_request_is_not_unknown_whose_claim_was_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default, `repeat="never"`, sends to review what may have begun; this has not."""
    guard = shop.guard(lease="30s")
    shop.route()(insert)
    with monkeypatch.context() as patched:
        for kind, name in ((PostgresStore, "claim_new"), (SqliteStore, "record_claimed")):
            patched.setattr(kind, name, then_cut_off(getattr(kind, name)))
        assert (await shop.post()).status == 503
    [event] = await shop.events()
    async with shop.inbox.opened() as store:
        await released(store, event.id)
    assert (await shop.post()).status == 200
    history = await shop.history()
    assert [(one.outcome, one.run) for one in history.attempts] == [("processed", 1)]
    assert (history.event.attempts, history.event.crashes) == (1, 0)
    assert len(await shop.orders()) == 1
    await guard.stop()
    await shop.balanced()


async def test_a_repetition_is_not_unknown_whose_claim_was_lost(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request was rolled back, so its key may run again."""
    shop.guard(lease="30s")
    fails = [True]

    @shop.route()
    async def run(event: Event) -> Any:
        if fails.pop() if fails else False:
            raise HTTPException(422)
        return await insert(event)

    assert (await shop.post()).status == 422
    with monkeypatch.context() as patched:
        for kind in (PostgresStore, SqliteStore):
            patched.setattr(kind, "claim_seen", then_cut_off(kind.claim_seen))
        assert (await shop.post()).status == 503
    [event] = await shop.events()
    async with shop.inbox.opened() as store:
        await released(store, event.id)
    assert (await shop.post()).status == 200
    history = await shop.history()
    assert [one.outcome for one in history.attempts] == ["waiting", "processed"]
    assert history.event.crashes == 0
    await shop.balanced()


async def test_a_connection_that_is_lost_while_postgres_commits_costs_no_attempt(
    site_on: MakeSite, postgres_url: str
) -> None:
    """The server commits, and its answer never arrives."""
    direct = Databases(postgres_url)
    parts = urlsplit(postgres_url)
    async with Link(parts.port or 5432) as link:
        host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{link.port}".lstrip("@")
        site = await site_on(parts._replace(netloc=host).geturl(), {"answers": {"lease": "60s"}})
        stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

        @stripe.answer("*", deadline=30)
        async def handle(event: Event) -> Answer:
            await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
            return Answer("done")

        assert (await site.deliver(stripe_event("evt_0"))).status == 200  # its statements are prepared now
        link.mute()
        first = asyncio.create_task(site.deliver(stripe_event()))
        async with asyncio.timeout(60):
            while await asyncio.to_thread(direct.fetchval, "SELECT count(*) FROM hookledger.events") < 2:
                await asyncio.sleep(0.02)
        link.restore()
        assert (await first).status == 503
        assert (await site.deliver(stripe_event())).status == 200
        history = await site.event("evt_1")
        assert [attempt.outcome for attempt in history.attempts] == ["processed"]
        assert history.event.crashes == 0
        assert await done(site) == ["evt_0", "evt_1"]
        await site.inbox.asgi.stop()


class Sought:
    """An event that was recorded without a claim, and what this process does about a claim that it may have."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.settled: list[Any] = []
        self.claiming = Claiming(store, "this process", 30.0, begun=lambda _: False, settle=self._settle)

    async def _settle(self, outcome: Any) -> None:
        self.settled.append(outcome)

    async def record(self) -> Any:
        await self.store.record([delivered("evt_1")])
        [event] = await self.store.search.events()
        return event.id

    async def end(self) -> None:
        """Until nothing is sought."""
        async with asyncio.timeout(60):
            while self.claiming._sought:
                await asyncio.sleep(0.02)
        await self.claiming.close()


async def test_a_claim_that_another_process_made_is_left_alone(shop: Shop) -> None:
    """An event that was recorded without a claim, because its source was paused, has claim 1 from a worker."""
    async with shop.inbox.opened() as store:
        sought = Sought(store)
        event_id = await sought.record()
        assert await store.claim_seen(event_id, 0, "a worker", 30.0) is not None
        sought.claiming._seek(event_id, 1, float("inf"))
        await sought.end()
    assert sought.settled == []


async def test_a_claim_that_this_process_made_later_is_left_alone(shop: Shop) -> None:
    """The first commit was not made after all. What ran since may have acted, although its claim was lost."""
    async with shop.inbox.opened() as store:
        sought = Sought(store)
        event_id = await sought.record()
        sought.claiming._seek(event_id, 1, float("inf"))
        assert await sought.claiming.claim_seen(event_id, 0) is not None
        await sought.claiming._look()
        assert sought.claiming._sought == {}
        await sought.end()
    assert sought.settled == []


async def test_a_look_that_ends_after_the_lease_releases_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop.inbox.opened() as store:
        sought = Sought(store)
        event_id = await sought.record()
        assert await store.claim_seen(event_id, 0, "this process", 30.0) is not None
        find, ends = store.answers.find, time.monotonic() + 0.3

        async def stalled(events: Any) -> Any:
            found = await find(events)
            await asyncio.sleep(max(0.0, ends - time.monotonic()))
            return found

        monkeypatch.setattr(store.answers, "find", stalled)
        sought.claiming._seek(event_id, 1, ends)
        await sought.end()
    assert sought.settled == []

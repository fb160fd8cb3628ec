"""The audit log: every action is listed, newest first, page by page, on each store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import ConfigError
from hookledger.ids import new_id
from hookledger.model import Kind
from hookledger.operate import audit
from hookledger.operate.context import Context
from hookledger.operate.errors import NotFound
from hookledger.states import State
from hookledger.store.ops.audit import STRETCH, Action, ActionFilter, Audit
from hookledger.store.protocol import Store
from tests.builders import KIND, Raw, claim, delivered, reach, record, recorded
from tests.inboxes import fill
from tests.ledger import get, plan

WITHOUT_EVENT = {
    *("pause", "resume", "trip", "reset", "prune", "import-keys", "copy", "restore", "reconcile"),
    *("bulk resolve", "cancel-job"),
}
WITH_EVENT = {"retry", "replay", "discard", "resolve", "try", "erase", "accept", "recheck", "alert", "repair"}


async def listed(store: Store, where: ActionFilter = ActionFilter(), *, limit: int = 1000) -> list[Action]:  # noqa: B008
    """All pages."""
    found: list[Action] = []
    before: UUID | None = None
    while True:
        page = await store.audit.page(where, before=before, limit=limit)
        found += page.actions
        if page.next is None:
            return found
        before = page.next


async def act(store: Store, clock: Clock) -> None:
    """Every kind of action."""
    await fill(store, clock)
    by = ("ada", "an incident")
    await store.pauses.resume("stripe", "charge.*", *by)
    await store.circuits.reset("bank", *by)
    [job] = await store.jobs.jobs()
    await store.jobs.cancel(job.id, *by)
    await store.retry((await reach(store, State.FAILED, Kind("shop", "a"))).id, State.FAILED, *by)
    await store.replay((await reach(store, State.FAILED, Kind("shop", "b"))).id, State.FAILED, *by)
    done = await reach(store, State.PROCESSED, Kind("shop", "c"))
    await store.alerts.warn(done.id, "a conflict was delivered")
    await store.erasure.erase(done.id, State.PROCESSED, done.claim, *by)
    await recorded(store, "evt_try", source="shop", type="d")
    [effect] = await plan(store, await claim(store, Kind("shop", "d")), "k")
    await store.ledger.try_now(await get(store, effect), *by)
    first, second = delivered("evt_admit", b"1"), delivered("evt_admit", b"2")
    await record(store, first, second)
    await store.quarantine.accept(second.id, 0, second.items[0], *by)
    [rejected] = await store.rejections.sample()
    await store.rejections.remove_recorded(rejected.id, [done.id], *by)


# proves R71
async def test_every_action_is_listed_newest_first(store: Store, clock: Clock, raw: Raw) -> None:
    await act(store, clock)
    found = await listed(store)
    assert len(found) == await raw.count("actions")
    assert [one.id for one in found] == sorted((one.id for one in found), reverse=True)
    assert {one.name for one in found} >= (WITHOUT_EVENT | WITH_EVENT) - {"copy"}
    about_none = await listed(store, ActionFilter(no_event=True))
    assert {one.name for one in about_none} == WITHOUT_EVENT - {"copy"}
    assert all(one.event_id is None and one.subject for one in about_none)
    assert all(one.actor and one.reason for one in found)


async def test_a_copy_is_listed(store: Store) -> None:
    copy = await store.copies.move("sqlite:///elsewhere.db", Audit("ada", "to another machine"))
    await store.copies.abandon("sqlite:///elsewhere.db")
    await store.copies.reopen(copy, Audit("bob", "not today"))
    found = [(one.name, one.actor, one.subject, one.to_state) for one in await listed(store)]
    subject = "copy to sqlite:///elsewhere.db"
    assert found == [("copy", "bob", subject, "open"), ("copy", "ada", subject, "moving")]


async def test_pages_have_no_gap_and_no_repetition_while_actions_are_added(store: Store) -> None:
    for n in range(7):
        await store.pauses.pause("stripe", f"t{n}", "ada", "why")
    seen: list[str | None] = []
    before: UUID | None = None
    for n in range(4):
        page = await store.audit.page(before=before, limit=2)
        seen += [one.subject for one in page.actions]
        before = page.next
        await store.pauses.pause("github", f"t{n}", "bob", "meanwhile")
    assert before is None
    assert len(seen) == len(set(seen)) == 7
    assert all(subject and "stripe" in subject for subject in seen)


async def test_filters(store: Store) -> None:
    await store.know_sources([KIND.source])
    event = await reach(store, State.FAILED, KIND)
    await store.retry(event.id, State.FAILED, "ada", "mended")
    await store.pauses.pause("stripe", "*", "bob", "an incident")
    now = datetime.now(UTC)
    later, earlier = now + timedelta(hours=2), now - timedelta(hours=2)
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["pause", "retry"]),
        ({"actor": "ada"}, ["retry"]),
        ({"actor": "ADA"}, []),
        ({"name": "pause"}, ["pause"]),
        ({"name": "pause", "actor": "ada"}, []),
        ({"event_id": event.id}, ["retry"]),
        ({"event_id": new_id()}, []),
        ({"no_event": True}, ["pause"]),
        ({"since": earlier, "until": later}, ["pause", "retry"]),
        ({"since": later}, []),
        ({"until": earlier}, []),
    ]
    for given, names in expected:
        assert [one.name for one in await listed(store, ActionFilter(**given))] == names, given
    context = Context(store)
    for reference in (event.key, str(event.id), str(event.id)[:13]):
        assert [one.name for one in (await audit.page(context, event=reference)).actions] == ["retry"]
    with pytest.raises(NotFound):
        await audit.page(context, event="no such key")


async def test_a_long_search_says_where_it_stopped(store: Store, raw: Raw) -> None:
    event = await reach(store, State.FAILED, KIND)
    await store.pauses.pause("stripe", "*", "bob", "the oldest")
    for _ in range(STRETCH // 1000 + 1):
        values = ", ".join(_row(raw, event.id) for _ in range(1000))
        columns = "id, at, name, actor, reason, event_id, from_state, to_state"
        await raw.run(f"INSERT INTO actions ({columns}) VALUES {values}")
    where = ActionFilter(actor="bob")
    short = await store.audit.page(where, seconds=0)
    assert (short.actions, short.looked_at) == ((), STRETCH)
    assert short.next is not None
    rest = await store.audit.page(where, before=short.next, seconds=0)
    assert ([one.reason for one in rest.actions], rest.next) == (["the oldest"], None)
    assert [one.reason for one in (await store.audit.page(where)).actions] == ["the oldest"], "as many as it takes"


def _row(raw: Raw, event_id: UUID) -> str:
    is_postgres = "Postgres" in type(raw._store).__name__
    ids = [f"'{i}'" if is_postgres else f"x'{i.hex}'" for i in (new_id(), event_id)]
    return f"({ids[0]}, {'now()' if is_postgres else 1}, 'retry', 'ada', 'why', {ids[1]}, 'failed', 'pending')"


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", "x" * 10_000])
def test_text_that_no_database_can_look_for_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="the filter's actor"):
        ActionFilter(actor=text)
    with pytest.raises(ConfigError, match="the filter's name"):
        ActionFilter(name=text)


def test_a_time_out_of_range_is_rejected() -> None:
    with pytest.raises(ConfigError, match="since"):
        ActionFilter(since=datetime(9999, 1, 1, tzinfo=UTC))

"""Finding events: every filter, pages of any depth while others are recorded, counts, causes, lag."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from hookledger.clock import Clock
from hookledger.errors import ConfigError, Unavailable
from hookledger.ids import effect_identity
from hookledger.ledger import Intent
from hookledger.model import Arrival, Item, Kind
from hookledger.states import EffectKind, KeyOrigin, State
from hookledger.store.ops import search
from hookledger.store.ops.filters import Filter
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    Raw,
    arrival,
    claim,
    claimed,
    crash,
    delivered,
    event,
    item,
    reach,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.ledger import finish, intent, plan, start, take


async def found(store: Store, *, limit: int = 50, **wanted: Any) -> list[UUID]:
    """Ids, and proof that counting and paging one by one agree."""
    where = Filter(**wanted)
    ids = [row.id for row in await store.search.events(where, limit=limit)]
    if len(ids) < limit:
        assert await store.search.count(where) == len(ids)
    one_by_one: list[UUID] = []
    before: UUID | None = None
    while len(one_by_one) < len(ids) and (page := await store.search.events(where, before=before, limit=1)):
        one_by_one.append(page[0].id)
        before = page[0].id
    assert one_by_one == ids
    return ids


# ── filters ──────────────────────────────────────────────────────────────────


async def test_kinds(store: Store) -> None:
    a, b, c, d = [
        await recorded(store, f"{source}{kind}", source=source, type=kind)
        for source, kind in (("s1", "order.paid"), ("s1", "order.sent"), ("s2", "order.paid"), ("s2", "user.made"))
    ]
    assert await found(store) == [d, c, b, a]
    assert await found(store, source="s1") == [b, a]
    assert await found(store, type="order.paid") == [c, a]
    assert await found(store, type="order.*") == [c, b, a]
    assert await found(store, type="*") == [d, c, b, a]
    assert await found(store, source="s2", type="order.*") == [c]
    assert await found(store, source="s2", type="order.paid") == [c]
    assert await found(store, source="s3") == await found(store, type="order") == await found(store, type="x*") == []


async def test_more_kinds_than_are_merged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_STREAMS", 3)
    idents = [await recorded(store, f"evt_{n}", type=f"t{n % 5}") for n in range(15)]
    other = await recorded(store, "other", source="other")
    assert await found(store, source="stripe") == idents[::-1]
    assert await found(store, source="other") == [other]
    monkeypatch.setattr(search, "MOST_KINDS", 2)
    assert await found(store, type="t2") == [idents[12], idents[7], idents[2]]


async def test_states(store: Store, clock: Clock) -> None:
    rows = {state: await reach(store, state, Kind("s", f"t{n}")) for n, state in enumerate(State)}
    for state, row in rows.items():
        assert await found(store, states=(state,)) == [row.id]
        assert await found(store, states=(state,), source="s", type=row.type) == [row.id]
        assert await found(store, states=(state,), source="other") == []
    assert await found(store, states=tuple(State)) == [row.id for row in reversed(rows.values())]
    await recorded(store, "poison")
    await crash(store, clock)
    await crash(store, clock)
    ident = (await store.search.events(limit=1))[0].id
    await store.retry(ident, State.RETRYING, "ada", "again")
    assert await found(store, states=(State.PENDING,)) == [ident, rows[State.PENDING].id], "also what runs alone"


async def test_pending_in_a_long_queue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SHORT_QUEUE", 3)
    done = await reach(store, State.PROCESSED, KIND)
    idents = [await recorded(store, f"evt_{n}") for n in range(8)]
    assert await found(store, states=(State.PENDING,)) == idents[::-1]
    assert await found(store, states=(State.PROCESSED,)) == [done.id]


async def test_keys_of_every_origin(store: Store) -> None:
    plain = await recorded(store, "evt_1")
    elsewhere = await recorded(store, "evt_1", source="github", unsigned=True)
    cut = await recorded(store, "a…sha256:beef")
    [composite] = await record(store, arrival(_of(KeyOrigin.COMPOSITE)))
    assert await found(store, key="evt_1") == [elsewhere, plain]
    assert await found(store, key="evt_1", source="github") == [elsewhere]
    assert await found(store, key="evt_1", source="nobody") == []
    assert await found(store, key="a…sha256:beef") == [cut]
    assert await found(store, key="one:two") == [composite.event_id]
    assert await found(store, key="evt_") == []


def _of(origin: KeyOrigin) -> Item:
    """An item whose identity is not made of the key that is shown."""
    return structs.replace(item("something else"), key="one:two", key_origin=origin)


async def test_a_key_among_more_kinds_than_are_walked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_KINDS", 2)
    await store.know_sources(["a", "z"])
    for n in range(4):
        await recorded(store, f"evt_{n}", source="a", type=f"t{n}")
    owner = await claimed(store, "evt_z", source="z", type=KIND.type)
    transaction = store.transaction()
    await transaction.once(intent(owner, "k", name="credit", kind=EffectKind.ONCE, repeat=None))
    await transaction.commit([way_out(owner, "complete")])
    assert await found(store, key="evt_z") == [owner.id]
    assert await found(store, effect="credit:k") == [owner.id]


async def test_objects(store: Store) -> None:
    a = await recorded(store, "a", object_id="sub_1")
    b = (await claimed(store, "b", object_id="sub_1", type="x")).id
    await recorded(store, "c", object_id="sub_2")
    assert await found(store, object_id="sub_1") == [b, a]
    assert await found(store, object_id="sub_1", states=(State.PROCESSING,)) == [b]
    assert await found(store, object_id="sub_9") == []


async def test_time(store: Store, clock: Clock) -> None:
    idents = []
    for n in range(5):
        idents.append(await recorded(store, f"evt_{n}"))
        clock.offset += 7200  # ids know nothing of it
    times = [(await event(store, ident)).received_at for ident in idents]
    assert await found(store, since=times[3]) == idents[:2:-1]
    assert await found(store, until=times[2]) == [idents[1], idents[0]]
    assert await found(store, since=times[1], until=times[3], source="stripe") == [idents[2], idents[1]]
    assert await found(store, since=times[4] + timedelta(microseconds=1)) == []


async def test_time_of_what_was_admitted(store: Store, raw: Raw) -> None:
    ident = await recorded(store)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    stored = int(long_ago.timestamp() * 1e6) if raw.now.isdigit() else f"'{long_ago.isoformat()}'"
    await raw.run(f"UPDATE events SET received_at = {stored}, key_origin = 'quarantine'")
    assert await found(store, until=long_ago + timedelta(days=1)) == [ident]
    assert await found(store, until=long_ago + timedelta(days=1), source="stripe") == [ident]
    assert await found(store, until=long_ago) == []


async def test_text_and_error(store: Store) -> None:
    a = await recorded(store, "a", b'{"mail":"ada@example.test", "per": "100%"}')
    owner = await claimed(store, "b", type="x")
    await settle(store, owner, "fail", reason="CardError: declined 50%", error="Traceback\nCardError: declined_50%")
    assert await found(store, text="ada@example") == await found(store, text="100%") == [a]
    assert await found(store, text="1__%") == await found(store, text="ADA") == []
    assert await found(store, error="declined 50%") == await found(store, error="Traceback") == [owner.id]
    assert await found(store, error="declined%") == []
    assert await found(store, error="declined", states=(State.FAILED,), source="stripe") == [owner.id]


async def test_effects(store: Store) -> None:
    owner = await claimed(store)
    await recorded(store, "other", type="x")
    transaction = store.transaction()
    identity = effect_identity("stripe", "credit", "in_1:2")
    intent = Intent(identity, EffectKind.ONCE, "stripe", "credit", "in_1:2", owner.id, owner.claim)
    assert await transaction.once(intent)
    await transaction.rollback()
    assert await found(store, effect="credit:in_1:2") == []
    transaction = store.transaction()
    assert await transaction.once(intent)
    await transaction.commit([way_out(owner, "complete")])
    assert await found(store, effect="credit:in_1:2") == await found(store, effect="credit") == [owner.id]
    assert await found(store, effect="credit:in_1:2", states=(State.PENDING,)) == []
    assert await found(store, effect="credit:in_1") == await found(store, effect="debit") == []


async def test_attention(store: Store) -> None:
    retrying = await reach(store, State.RETRYING, KIND)
    await recorded(store, "other")
    assert await found(store, attention=True) == []
    await store.alerts.alert(retrying.id, "it fails again")
    assert await found(store, attention=True) == await found(store, attention=True, source="stripe") == [retrying.id]


# ── pages ────────────────────────────────────────────────────────────────────


async def test_a_search_stops_and_says_where(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SHORT_STRETCH", 10)
    needle = await recorded(store, "first", b"needle")
    await record(store, *(delivered(f"evt_{n}") for n in range(60)))
    where, before, looked_at, pages = Filter(text="needle"), None, 0, 0
    while not (page := await store.search.page(where, before=before, limit=2)).events:
        assert page.next is not None
        assert page.looked_at is not None
        assert before is None or page.next < before
        before, looked_at, pages = page.next, looked_at + page.looked_at, pages + 1
    assert ([row.id for row in page.events], page.next) == ([needle], None)
    assert pages > 1
    assert looked_at <= 60
    assert [row.id for row in await store.search.events(where, limit=2)] == [needle], "however long it takes"


@pytest.mark.parametrize(
    "where",
    [Filter(), Filter(source="stripe"), Filter(type="t1*"), Filter(states=(State.PENDING,)), Filter(text="{}")],
)
async def test_pages_while_others_are_recorded(
    store: Store, open_store: OpenStore, where: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "STRETCH", 7)
    monkeypatch.setattr(search, "SHORT_STRETCH", 7)

    def some(start: int, count: int) -> list[Arrival]:
        numbers = range(start, start + count)
        return [delivered(f"evt_{n}", type=f"t{n % 20}", source=["stripe", "x"][n % 2]) for n in numbers]

    await record(store, *some(0, 100))
    there = {row.id for row in await store.search.events(where, limit=1000)}
    other, stop = await open_store(), asyncio.Event()

    async def go_on() -> None:
        start = 1000
        while not stop.is_set():
            await record(other, *some(start, 10))
            start += 10

    recording = asyncio.create_task(go_on())
    seen: list[UUID] = []
    before: UUID | None = None
    while True:
        page = await store.search.page(where, before=before, limit=3)
        seen += [row.id for row in page.events]
        if page.next is None:
            break
        before = page.next
    stop.set()
    await recording
    assert len(seen) == len(set(seen)), "none twice"
    assert there <= set(seen), "none left out"
    assert seen == sorted(seen, reverse=True)


async def test_a_count_gives_up_in_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(store)
    many = ", ".join(["(1)"] * 300)
    slow = f"(SELECT count(*) FROM (VALUES {many}) a, (VALUES {many}) b, (VALUES {many}) c) > 0"
    with monkeypatch.context() as patched:
        patched.setattr(search, "condition", lambda db, where: (slow, {}))
        with pytest.raises(Unavailable, match="took longer than"):
            await store.search.count(Filter(), seconds=0.05)
    assert await store.search.count(Filter()) == 1, "and the connection is fit for use"


@pytest.mark.parametrize("name", ["source", "type", "key", "object_id", "text", "error", "cause", "effect"])
@pytest.mark.parametrize("value", ["", "a\0b", "\ud800", "x" * 10_000])
def test_what_cannot_be_looked_for(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"the filter's {name}"):
        Filter(**{name: value})  # type: ignore[arg-type]


EDGES = [datetime.min, datetime.max, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]


@pytest.mark.parametrize("moment", EDGES)
def test_moments_beyond_range(moment: datetime) -> None:
    for name in ("since", "until"):
        with pytest.raises(ConfigError):
            Filter(**{name: moment})  # type: ignore[arg-type]


HOSTILE = ["%", "_", "'; DROP TABLE events; --", "{0}", "{where}", "{streams}", "\U0010ffff", "*", "é"]


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_words(store: Store, value: str) -> None:
    await recorded(store)
    for name in ("source", "type", "key", "object_id", "text", "error", "cause", "effect"):
        wanted: dict[str, Any] = {name: value}
        rows = await found(store, **wanted)
        assert len(rows) == (1 if name == "type" and value == "*" else 0)
    assert await found(store, since=datetime(1970, 1, 1, tzinfo=UTC), until=datetime(8999, 1, 1, tzinfo=UTC))


# ── causes ───────────────────────────────────────────────────────────────────


async def test_failures_by_cause(store: Store, clock: Clock) -> None:
    for n in range(3):
        owner = await claimed(store, f"evt_{n}")
        await settle(store, owner, "fail", reason=f"attempts exhausted (3): KeyError: 'cus_{n}'")
        clock.offset += 60
    owner = await claimed(store, "evt_9", type="other")
    await settle(store, owner, "review", reason="guard in the handler")
    await recorded(store, "evt_10", type="bad", invalid="not an object")
    many, *others = await store.search.failures()
    assert (many.source, many.type, many.cause, many.count) == ("stripe", "invoice.paid", "KeyError: …", 3)
    assert (many.failed, many.needs_review, many.retrying, many.marked) == (3, 0, 0, 0)
    assert (many.last_at - many.first_at).total_seconds() >= 120
    newest, *_ = await found(store, cause="KeyError: …")
    assert many.sample == newest
    assert {(group.type, group.cause) for group in others} == {
        ("other", "guard in the handler"),
        ("bad", "not an object"),
    }
    assert await store.search.failures("nobody") == []
    assert [group.count for group in await store.search.failures(most=2)] == [1, 1, 1], "of the newest two of a state"


async def test_marked_events_by_effect(store: Store, clock: Clock) -> None:
    """Which are not in trouble themselves: each group is an effect, and what its call said without ids."""
    said: dict[str, list[str | None]] = {
        "mail": ["SMTPError: no mailbox ada@example.test", "SMTPError: no mailbox bob@example.test"],
        "book": ["ValueError: no account 17", "KeyError: 'plan'", None],
    }
    for name, errors in said.items():
        for n, error in enumerate(errors):
            owner = await claimed(store, f"{name}_{n}")
            identity = (await start(store, owner, f"{name}_{n}", name=name)).identity
            await finish(store, identity, 1, "unknown", error=error)
            assert await settle(store, owner, "complete")
            clock.offset += 60
    owner = await claimed(store, "later")
    [identity] = await plan(store, owner, "later", name="mail")
    await take(store, "mail")
    await finish(store, identity, 1, "refused", error="SMTPError: no mailbox ada@example.test")
    assert await settle(store, owner, "complete")
    groups = await store.search.failures()
    assert {(group.effect, group.cause): group.count for group in groups} == {
        ("mail", "effect mail is unknown: SMTPError: no mailbox …"): 2,
        ("mail", "effect mail is failed: SMTPError: no mailbox …"): 1,
        ("book", "effect book is unknown: ValueError: no account …"): 1,
        ("book", "effect book is unknown: KeyError: 'plan'"): 1,
        ("book", "effect book is unknown: no answer"): 1,
    }
    most = groups[0]
    assert (most.count, most.marked, most.failed) == (2, 2, 0), "the most frequent first"
    assert (most.last_at - most.first_at).total_seconds() >= 60
    assert (await event(store, most.sample)).key == "mail_1", "the newest of them"
    assert [await found(store, attention=True, effect=group.effect) for group in groups if group.effect == "book"]


async def test_a_cause_goes_with_the_trouble(store: Store, clock: Clock) -> None:
    ident = await recorded(store)
    await crash(store, clock)
    row = await event(store, ident)
    assert (row.cause, row.reason) == ("the worker died", "the worker died")
    await store.retry(ident, State.RETRYING, "ada", "again")
    assert (await event(store, ident)).cause is None
    await settle(store, await claim(store), "fail", reason="no")
    assert (await event(store, ident)).cause == "no"
    await store.replay(ident, State.FAILED, "ada", "again")
    await settle(store, await claim(store), "fail", reason="no")
    await store.discard(ident, State.FAILED, "ada", "enough")
    assert (await event(store, ident)).cause is None
    assert await store.search.failures() == []


# ── lag ──────────────────────────────────────────────────────────────────────


async def test_lag(store: Store, clock: Clock) -> None:
    assert await store.search.lag() == []
    await reach(store, State.PROCESSED, KIND)
    await recorded(store, "old")
    clock.offset += 100
    await recorded(store, "new")
    await claimed(store, "busy", type="slow")
    waits = await claimed(store, "waits", type="again")
    await settle(store, waits, "reschedule", reason="later", due_in=50.0)
    oldest, *others = await store.search.lag()
    assert (oldest.kind, oldest.pending, oldest.retrying, oldest.processing) == (KIND, 2, 0, 0)
    assert oldest.age >= 100
    assert oldest.overdue is not None
    assert oldest.overdue >= 100
    by_type = {lag.kind.type: lag for lag in others}
    assert (by_type["slow"].processing, by_type["slow"].overdue) == (1, None)
    assert by_type["again"].retrying == 1
    assert (by_type["again"].overdue or 0.0) < 0
    [queued] = await store.attention.queue(10)
    assert (queued.source, queued.pending, queued.retrying, queued.processing) == ("stripe", 2, 1, 1)
    assert (queued.overdue or 0.0) >= 100
    [at_most] = await store.attention.queue(1)
    assert at_most.pending + at_most.retrying == 1, "it counts no further, whatever waits"
    assert at_most.processing == 1
    assert (at_most.overdue or 0.0) >= (queued.overdue or 0.0), "the first that is due is found all the same"
    assert await store.search.by_source() == {
        "stripe": {State.PROCESSED: 1, State.PENDING: 2, State.PROCESSING: 1, State.RETRYING: 1}
    }

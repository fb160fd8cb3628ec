"""The books balance after any life that is lived by legal means, and every kind of loss is found and named."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from importlib.resources import files
from typing import get_args
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import Unavailable
from hookledger.ids import key_identity
from hookledger.model import Claimed, StoredAnswer
from hookledger.states import AttemptOutcome, EffectKind, State
from hookledger.store.ops.consistency import ENTRIES, TOTAL, ConsistencyReport
from hookledger.store.ops.reviews import ANSWERS
from hookledger.store.ops.rules import WALK_OF, WALKS
from hookledger.store.ops.workers import Reclaim
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from hookledger.store.text import Name, parse, shared
from tests.builders import (
    LEASE,
    SOURCE,
    WORKER,
    Raw,
    claim,
    claimed,
    crash,
    delivered,
    item,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.guards import ask
from tests.ledger import LATER, finish, get, intent, start, take
from tests.life import Life
from tests.soak import amount

STEPS = 240


async def found(store: Store) -> dict[str, int]:
    return {odd.kind: odd.count for odd in (await store.consistency.report()).imbalances}


# ── balanced ─────────────────────────────────────────────────────────────────


def test_each_entry_is_a_query_of_both_stores() -> None:
    others = {"few", "figures", "settled", "identity_in_hex", "database_settings", "database_damage"}
    others |= {"stuck_events", "stuck_effects", "unperformable", "pruned_event", "our_schema"}
    others |= {f"keyed_{walk.table}" for walk in WALKS.values()}
    text = files("hookledger.store.sql").joinpath("consistency.sql").read_text()
    for dialect in get_args(Name):
        assert parse(text, dialect).keys() - others == ENTRIES.keys()


async def test_empty_books(store: Store) -> None:
    assert await store.consistency.report() == ConsistencyReport({}, {}, 0, {}, {}, {}, {}, ())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(amount(1, 3, 20)))
async def test_random_histories_stay_consistent(store: Store, clock: Clock, seed: int) -> None:
    life = Life(store, clock, seed)
    for number in range(4):
        await life.live(STEPS // 4)
        await life.resolve_many("did_not_happen" if number % 2 else "happened")
        books = await store.consistency.report()
        assert books.imbalances == ()
        assert books.made + books.from_quarantine == books.kept == sum(books.events.values())


async def test_the_lives_have_seen_everything(store: Store, clock: Clock) -> None:
    """One longer life does nearly everything that can be done: the books above were not blank. What is pruned leaves
    the books, so they are read on the way. How long it takes is chance, since ids are."""
    life = Life(store, clock, 100)
    seen: dict[str, set[str]] = defaultdict(set)
    done = {"accepted", "duplicate", "conflict", "invalid", "imported", "commit", "repeat", "unhandled", "reclaim"}
    done |= {"erased", "bulk", "bulk resolve", "pause", "place", "wait for an entity", "approve", "reject", "settle"}
    done |= {"stages", "add stage"}
    for number in range(100):
        if number >= 20 and seen["attempts"] == set(AttemptOutcome) and all(life.did[name] for name in done):
            break
        await life.live(STEPS // 4)
        if number >= 15:  # not before: what is resolved is unknown no more
            await life.resolve_many("did_not_happen" if number % 2 else "happened")
        books = await store.consistency.report()
        assert books.imbalances == ()
        names = ("deliveries", "events", "identities", "attempts", "effects", "calls", "pruned_by_state", "guards")
        for name in names:
            seen[name] |= getattr(books, name).keys()
    assert seen["events"] >= set(State) - {State.PROCESSING}
    assert seen["attempts"] == set(AttemptOutcome)
    assert seen["calls"] == {"done", "refused", "unknown", "open"}
    assert seen["guards"] == {"guards", "applied", "stale"}
    assert len(seen["effects"]) >= 5
    assert min(len(seen["deliveries"]), len(seen["identities"])) >= 3
    assert (books.pruned > 10, books.from_quarantine > 0) == (True, True)
    assert not [name for name in done if not life.did[name]]


async def test_consistency_is_read_while_everything_changes(store: Store, clock: Clock) -> None:
    """However often they are read while everything changes, the books show one instant."""
    life = Life(store, clock, 7)
    living = asyncio.create_task(life.live(STEPS))
    read = 0
    while not living.done():
        assert (await store.consistency.report()).imbalances == ()
        read += 1
    await living
    assert read > 3


async def test_what_an_imported_key_took_along_is_accounted_for(store: Store) -> None:
    """The body that comes with an imported key belongs to the import, and so does the next key with that body."""
    await store.imported_keys.import_keys(SOURCE, [key_identity(SOURCE, b"id-1")], "ada", "moved")
    await record(store, delivered("id-1", b"body", unsigned=True))
    again = delivered("id-2", b"body", unsigned=True)
    await record(store, again)
    assert await found(store) == {}
    await store.quarantine.accept(again.id, 0, again.items[0], "ada", "another order")
    books = await store.consistency.report()
    assert (books.imbalances, books.made, books.from_quarantine, books.kept) == ((), 0, 1, 1)


async def test_it_ends_in_time(store: Store) -> None:
    await recorded(store)
    with pytest.raises(Unavailable, match="longer than 0 s"):
        await store.consistency.report(limit=0.0)
    assert await found(store) == {}


async def test_a_query_that_takes_too_long_is_stopped(
    store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL one that waits for a lock, on SQLite one that never ends."""
    if isinstance(store, SqliteStore):
        endless = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
        monkeypatch.setitem(shared("sqlite"), "endless", endless)
        monkeypatch.setitem(ENTRIES, "endless", "numbers never end")
        monkeypatch.setitem(WALK_OF, "endless", "requests")
        with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
            await store.consistency.report(limit=0.2)
        return
    other = await open_store()
    assert isinstance(other, PostgresStore)
    async with other._opened().bare() as connection, connection.transaction():
        await connection.execute("LOCK TABLE hookledger.effect_calls")
        with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
            await store.consistency.report(limit=0.2)
    assert await found(store) == {}


# ── off ──────────────────────────────────────────────────────────────────────


async def story(store: Store, clock: Clock) -> dict[str, UUID]:
    """One event of each fate, each under a name."""
    told = {}
    owner = await claimed(store, "processed")
    told["processed"] = owner.id
    await commit(store, owner)
    told["called"] = (owner := await claimed(store, "called")).id
    await finish(store, (await start(store, owner, "paid")).identity, 1, "done")
    refused = await start(store, owner, "refused")
    await finish(store, refused.identity, 1, "refused")
    lost = await start(store, owner, "lost")
    await finish(store, lost.identity, 1, "unknown")
    assert await settle(store, owner, "review")
    told["answered"] = (owner := await claimed(store, "answered")).id
    assert await settle(store, owner, "complete", answer=StoredAnswer(200, b"", b"done"))
    told["failed"] = (owner := await claimed(store, "failed")).id
    assert await settle(store, owner, "fail")
    told["buried"] = await recorded(store, "buried")
    await crash(store, clock, due_in=None)
    told["discarded"] = (owner := await claimed(store, "discarded")).id
    assert await settle(store, owner, "fail")
    await store.discard(owner.id, State.FAILED, "ada", "enough")
    told["replayed"] = (owner := await claimed(store, "replayed")).id
    assert await settle(store, owner, "complete")
    await store.replay(owner.id, State.PROCESSED, "ada", "again")
    assert await settle(store, await claim(store), "skip")
    for name in ANSWERS:
        told[name] = (owner := await claimed(store, name)).id
        assert await settle(store, owner, "review")
        await getattr(store.reviews, name)(owner.id, State.NEEDS_REVIEW, "ada", "answered", seen=owner.claim + 1)
        if name == "approve":
            assert await settle(store, await claim(store), "reschedule", due_in=3600.0)
    told["guarded"] = (owner := await claimed(store, "guarded")).id
    assert (await ask(store, owner, 1731)).applied
    told["late"] = (owner := await claimed(store, "late")).id
    assert not (await ask(store, owner, 1720)).applied
    odd = delivered("processed", b"other")
    await record(store, odd, delivered("processed"), delivered("unread", invalid="unreadable"))
    told["quarantine"] = await store.quarantine.accept(odd.id, 0, item("processed", b"other"), "ada", "ours")
    told["observed"] = await recorded(store, "observed", skip="observed")
    assert await found(store) == {}
    return told


async def commit(store: Store, owner: Claimed) -> None:
    """A handler with a `once` and an outbox entry, which is done after it."""
    transaction = store.transaction()
    await transaction.once(intent(owner, "k", name="credit", kind=EffectKind.ONCE, repeat=None))
    await transaction.plan(intent(owner, "k", name="mail", kind=LATER))
    await transaction.commit([way_out(owner, "complete")])
    [taken] = await take(store, "mail")
    await finish(store, taken.identity, 1, "done")


BulkAction = tuple[str, dict[str, int]]
DEEDS: dict[str, BulkAction] = {
    # what was done to the database, with {name} for ids: what the books say of it
    "an event is lost": (
        "DELETE FROM events WHERE id = {failed}",
        {TOTAL: 1, "deliveries_without_event": 1, "identities_astray": 1, "attempts_astray": 1},
    ),
    "an event is lost with its delivery": (
        "DELETE FROM events WHERE id = {observed}; DELETE FROM deliveries WHERE event_id = {observed}",
        {"requests_astray": 1, "identities_astray": 1},
    ),
    "an event with effects is lost": (
        "DELETE FROM events WHERE id = {called}",
        {TOTAL: 1, "deliveries_without_event": 1, "identities_astray": 1, "attempts_astray": 1}
        | {"effects_without_event": 3},
    ),
    "an event is lost that was delivered again": (
        "DELETE FROM events WHERE id = {processed}",
        {TOTAL: 1, "deliveries_without_event": 1, "deliveries_astray": 2, "identities_astray": 1}
        | {"attempts_astray": 1, "effects_without_event": 2},
    ),
    "a pruned event came back": (
        "INSERT INTO pruned SELECT id, source, state, received_at FROM events WHERE id = {failed}",
        {"pruned_and_here": 1},
    ),
    "a pruned event's key is lost": (
        "INSERT INTO pruned SELECT {nobody}, source, state, received_at FROM events WHERE id = {failed}",
        {"pruned_without_identity": 1},
    ),
    "a delivery is lost": (
        "DELETE FROM deliveries WHERE event_id = {failed}",
        {TOTAL: 1, "events_without_delivery": 1, "requests_astray": 1},
    ),
    "a delivery turns into another": (
        "UPDATE deliveries SET outcome = 'duplicate' WHERE event_id = {failed}",
        {TOTAL: 1, "events_without_delivery": 1},
    ),
    "an odd delivery that was admitted is lost": (
        "DELETE FROM deliveries WHERE outcome = 'conflict'",
        {"events_without_delivery": 1, "requests_astray": 1},
    ),
    "an identity is lost": (
        "DELETE FROM identities WHERE event_id = {failed}",
        {"events_without_identity": 1},
    ),
    "the identity of an admitted event is lost": (
        "DELETE FROM identities WHERE kind = 'quarantine'",
        {"events_without_identity": 1},
    ),
    "a request is lost": (
        "DELETE FROM requests WHERE id IN (SELECT request_id FROM events WHERE id = {failed})",
        {"requests_missing": 1},
    ),
    "an attempt is lost": ("DELETE FROM attempts WHERE event_id = {failed}", {"events_without_attempt": 1}),
    "a crash is lost": ("DELETE FROM attempts WHERE event_id = {buried}", {"events_without_attempt": 1}),
    "an attempt of an earlier run is lost": (
        "DELETE FROM attempts WHERE event_id = {replayed} AND run = 1",
        {"events_unlike_attempts": 1},
    ),
    "the attempt that effects came with is lost": (
        "DELETE FROM attempts WHERE event_id = {processed}",
        {"events_without_attempt": 1, "events_unlike_attempts": 1, "effects_without_attempt": 1},
    ),
    "an attempt is written by someone without a claim": (
        "UPDATE attempts SET claim = 99 WHERE event_id = {failed}",
        {"events_without_attempt": 1, "attempts_astray": 1},
    ),
    "a failed event is called processed": (
        "UPDATE events SET state = 'processed', first_processed_at = {now} WHERE id = {failed}",
        {"events_without_attempt": 1, "events_unlike_attempts": 1},
    ),
    "an observed event is called processed": (
        "UPDATE events SET state = 'processed', first_processed_at = {now} WHERE id = {observed}",
        {"events_without_attempt": 1, "events_unlike_attempts": 1},
    ),
    "an event is reviewed by nobody": (
        "UPDATE events SET state = 'needs_review', finished_at = NULL WHERE id = {failed}",
        {"events_without_attempt": 1},
    ),
    "an event is discarded by hand": (
        "UPDATE events SET state = 'discarded' WHERE id = {failed}",
        {"events_without_action": 1},
    ),
    "a replay is not in the audit": (
        "DELETE FROM actions WHERE event_id = {replayed}",
        {"events_without_action": 1},
    ),
    "an event is called a stage of nothing": (
        "UPDATE events SET parent = {nobody}, stage = 's', source = 'stripe/s' WHERE id = {observed}",
        {TOTAL: 1, "events_without_delivery": 1, "stages_astray": 1},
    ),
    "two events of an entity may run together": (
        "DROP INDEX events_first; UPDATE events SET entity = 'x', order_at = {now}, state = 'pending', "
        "due_at = {now}, finished_at = NULL WHERE state IN ('pending', 'skipped'); "
        "UPDATE events SET due_at = {now}, ready_at = NULL WHERE entity = 'x'",
        {"entities_overlap": 3},
    ),
    "the turn of an event is lost": (
        "UPDATE events SET entity = 'x', order_at = {now}, due_at = {never} WHERE state = 'pending'",
        {"entities_stuck": 1},
    ),
    "a review is answered by hand": (
        "DELETE FROM actions WHERE event_id = {reject}",
        {"events_without_action": 1},
    ),
    "an event is settled without a trace": (
        "DELETE FROM actions WHERE event_id = {settle}",
        {"events_without_attempt": 1, "events_unlike_attempts": 1},
    ),
    "the review of a settled event is lost": (
        "DELETE FROM attempts WHERE event_id = {settle}",
        {"events_without_attempt": 1},
    ),
    "an approval is not in the audit": (
        "DELETE FROM actions WHERE event_id = {approve}",
        {"events_without_action": 1, "approvals_astray": 1},
    ),
    "an approval is of another run": (
        "UPDATE actions SET subject = 'run 22, review at claim 1' WHERE event_id = {approve}",
        {"approvals_astray": 1},
    ),
    "an approval is of another event": (
        "UPDATE events SET approval_id = (SELECT approval_id FROM events WHERE id = {approve}), run = 2, "
        "state = 'pending', due_at = {now}, finished_at = NULL WHERE id = {replayed}",
        {"approvals_astray": 1},
    ),
    "an effect is orphaned": (
        "UPDATE effects SET event_id = {nobody} WHERE name = 'mail'",
        {"effects_without_event": 1},
    ),
    "an effect is lost": ("DELETE FROM effects WHERE key = 'paid'", {"calls_astray": 1}),
    "a call is lost": (
        "DELETE FROM effect_calls WHERE outcome = 'unknown'",
        {"calls_missing": 1, "effects_unlike_calls": 1},
    ),
    "a call of a generation to come": (
        "UPDATE effect_calls SET generation = 2 WHERE outcome = 'refused'",
        {"calls_astray": 1, "effects_unlike_calls": 1},
    ),
    "a done call is called refused": (
        "UPDATE effect_calls SET outcome = 'refused' WHERE outcome = 'done'",
        {"effects_unlike_calls": 2},
    ),
    "a refused effect is called done": (
        "UPDATE effects SET state = 'done', finished_at = {now} WHERE state = 'failed'",
        {"effects_unlike_calls": 1},
    ),
    "an unknown effect is called failed": (
        "UPDATE effects SET state = 'failed' WHERE state = 'unknown'",
        {"effects_unlike_calls": 1},
    ),
    "an unknown effect is planned again by hand": (
        "UPDATE effects SET state = 'planned' WHERE state = 'unknown'",
        {"effects_unlike_calls": 1},
    ),
    "a refused effect is called unknown": (
        "UPDATE effects SET state = 'unknown' WHERE state = 'failed'",
        {"effects_unlike_calls": 1},
    ),
    "a done effect is called started": (
        "UPDATE effects SET state = 'started', leased_until = {now}, finished_at = NULL WHERE key = 'paid'",
        {"effects_unlike_calls": 1},
    ),
    "the event of a guard is lost": (
        "DELETE FROM events WHERE id = {guarded}",
        {TOTAL: 1, "deliveries_without_event": 1, "identities_astray": 1, "attempts_astray": 1}
        | {"guards_without_event": 1, "answers_astray": 1},
    ),
    "a guard is set by hand": ("UPDATE guards SET version = '99'", {"guards_without_answer": 1}),
    "a guard is of another event": (
        "UPDATE guards SET event_id = {late}",
        {"guards_without_answer": 1},
    ),
    "the answer that set a guard is lost": (
        "DELETE FROM guard_answers WHERE event_id = {guarded}",
        {"guards_without_answer": 1},
    ),
    "a guard is lost": ("DELETE FROM guards", {"answers_astray": 2}),
    "the attempt that an answer came with is lost": (
        "UPDATE guard_answers SET claim = 99 WHERE event_id = {late}",
        {"answers_without_attempt": 1},
    ),
    "an answer is of a run that never was": ("UPDATE answers SET run = 9", {"kept_answers_astray": 1}),
    "an effect forgets that it was called": (
        "UPDATE effects SET number = 0 WHERE key = 'paid'",
        {"calls_missing": 1},
    ),
}


@pytest.mark.parametrize("deed", list(DEEDS))
async def test_what_is_off_is_named(store: Store, clock: Clock, raw: Raw, deed: str) -> None:
    ids = {name: raw.ident(ident) for name, ident in (await story(store, clock)).items()}
    sql, expected = DEEDS[deed]
    for statement in sql.split("; "):
        given = {**ids, "now": raw.now, "never": raw.never, "nobody": raw.ident(UUID(int=1))}
        await raw.run(statement.format(**given))
    assert await found(store) == expected


def test_every_entry_was_off_once() -> None:
    assert {kind for _, expected in DEEDS.values() for kind in expected} == {TOTAL, *ENTRIES}


async def test_a_few_are_named(store: Store, raw: Raw) -> None:
    lost = {str(await recorded(store, f"evt_{n}")) for n in range(7)}
    await raw.run("DELETE FROM identities")
    [odd] = (await store.consistency.report()).imbalances
    assert (odd.kind, odd.count, len(odd.sample)) == ("events_without_identity", 7, 5)
    assert lost > set(odd.sample)


async def test_effects_are_named(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    await start(store, owner, "k-1")
    await raw.run("DELETE FROM effect_calls")
    missing, unlike = (await store.consistency.report()).imbalances
    assert missing.sample == unlike.sample == (f"{owner.id} charge:k-1",)


# ── leases, settings ─────────────────────────────────────────────────────────


async def test_expired_leases_that_were_not_reclaimed(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    started = await start(store, owner)
    clock.offset += LEASE + 10
    assert await store.consistency.stuck(15.0) == []
    clock.offset += 10
    events, effects = await store.consistency.stuck(15.0)
    assert (events.kind, events.count, events.sample) == ("stuck_events", 1, (f"{owner.id} {WORKER}",))
    assert (effects.kind, effects.count, effects.sample) == ("stuck_effects", 1, (f"{owner.id} charge:k",))
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")]) == 1
    assert await store.ledger.mark_unknown(await get(store, started.identity), None)
    assert await store.consistency.stuck(0.0) == []


async def test_settings(store: Store) -> None:
    known = await store.consistency.settings()
    if isinstance(store, SqliteStore):
        assert known == {"journal_mode": "wal", "synchronous": "2"}
    else:
        assert known["default_transaction_isolation"] == "read committed"
        assert known.keys() >= {"fsync", "full_page_writes", "synchronous_commit"}


async def test_integrity(store: Store) -> None:
    await recorded(store)
    assert await store.consistency.integrity() == []

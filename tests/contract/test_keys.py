"""Keys known from elsewhere, and what the events of a source say about its keys."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import msgspec
import pytest

from hookledger.errors import BadData, SchemaMismatch
from hookledger.ids import key_identity
from hookledger.model import Recorded
from hookledger.states import DeliveryOutcome, KeyOrigin, State
from hookledger.store.ops import imported_keys
from hookledger.store.ops.imported_keys import Imported
from hookledger.store.ops.key_audit import KeyAudit, KeyGroup
from hookledger.store.protocol import Store
from tests.builders import SOURCE, TYPE, Raw, arrival, delivered, item, record, recorded
from tests.contract.conftest import OpenStore

DUPLICATE, CONFLICT = DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT
SAME_BODY, ACCEPTED = DeliveryOutcome.SAME_BODY, DeliveryOutcome.ACCEPTED


def keys(*names: str, source: str = SOURCE) -> list[bytes]:
    return [key_identity(source, name.encode()) for name in names]


async def imported(store: Store, *names: str) -> Imported:
    return await store.imported_keys.import_keys(SOURCE, keys(*names), "ada", "from the old table")


# ── import ───────────────────────────────────────────────────────────────────


async def test_a_delivery_with_an_imported_key_is_a_duplicate(store: Store, raw: Raw) -> None:
    assert await imported(store, "old-1", "old-2") == Imported(2, 2, 0)
    sent = [delivered("old-1", b"one"), delivered("old-1", b"two"), delivered("old-2")]
    assert list(await store.record_new(sent)) == [None] * 3
    verdicts = [verdict for one in sent for verdict in await record(store, one)]
    assert [v.outcome for v in verdicts] == [DUPLICATE] * 3, "whatever content"
    [(owner, state)] = {(v.event_id, v.state) for v in verdicts}
    assert state is None
    assert await raw.run(f"SELECT name FROM actions WHERE id = {raw.ident(owner)}") == [("import-keys",)]
    assert (await raw.count("events"), await raw.count("requests")) == (0, 0)
    assert await raw.count("deliveries") == 3, "kept as evidence"
    await store.know_sources([SOURCE])
    assert await store.find("old-1") == [], "there is no event to show"


async def test_an_import_is_one_audited_action(store: Store, raw: Raw) -> None:
    await imported(store, *(f"old-{n}" for n in range(2500)))
    [row] = await raw.run("SELECT name, actor, reason, subject, from_state, to_state, event_id = id FROM actions")
    assert tuple(row) == ("import-keys", "ada", "from the old table", SOURCE, "absent", "known", True)
    owners = await raw.run("SELECT DISTINCT kind, source, length(fingerprint), event_id FROM identities")
    [(event_id,)] = await raw.run("SELECT event_id FROM actions")
    assert owners == [("key", SOURCE, 0, event_id)]
    assert await raw.count("identities") == 2500


async def test_importing_twice(store: Store, raw: Raw) -> None:
    await recorded(store, "here")
    assert await imported(store, "here", "old", "old") == Imported(2, 1, 1)
    before = await raw.all("identities")
    assert await imported(store, "here", "old") == Imported(2, 0, 2)
    assert await raw.all("identities") == before
    assert await imported(store) == Imported(0, 0, 0)
    # What was here before goes on as it was.
    assert [v.outcome for v in await record(store, delivered("here", b"changed"))] == [CONFLICT]


async def test_keys_belong_to_a_source(store: Store) -> None:
    await imported(store, "old")
    assert [v.outcome for v in await record(store, delivered("old", source="github"))] == [ACCEPTED]


async def test_the_body_that_came_with_an_imported_key(store: Store) -> None:
    """Where ids are not signed: the content that was processed elsewhere is not new under another id."""
    await imported(store, "id-1")
    [first] = await record(store, delivered("id-1", b"body", unsigned=True))
    again = delivered("id-2", b"body", unsigned=True)
    assert await record(store, again) == [Recorded(SAME_BODY, first.event_id, None)]
    [odd] = await store.quarantine.quarantined()
    assert (odd.event_id, odd.event_key, odd.event_state) == (first.event_id, None, None)
    ident = await store.quarantine.accept(again.id, 0, again.items[0], "ada", "not the same")
    assert await record(store, delivered("id-2", b"body", unsigned=True)) == [
        Recorded(DUPLICATE, ident, State.PENDING)
    ]


async def test_known_keys(store: Store) -> None:
    await imported(store, "old")
    await recorded(store, "here")
    many = keys(*(f"absent-{n}" for n in range(2500)))
    found = await store.imported_keys.known_keys([*many[:1200], *keys("old"), *many[1200:], *keys("here", "here")])
    assert found == set(keys("old", "here"))
    assert await store.imported_keys.known_keys([]) == set()


@pytest.mark.parametrize("bad", [b"", b"short", b"x" * 33])
async def test_a_bad_identity_is_found_before_any_is_taken(store: Store, raw: Raw, bad: bytes) -> None:
    many = keys(*(f"old-{n}" for n in range(1500)))
    with pytest.raises(BadData):
        await store.imported_keys.import_keys(SOURCE, [*many, bad], "ada", "why")
    assert (await raw.count("identities"), await raw.count("actions")) == (0, 0)


@pytest.mark.parametrize(("actor", "reason"), [("", "why"), ("ada", "")])
async def test_no_import_without_actor_and_reason(store: Store, raw: Raw, actor: str, reason: str) -> None:
    """The action is in the first transaction: no key is ever taken for nobody."""
    with pytest.raises(BadData):
        await store.imported_keys.import_keys(SOURCE, keys("old"), actor, reason)
    assert (await raw.count("identities"), await raw.count("actions")) == (0, 0)


async def test_an_import_that_broke_off_is_finished_by_the_next(
    store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"old-{n}" for n in range(30)]
    monkeypatch.setattr(imported_keys, "IMPORT_BATCH", 10)
    task = asyncio.create_task(imported(store, *names))
    while await raw.count("identities") == 0:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    taken = await raw.count("identities")
    assert taken % 10 == 0
    assert await raw.count("actions") == 1
    assert await imported(store, *names) == Imported(30, 30 - taken, taken)
    assert await raw.count("identities") == 30


async def test_deliveries_arrive_during_the_import(
    store: Store, open_store: OpenStore, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key is the import's or the delivery's, never both."""
    monkeypatch.setattr(imported_keys, "IMPORT_BATCH", 20)
    stores, names = [store, await open_store()], [f"evt_{n}" for n in range(200)]

    async def deliver(order: int) -> list[Recorded]:
        found = []
        for start in range(0, 200, 25):
            group = names[::order][start : start + 25]
            found += await record(stores[order < 0], *(delivered(name) for name in group))
        return found

    report, other, *groups = await asyncio.gather(
        imported(stores[0], *names), imported(stores[1], *names), deliver(1), deliver(-1)
    )
    verdicts = [verdict for group in groups for verdict in group]
    accepted = [v.event_id for v in verdicts if v.outcome is ACCEPTED]
    assert {v.outcome for v in verdicts} <= {ACCEPTED, DUPLICATE}
    assert report.new + other.new + len(accepted) == 200
    assert (await raw.count("identities"), await raw.count("events")) == (200, len(accepted))
    assert {v.outcome for v in await record(store, *(delivered(name) for name in names))} == {DUPLICATE}


# ── audit ────────────────────────────────────────────────────────────────────


async def audit(store: Store, last: int = 1000) -> KeyAudit:
    return await store.key_audits.audit_keys(SOURCE, last=last)


# proves R16
async def test_key_audit_of_a_source(store: Store) -> None:
    narrow = [await recorded(store, f"narrow-{n}", b"same") for n in range(4)]
    pair = [await recorded(store, f"pair-{n}", b"pair") for n in range(2)]
    wide = await recorded(store, "wide", b"0")
    await record(store, *(delivered("wide", b"%d" % n) for n in range(1, 4)), delivered("wide", b"0"))
    unsigned = await recorded(store, "id-1", b"body", unsigned=True)
    await record(store, *(delivered(f"id-{n}", b"body", unsigned=True) for n in (2, 3)))
    await recorded(store, "other type", b"same", type="other")
    await recorded(store, "other source", b"same", source="github")
    assert await audit(store) == KeyAudit(
        source=SOURCE,
        events=9,
        deliveries=15,
        origins={KeyOrigin.SIGNED_ID: 8, KeyOrigin.UNSIGNED_ID: 1},
        duplicates=1,
        conflicts=3,
        same_bodies=2,
        same_content=6,
        same_content_groups=(
            KeyGroup(sha256(b"same").hexdigest(), TYPE, 4, tuple(narrow[:0:-1])),
            KeyGroup(sha256(b"pair").hexdigest(), TYPE, 2, tuple(pair[::-1])),
        ),
        conflict_groups=(KeyGroup("wide", TYPE, 3, (wide,)),),
        same_body_groups=(KeyGroup(sha256(b"body").hexdigest(), TYPE, 2, (unsigned,)),),
    )


async def test_only_the_last_events(store: Store) -> None:
    await recorded(store, "old", b"same")
    await record(store, delivered("old", b"changed"))
    await recorded(store, "new", b"same")
    found = await audit(store, last=1)
    assert (found.events, found.deliveries, found.conflicts, found.same_content) == (1, 1, 0, 0)
    assert (await audit(store, last=2)).same_content == 2
    for nothing in (await audit(store, last=0), await audit(store, last=-5)):
        assert nothing == KeyAudit(SOURCE, 0, 0, {}, 0, 0, 0, 0, (), (), ())
    assert (await store.key_audits.audit_keys("nobody", last=10)).events == 0


async def test_each_arrival_an_event_is_no_narrow_key(store: Store) -> None:
    pings = [msgspec.structs.replace(item(f"ping-{n}", b"ping"), key_origin=KeyOrigin.ARRIVAL) for n in range(3)]
    await record(store, *map(arrival, pings))
    found = await audit(store)
    assert (found.same_content, found.same_content_groups, found.origins) == (0, (), {KeyOrigin.ARRIVAL: 3})


async def test_at_most_twenty_groups(store: Store) -> None:
    await record(store, *(delivered(f"{n}:{k}", b"%d" % n) for n in range(25) for k in range(2 + (n == 7))))
    await record(store, *(delivered(f"{n}:0", b"changed") for n in range(25)))
    found = await audit(store)
    assert (len(found.same_content_groups), len(found.conflict_groups)) == (20, 20)
    assert (found.same_content, found.conflicts) == (51, 25)
    assert [group.count for group in found.same_content_groups] == [3] + [2] * 19


async def test_an_admitted_event_in_the_key_audit(store: Store) -> None:
    await recorded(store, "evt_1", b"one")
    conflict = delivered("evt_1", b"two")
    await record(store, conflict)
    await store.quarantine.accept(conflict.id, 0, conflict.items[0], "ada", "why")
    found = await audit(store)
    assert found.origins == {KeyOrigin.SIGNED_ID: 1, KeyOrigin.QUARANTINE: 1}
    assert (found.events, found.deliveries, found.conflicts) == (2, 2, 1)


@pytest.mark.unmigrated
async def test_audit_before_the_first_migration(open_store: OpenStore) -> None:
    store = await open_store()
    with pytest.raises(SchemaMismatch, match="migrate"):
        await audit(store)

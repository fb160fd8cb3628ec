"""After a restore from an older backup: what may have been done since is unknown, on each store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.ids import operation_key
from hookledger.model import Kind
from hookledger.operate.context import Context
from hookledger.operate.doctor.checks import gap_findings
from hookledger.operate.restore import after_restore
from hookledger.states import EffectKind, EffectState, Repeat, State
from hookledger.store.ops.audit import Audit
from hookledger.store.protocol import Store
from tests.builders import Raw, claimed, event, history, settle
from tests.ledger import CALL, LATER, calls, finish, get, plan, reach, start

BACKUP = datetime.now(UTC) - timedelta(hours=3)


async def prepare(store: Store, clock: Clock) -> int:
    """As an operator does; nobody was alive since the backup."""
    clock.offset += 3600
    _, number = await after_restore(Context(store), Audit("ada", "the disk died"), BACKUP)
    return number


@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("state", sorted(EffectState))
async def test_only_what_was_planned_or_started_becomes_unknown(
    store: Store, clock: Clock, state: EffectState, kind: EffectKind
) -> None:
    owner = await claimed(store)
    repeat = Repeat.KEYED
    if kind is CALL and state is EffectState.CANCELLED:
        return  # a call of its handler cannot be cancelled
    before = await reach(store, clock, owner, state, kind, repeat=repeat)
    open_ = state in (EffectState.PLANNED, EffectState.STARTED)
    assert await prepare(store, clock) == int(open_)
    after = await get(store, before.identity)
    assert after.generation == before.generation, "its key is the one that remotes may know"
    if not open_:
        assert after.state is before.state
        assert (after.fence, after.number) == (before.fence, before.number)
        return
    assert (after.state, after.leased_until) == (EffectState.UNKNOWN, None)
    assert (after.due_at is not None) == (kind is LATER), "the outbox follows its policy"
    assert "restored from a backup" in (after.error or "")
    planned = state is EffectState.PLANNED
    assert after.number == before.number + int(planned)
    assert (await calls(store, after))[-1] == (after.number, None), "a call may have been made"
    assert after.unknown_for is not None
    if planned and kind is LATER:
        assert after.unknown_for >= 3 * 3600, "since the backup: a remote may have forgotten the key"
    assert (await event(store, owner.id)).attention
    assert (await store.consistency.report()).imbalances == ()


async def test_it_resumes_where_it_was_interrupted(store: Store, clock: Clock, raw: Raw) -> None:
    owner = await claimed(store)
    idents = sorted(await plan(store, owner, *(f"{n}" for n in range(7)), repeat=Repeat.SAFE))
    clock.offset += 3600
    restore = await store.restores.begin(BACKUP, "ada", "the disk died")
    assert await store.restores.mark_unknown(restore, b"", 3) == (3, idents[2])
    with pytest.raises(WrongState, match="again"):
        await store.restores.close("ada", "too early")
    assert gap_findings(await store.restores.gap())[0].says == "the preparation after a restore was interrupted"
    # Killed here, and begun again by somebody else.
    assert await prepare(store, clock) == 4
    assert {(await get(store, ident)).number for ident in idents} == {1}
    assert await raw.count("restores") == 1
    told = await raw.run("SELECT name, actor, to_state FROM actions WHERE event_id IS NULL")
    assert told == [("restore", "ada", "open")]
    with pytest.raises(WrongState, match="not closed"):
        await store.restores.begin(BACKUP, "ada", "twice")
    await store.restores.close("bob", "reconciled")
    assert await store.restores.gap() is None
    with pytest.raises(WrongState, match="no restore is open"):
        await store.restores.close("bob", "twice")


async def test_not_while_workers_live(store: Store) -> None:
    await store.register("w1", [("stripe", "*")])
    with pytest.raises(WrongState, match="worker w1 is alive"):
        await after_restore(Context(store), Audit("ada", "the disk died"), BACKUP)
    assert await store.restores.gap() is None


async def test_a_deliberate_repetition_skips_keys_that_may_be_used(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    started = await start(store, owner)
    await finish(store, started.identity, 1, "done")
    assert await settle(store, owner, "complete")
    used = {operation_key(started.identity, generation) for generation in (1, 2, 3)}

    async def repeat() -> int:
        row = await event(store, owner.id)
        await store.replay(owner.id, row.state, "ada", "again", repeat=[await get(store, started.identity)])
        known = await get(store, started.identity)
        begun = await store.ledger.restart(known, "w", 60.0)
        assert begun is not None
        await finish(store, started.identity, begun.number, "done")
        [held] = await store.claim("w", [Kind(owner.source, owner.type)], 1, 60.0)
        assert await settle(store, held, "complete")
        assert begun.generation == known.generation
        return known.generation

    assert await repeat() == 2
    assert await prepare(store, clock) == 0
    assert await repeat() == 1001
    assert operation_key(started.identity, 1001) not in used
    assert await repeat() == 1002
    assert (await history(store, owner.id)).event.state is State.PROCESSED

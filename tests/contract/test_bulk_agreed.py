"""A decision about many calls is about those that were looked at, however long ago that was."""

from __future__ import annotations

import pytest

from hookledger.clock import Clock
from hookledger.errors import ConfigError, WrongState
from hookledger.operate.audit import by
from hookledger.operate.bulk import plan as bulk
from hookledger.operate.bulk.plan import JobPreview
from hookledger.operate.context import Context
from hookledger.operate.effects import resolve
from hookledger.states import EffectState
from hookledger.store.ops.filters import EVERYTHING, Filter
from hookledger.store.ops.job import Resolving
from hookledger.store.protocol import Store
from tests.builders import claimed, settle
from tests.contract.test_bulk_resolve import called_again, doubtful, effects_of, plan, runner
from tests.ledger import LATER, NAME, finish, reach, take


async def looked(store: Store, where: Filter = EVERYTHING) -> JobPreview:
    return await bulk.look(Context(store), "resolve", where, Resolving(NAME, "happened"))


async def test_a_call_after_the_look_is_not_decided(store: Store) -> None:
    """As many effects as before: the count alone would not show it."""
    first, other = await doubtful(store, 2)
    seen = await looked(store)
    await called_again(store, (await effects_of(store, first))[0])
    assert (await looked(store)).agreed == seen.agreed
    with pytest.raises(WrongState, match="not those that were looked at: nothing was planned"):
        await plan(store, "happened", count=seen.agreed, fingerprint=seen.fingerprint)
    assert await store.jobs.jobs() == []
    job = await plan(store, "happened", fingerprint=(await looked(store)).fingerprint)
    await runner(store).run_one(job.id)
    assert {(await effects_of(store, ident))[0].state for ident in (first, other)} == {EffectState.DONE}


async def test_one_went_and_another_came(store: Store, clock: Clock) -> None:
    [first] = await doubtful(store, 1)
    seen = await looked(store)
    await resolve(Context(store), by("bob", "I saw it there"), (await effects_of(store, first))[0], "happened", None)
    await reach(store, clock, await claimed(store, "other", type="other"), EffectState.UNKNOWN, LATER, "other")
    assert (await looked(store)).agreed == seen.agreed == 1
    with pytest.raises(WrongState, match="not those that were looked at"):
        await plan(store, "happened", count=1, fingerprint=seen.fingerprint)


async def test_its_check_asked_again(store: Store, clock: Clock) -> None:
    """That is no call: what was found out about the last one is still about it."""
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.UNKNOWN, LATER)
    assert await settle(store, owner, "complete")
    seen = await looked(store)
    assert await store.ledger.put_off(known, 0.0, None)
    [checking] = await take(store)
    assert (checking.state, checking.number) == (EffectState.UNKNOWN, 1)
    assert await store.ledger.put_off(checking, None, None)
    await finish(store, known.identity, 1, "unknown")
    assert (await plan(store, count=1, fingerprint=seen.fingerprint)).effects == 1


async def test_only_what_is_resolved_has_a_fingerprint(store: Store) -> None:
    await doubtful(store, 1)
    assert (await bulk.look(Context(store), "retry", EVERYTHING)).fingerprint is None
    with pytest.raises(ConfigError, match="only resolve does"):
        await bulk.plan(Context(store), by("ada", "why"), "retry", EVERYTHING, fingerprint="0" * 16)


async def test_one_effect_of_an_event_cannot_be_meant(store: Store) -> None:
    """The filter chooses events: whoever names a key means one effect, and would decide all of that name."""
    [ident] = await doubtful(store, 1, each=3)
    one = Filter(effect=f"{NAME}:{(await effects_of(store, ident))[1].key}")
    for asked in (looked(store, one), plan(store, "happened", one)):
        with pytest.raises(ConfigError, match="every unknown charge would be decided"):
            await asked
    assert await store.jobs.jobs() == []
    for other in (Filter(effect=NAME), Filter(effect="mail:1")):
        assert (await looked(store, other)).effects == (3 if other.effect == NAME else 0)

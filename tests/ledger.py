"""Effects that tests need often: intents with sensible defaults, effects driven to a state by legal transitions."""

from __future__ import annotations

from typing import Any

from hookledger.clock import Clock
from hookledger.ids import effect_identity
from hookledger.ledger import Completion, Concluded, Effect, Intent, Started
from hookledger.model import Claimed, base_source
from hookledger.states import CallOutcome, EffectKind, EffectState, Repeat
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, history

CALL, LATER = EffectKind.CALL, EffectKind.LATER
NAME = "charge"


def intent(owner: Claimed, key: str = "k", name: str = NAME, kind: EffectKind = CALL, **other: Any) -> Intent:
    values: dict[str, Any] = {
        "identity": effect_identity(base_source(owner.source), name, key),
        "kind": kind,
        "source": base_source(owner.source),
        "name": name,
        "key": key,
        "event_id": owner.id,
        "claim": owner.claim,
        "arguments": b'{"amount":1}',
        "arguments_digest": b"digest",
        "repeat": Repeat.NEVER,
        "downstream": "bank",
        "lease": LEASE,
    }
    return Intent(**values | other)


async def get(store: Store, identity: bytes) -> Effect:
    found = await store.ledger.get(identity)
    assert found is not None
    return found


async def start(store: Store, owner: Claimed, key: str = "k", **other: Any) -> Started:
    """A new effect with its first call under way."""
    [started] = await store.ledger.start([intent(owner, key, **other)], WORKER)
    assert isinstance(started, Started)
    return started


async def plan(store: Store, owner: Claimed, *keys: str, **other: Any) -> list[bytes]:
    """New outbox rows, in one transaction; their identities."""
    intents = [intent(owner, key, kind=LATER, **other) for key in keys]
    transaction = store.transaction()
    for planned in intents:
        assert await transaction.plan(planned) is None
    await transaction.commit([])
    return [planned.identity for planned in intents]


async def take(store: Store, name: str = NAME, most: int = 1, worker: str = WORKER) -> list[Effect]:
    return await store.ledger.claim(worker, [(name, most, LEASE)])


async def finish(store: Store, identity: bytes, number: int, outcome: CallOutcome | str, **other: Any) -> Concluded:
    [concluded] = await store.ledger.finish([Completion(identity, number, CallOutcome(outcome), **other)])
    return concluded


async def reach(
    store: Store, clock: Clock, owner: Claimed, state: EffectState, kind: EffectKind, key: str = "k", **other: Any
) -> Effect:
    """A new effect in this state, unknown ones not due. Nothing else of its name may be due."""
    name = other.get("name", NAME)
    if kind is CALL:
        identity = (await start(store, owner, key, **other)).identity
    else:
        [identity] = await plan(store, owner, key, **other)
        if state is not EffectState.PLANNED:
            assert [e.identity for e in await take(store, name)] == [identity]
    ends = {EffectState.DONE: "done", EffectState.FAILED: "refused", EffectState.CANCELLED: "refused"}
    if state in ends:
        await finish(store, identity, 1, ends[state])
    elif state is EffectState.UNKNOWN or (state is EffectState.PLANNED and kind is CALL):
        await finish(store, identity, 1, "unknown")
    if state is EffectState.CANCELLED or (state is EffectState.PLANNED and kind is CALL):
        decision = "cancel" if state is EffectState.CANCELLED else "did_not_happen"
        await store.ledger.resolve(await get(store, identity), decision, None, "ada", "because")
    found = await get(store, identity)
    assert found.state is state
    return found


async def calls(store: Store, effect: Effect) -> list[tuple[int, str | None]]:
    """Number and outcome of each of its calls."""
    for known in (await history(store, effect.event_id)).effects:
        if known.effect.identity == effect.identity:
            return [(call.number, call.outcome and call.outcome.value) for call in known.calls]
    return []

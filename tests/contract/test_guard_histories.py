"""Random histories at guards, against a model of ten lines: what is applied at the end depends on no order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from hookledger.ledger import GuardAnswer, GuardRequest
from hookledger.model import Claimed
from hookledger.store.protocol import Store
from tests.builders import SOURCE, Raw
from tests.contract.conftest import OpenStore
from tests.contract.test_transaction_effects import several
from tests.guards import guard, request
from tests.soak import amount

AT = datetime(2027, 1, 31, 9, tzinfo=UTC)
EVENTS, ORDERS = 6, 4
KINDS: list[Callable[[int], Any]] = [
    lambda n: n,
    lambda n: Decimal(n) / 10,
    lambda n: -n,
    lambda n: AT + timedelta(seconds=n),
    lambda n: (AT + timedelta(seconds=n)).isoformat(),
    lambda n: (n // 2, (AT + timedelta(microseconds=n)).isoformat()),
]
"""Versions that are few, so that there are ties, and that do not sort as text."""


class Happening(NamedTuple):
    """One event at a guard."""

    owner: Claimed
    version: Any
    rank: int
    received_at: datetime


class Asked(NamedTuple):
    """One attempt of an event, and whether it is committed."""

    event: Happening
    claim: int
    commits: bool


def history(chance: Random, owners: Sequence[Claimed]) -> list[Happening]:
    """Events about one entity, of every type, some of them at the same moment."""
    kind = chance.choice(KINDS)
    return [
        Happening(
            owner,
            kind(chance.choice([8, 9, 9, 10, 11])),
            chance.randint(0, 2),
            AT + timedelta(microseconds=chance.randint(0, 2)),
        )
        for owner in owners
    ]


def order_of(chance: Random, events: Sequence[Happening]) -> list[Asked]:
    """Each event is processed at least once; some attempts crash, and some events are replayed."""
    asked = [Asked(event, 1, True) for event in events]
    asked += [Asked(chance.choice(events), 2 + n, chance.random() < 0.7) for n in range(chance.randint(0, 5))]
    chance.shuffle(asked)
    return asked


def asks(key: str, asked: Asked) -> GuardRequest:
    event = asked.event
    given = request(event.owner, event.version, key, rank=event.rank, received_at=event.received_at)
    return msgspec.structs.replace(given, claim=asked.claim)


def model(key: str, order: Sequence[Asked]) -> tuple[list[bool], GuardRequest, int]:
    """What each attempt is answered, what is applied at the end, and how many ties there were."""
    applied: GuardRequest | None = None
    answers, ties = [], 0
    for asked in order:
        mine = asks(key, asked)
        other = applied is not None and applied.event_id != mine.event_id
        answers.append(applied is None or not other or mine.order > applied.order)
        if asked.commits:
            ties += other and applied is not None and mine.position == applied.position
            applied = mine if answers[-1] else applied
    assert applied is not None
    return answers, applied, ties


async def attempt(store: Store, key: str, asked: Asked) -> GuardAnswer:
    """As a handler: what is allowed is written, in the same transaction; a crash leaves nothing."""
    tx, mine = store.transaction(), asks(key, asked)
    answer = await tx.newer(mine)
    if answer.applied:
        row = f"('{key}', '{mine.event_id}')"
        await tx.tx.execute(
            f"INSERT INTO projection VALUES {row} ON CONFLICT (key) DO UPDATE SET event = excluded.event"
        )
    if asked.commits:
        await tx.commit([])
    else:
        await tx.rollback()
    return answer


@pytest.fixture
async def projection(store: Store) -> None:
    tx = store.transaction()
    await tx.tx.execute("CREATE TABLE projection (key TEXT PRIMARY KEY, event TEXT)")
    await tx.commit([])


async def projected(raw: Raw) -> dict[str, str]:
    return dict(await raw.run("SELECT key, event FROM projection"))


# proves R35
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(amount(6, 12, 60)))
async def test_the_result_does_not_depend_on_the_order(store: Store, raw: Raw, projection: None, seed: int) -> None:
    chance = Random(seed)
    events = history(chance, await several(store, EVENTS))
    newest = max((asks("", Asked(event, 1, True)) for event in events), key=lambda one: one.order)
    for number in range(ORDERS):
        key, order = f"order_{number}", order_of(chance, events)
        expected, applied, ties = model(key, order)
        assert [(await attempt(store, key, asked)).applied for asked in order] == expected
        known = await guard(store, key, source=SOURCE)
        assert known is not None
        assert known.event_id == applied.event_id == newest.event_id, "whoever was first"
        assert (known.version, known.order, known.ties) == (newest.version, newest.order, ties)
    assert {*(await projected(raw)).values()} == {str(newest.event_id)}
    recorded = await raw.run("SELECT count(*), sum(CASE WHEN tie IS NULL THEN 0 ELSE 1 END) FROM guard_answers")
    assert recorded[0][0] > EVENTS * ORDERS - 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(amount(6, 12, 60)))
async def test_the_result_does_not_depend_on_races(
    store: Store, open_store: OpenStore, raw: Raw, projection: None, seed: int
) -> None:
    """All attempts at the same time, on connections of two processes; each holds its guard for a moment."""
    chance, stores = Random(seed), [store, await open_store()]
    events = history(chance, await several(store, EVENTS))
    newest = max((asks("", Asked(event, 1, True)) for event in events), key=lambda one: one.order)

    async def later(number: int, key: str, asked: Asked) -> None:
        await asyncio.sleep(chance.random() * 0.02)
        await attempt(stores[number % 2], key, asked)

    for number in range(ORDERS):
        key, order = f"race_{number}", order_of(chance, events)
        await asyncio.gather(*(later(n, key, asked) for n, asked in enumerate(order)))
        known = await guard(store, key, source=SOURCE)
        assert known is not None
        assert (known.event_id, known.order) == (newest.event_id, newest.order)
    assert {*(await projected(raw)).values()} == {str(newest.event_id)}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(amount(4, 8, 40)))
async def test_events_that_change_their_version(store: Store, raw: Raw, projection: None, seed: int) -> None:
    """A replay may read another version than before: then the order matters, and answers are still the model's."""
    chance = Random(seed)
    events = history(chance, await several(store, EVENTS))
    kind = type(events[0].version)
    order = [
        asked._replace(event=asked.event._replace(version=chance.choice(events).version))
        for asked in order_of(chance, events)
    ]
    assert all(isinstance(asked.event.version, kind) for asked in order)
    expected, applied, ties = model("changes", order)
    assert [(await attempt(store, "changes", asked)).applied for asked in order] == expected
    known = await guard(store, "changes", source=SOURCE)
    assert known is not None
    assert (known.event_id, known.version, known.ties) == (applied.event_id, applied.version, ties)
    assert await projected(raw) == {"changes": str(applied.event_id)}

"""No live worker is declared dead, and nothing skipped, on a disturbed view of the world."""

from typing import Any

import pytest

from hookledger.clock import Seconds
from hookledger.effects.declare import Effects
from hookledger.errors import Unavailable
from hookledger.ledger import Effect
from hookledger.model import Kind, Waiting
from hookledger.store.history import Health
from hookledger.store.ops.workers import Expired, WorkerInfo
from hookledger.work.reclaim import Grace, LeaseReclaimer
from hookledger.work.route import Routes
from hookledger.work.settings import WorkSettings


class Time:
    """Both clocks, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("hookledger.work.reclaim.time.monotonic", lambda: self.now)
        monkeypatch.setattr("hookledger.work.reclaim.time.time", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_a_start_waits_a_whole_lease(time: Time) -> None:
    grace = Grace(60)
    seen = []
    for _ in range(5):
        time.now += 15
        seen.append(grace.over(time.now))
    assert seen == [False, False, False, True, True]


def test_a_jump_of_the_databases_clock_restarts_the_grace_period(time: Time) -> None:
    grace = Grace(60)
    for _ in range(8):
        time.now += 15
        assert grace.over(time.now) == (time.now >= 1060)
    time.now += 15
    assert not grace.over(time.now + 3600)
    time.now += 15
    assert not grace.over(time.now + 3600)
    for _ in range(4):
        time.now += 15
        over = grace.over(time.now + 3600)
    assert over


def test_our_own_pause_restarts_the_grace_period(time: Time) -> None:
    grace = Grace(60)
    for _ in range(8):
        time.now += 15
        grace.over(time.now)
    time.now += 600
    assert not grace.over(time.now)


class Ledger:
    def __init__(self) -> None:
        self.doubts = 0

    async def expired(self, limit: int) -> list[Effect]:
        self.doubts += 1
        return []


class Store:
    """What the reclaimer asks for."""

    def __init__(self) -> None:
        self.up = True
        self.rescues = self.skips = 0
        self.ledger = Ledger()
        self.entities = self.answers = self
        self.locked = False

    async def forget(self, after: object) -> None:
        if self.locked:
            raise Unavailable("canceling statement due to lock timeout")

    async def prune(self) -> int:
        return 0

    async def health(self) -> Health:
        return Health(self.up, 1, 0.0)

    async def expired(self, limit: int) -> list[Expired]:
        self.rescues += 1
        return []

    async def waiting(self) -> list[Waiting]:
        self.skips += 1
        return [Waiting(Kind("s", "t"), -10_000.0)]

    async def workers(self) -> list[WorkerInfo]:
        return []

    async def skip_unhandled(self, *_: Any) -> int:
        return 0

    async def forget_workers(self, unseen_for: float) -> None: ...


async def test_nothing_is_reclaimed_or_skipped_before_it_can_be_known(time: Time) -> None:
    store, settings = Store(), WorkSettings(lease=Seconds(60), unhandled_after=Seconds(600))
    reclaimer = LeaseReclaimer(store, Routes(), Effects(), settings)  # type: ignore[arg-type]
    looked: list[tuple[int, int]] = []
    for round_ in range(60):
        time.now += 15
        store.up = round_ != 45
        await reclaimer._round()
        looked.append((store.rescues, store.skips))
        assert store.ledger.doubts == store.rescues, "calls are not doubted earlier than claims"
    assert looked[2] == (0, 0)
    assert looked[3][0] == 1, "a lease after the start"
    assert looked[38][1] == 0
    assert looked[39][1] == 1, "ten minutes after the start"
    before, after = looked[44], looked[59]
    assert after[1] == before[1], "the outage at round 45 starts the ten minutes anew"
    assert looked[47][0] == before[0]
    assert after[0] > before[0]


async def test_entities_that_cannot_be_forgotten_do_not_keep_dead_workers_from_being_found(time: Time) -> None:
    """Their rows may be locked for long. Each round would start the grace period anew."""
    store, settings = Store(), WorkSettings(lease=Seconds(60))
    store.locked = True
    reclaimer = LeaseReclaimer(store, Routes(), Effects(), settings)  # type: ignore[arg-type]
    for _ in range(8):
        time.now += 15
        await reclaimer._round()
    assert store.rescues == 5

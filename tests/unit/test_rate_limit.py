"""The pace of a job, on a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from hookledger.operate.bulk.rate_limit import CATCH_UP, MOST, RateLimit


def run(total: int, per_second: float, step_takes: list[float], seed: int = 1) -> list[tuple[float, int]]:
    """When each step ended, and how many events were done by then; time passes only in steps and waits."""
    chance = random.Random(seed)
    now, done, seen = 1000.0, 0, []
    pace = RateLimit(per_second, now)
    while done < total:
        now += pace.wait(now) + chance.choice(step_takes)
        done += min(pace.size, total - done)
        pace.stepped(now)
        seen.append((now - 1000.0, done))
    return seen


# proves R46
@pytest.mark.parametrize("per_second", [0.5, 3, 10, 99, 200, 2000])
def test_held_within_ten_percent_over_the_whole_life(per_second: float) -> None:
    total = int(per_second * 60)
    took, _ = run(total, per_second, [0.001, 0.002, 0.02])[-1]
    assert total / took == pytest.approx(per_second, rel=0.1)


@pytest.mark.parametrize("per_second", [10, 200, 2000])
def test_slow_steps_are_made_up_for(per_second: float) -> None:
    """Now and then a step takes as long as ten should."""
    total = int(per_second * 100)
    slow = 10 * RateLimit(per_second, 0.0).size / per_second
    took, _ = run(total, per_second, [0.0] * 40 + [min(slow, CATCH_UP)])[-1]
    assert total / took == pytest.approx(per_second, rel=0.1)


@pytest.mark.parametrize("per_second", [10, 200, 2000])
def test_no_burst_after_a_pause(per_second: float) -> None:
    """A step that took a minute: no more than a second's worth is made up for."""
    pace = RateLimit(per_second, 0.0)
    now = pace.wait(0.0) + 60.0
    pace.stepped(now)
    done, begin = 0, now
    while now <= begin + 5.0:
        now += pace.wait(now)
        pace.stepped(now)
        done += pace.size
    assert done <= per_second * (5.0 + CATCH_UP) + 2 * pace.size


def test_never_faster_than_the_rate_limit() -> None:
    for took, done in run(3000, 100, [0.0]):
        assert done <= 100 * took + 1e-6


def test_a_successor_begins_again() -> None:
    """Killed again and again: what nobody did in between is not made up for, and the pace is held while one runs."""
    now, done, ran = 0.0, 0, 0.0
    for _ in range(20):
        pace, begun = RateLimit(200, now), now
        while now < begun + 10.0:
            now += pace.wait(now) + 0.003
            pace.stepped(now)
            done += pace.size
        ran += now - begun
        now += 60.0  # nobody has it until the lease runs out
    assert done / ran == pytest.approx(200, rel=0.1)


def test_as_fast_as_it_goes() -> None:
    pace = RateLimit(0, 5.0)
    assert (pace.size, pace.wait(5.0)) == (MOST, 0.0)
    pace.stepped(6.0)
    assert pace.wait(6.0) == 0.0


def test_a_step_is_bounded() -> None:
    assert RateLimit(1e9, 0.0).size == MOST
    assert RateLimit(0.001, 0.0).size == 1

"""Which upload gives way when the bytes held over all connections reach their limit."""

import pytest
from msgspec import Struct

from hookledger.receive.budget import EVICTED, MIN_AGE, SMALL, BodyBudget, connections_to_evict

LIMIT = 20 * SMALL
NOW = 100.0


class Upload:
    def __init__(self, age: float) -> None:
        self.held = 0
        self.started = NOW - age
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


class Uploads:
    def __init__(self) -> None:
        self.arriving: list[Upload] = []
        self.budget = BodyBudget(LIMIT, lambda: self.arriving, lambda: NOW)

    def add(self, size: int, *, age: float, whole: bool = False) -> Upload:
        upload = Upload(age)
        if not whole:
            self.arriving.append(upload)
        self.budget.add(upload, size)
        return upload


def test_slowest_upload_gives_way_first() -> None:
    uploads = Uploads()
    fast = uploads.add(4 * SMALL, age=2.0)
    slow = uploads.add(4 * SMALL, age=8.0)
    new = uploads.add(2 * SMALL, age=0.0)
    assert not slow.dropped
    uploads.budget.add(new, 1)
    assert (fast.dropped, slow.dropped, new.dropped) == (False, True, False)
    assert uploads.budget.held == 6 * SMALL + 1


def test_rate_of_a_young_upload_is_ignored() -> None:
    """What has just begun has few bytes however fast it is."""
    uploads = Uploads()
    steady = uploads.add(8 * SMALL, age=MIN_AGE * 1.5)
    young = uploads.add(SMALL + 1, age=MIN_AGE / 2)
    uploads.budget.add(young, SMALL)
    assert (steady.dropped, young.dropped) == (True, False)


def test_of_young_uploads_the_one_with_most_bytes_stays() -> None:
    """Or none would ever be whole."""
    uploads = Uploads()
    first = uploads.add(9 * SMALL, age=0.2)
    second = uploads.add(2 * SMALL, age=0.1)
    assert (first.dropped, second.dropped) == (False, True)
    assert uploads.budget.held == first.held == 9 * SMALL


def test_large_uploads_leave_half_to_small_ones() -> None:
    uploads = Uploads()
    large = [uploads.add(2 * SMALL, age=0.0) for _ in range(10)]
    assert sum(upload.dropped for upload in large) == 5
    small = [uploads.add(SMALL, age=0.0) for _ in range(10)]
    assert not any(upload.dropped for upload in small)
    assert uploads.budget.held == LIMIT
    assert sum(upload.dropped for upload in large) == 5


def test_some_room_is_made_among_slow_uploads() -> None:
    """So that the next bytes need no choice again."""
    uploads = Uploads()
    slow = [uploads.add(SMALL + 1, age=5.0 + number) for number in range(9)]
    new = uploads.add(2 * SMALL, age=0.0)
    assert [upload.dropped for upload in slow] == [False] * 6 + [True] * 3
    assert not new.dropped


def test_whole_requests_are_never_dropped() -> None:
    uploads = Uploads()
    whole = uploads.add(10 * SMALL, age=9.0, whole=True)
    new = uploads.add(2 * SMALL, age=0.0)
    assert (whole.dropped, new.dropped) == (False, True)
    uploads.budget.release(whole)
    assert uploads.budget.held == 0
    assert not uploads.add(10 * SMALL, age=0.0).dropped


def test_bytes_of_one_upload_count_once_however_they_arrive() -> None:
    uploads = Uploads()
    one = uploads.add(1, age=0.0)
    for _ in range(3 * SMALL):
        uploads.budget.add(one, 1)
    assert uploads.budget.held == uploads.budget._large == 3 * SMALL + 1
    uploads.budget.release(one)
    uploads.budget.release(one)
    assert (uploads.budget.held, uploads.budget._large) == (0, 0)


class Place(Struct):
    phase: str = "head"
    started: float = NOW
    remote: str | None = "192.0.2.1"
    owed: bool = False
    authentic: bool = False


def test_strangers_of_the_fullest_address_give_way() -> None:
    crowd = [Place(started=NOW - 1 - age) for age in range(20)]
    uploads = [Place(phase="body", started=NOW - 90) for _ in range(5)]
    others = [Place(started=NOW - 60, remote=f"192.0.2.{number}") for number in range(2, 200)]
    proved = [Place(phase="idle", started=NOW - 70, authentic=True) for _ in range(50)]
    owed = [Place(phase="answer", started=NOW - 80, owed=True) for _ in range(50)]
    leaving = connections_to_evict([*proved, *owed, *others, *uploads, *crowd], NOW)
    assert [place.started for place in leaving] == [NOW - 1 - age for age in range(19, 19 - EVICTED, -1)]
    assert connections_to_evict([*proved, *owed, *crowd[:2], *uploads], NOW) == [crowd[1], crowd[0], *uploads]


@pytest.mark.parametrize("phase", ["idle", "head", "body"])
def test_new_connections_stay_under_load(phase: str) -> None:
    """A sender may need a moment between its connection and its first byte."""
    newcomers = [Place(phase="idle", started=NOW - 0.3) for _ in range(5)]
    slow = [Place(phase=phase, started=NOW - 3) for _ in range(20)]
    assert all(place.started == NOW - 3 for place in connections_to_evict([*newcomers, *slow], NOW))
    fresh = [Place(phase=phase, started=NOW - 0.4) for _ in range(20)]
    assert all(place.started == NOW - 0.4 for place in connections_to_evict([*newcomers, *fresh], NOW))


def test_without_strangers_one_gives_way_and_never_one_that_is_owed() -> None:
    proved = [Place(phase="idle", started=NOW - age, authentic=True) for age in range(50)]
    owed = [Place(phase="answer", started=0, owed=True)]
    assert connections_to_evict([*proved, *owed], NOW) == [proved[-1]]
    assert connections_to_evict(owed, NOW) == []

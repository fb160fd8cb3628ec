"""Caps the body bytes held over all connections, and says who gives way when bytes or connections run out
(decision 0033)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Protocol, TypeVar

from ..errors import Unavailable

SMALL = 64 * 1024
"""Bodies up to this size have half of the budget to themselves: some providers never resend after a 503."""
MIN_AGE = 1.0
"""Seconds before the pace of an upload says anything."""
EVICTED = 16
"""Connections closed together when all are taken: choosing them costs a look at every one."""


def no_room() -> Unavailable:
    return Unavailable("all of intake.limits.body_bytes is held by other uploads; raise it unless this is an attack")


class Upload(Protocol):
    """One body from its first byte until its answer."""

    held: int
    """Bytes that have arrived and are counted."""
    started: float

    def drop(self) -> None:
        """Answer 503 and release the bytes."""


class BodyBudget:
    """Counts the bytes that have arrived and are not answered yet. `arriving` lists the uploads that may be dropped:
    what has arrived whole is being proved or recorded."""

    def __init__(self, limit: int, arriving: Callable[[], Iterable[Upload]], now: Callable[[], float]) -> None:
        self.held = 0
        self._large = 0  # of it, in bodies over SMALL
        self._limit = limit
        self._large_limit = limit // 2
        self._arriving = arriving
        self._now = now

    def add(self, upload: Upload, more: int) -> None:
        """Count bytes of this upload, which is itself dropped if it is the one to give way."""
        before = upload.held
        upload.held = size = before + more
        self.held += more
        if size > SMALL:
            self._large += more if before > SMALL else size
            if self._over:
                self._make_room(upload)
        elif self.held > self._limit:
            self._make_room(upload)

    def release(self, upload: Upload) -> None:
        size = upload.held
        upload.held = 0
        self.held -= size
        if size > SMALL:
            self._large -= size

    @property
    def _over(self) -> bool:
        return self.held > self._limit or self._large > self._large_limit

    @property
    def _nearly_over(self) -> bool:
        return self.held > self._limit * 7 // 8 or self._large > self._large_limit * 7 // 8

    def _make_room(self, newest: Upload) -> None:
        """Large uploads give way to large ones, and any to any when all of it is used up. An eighth of the slow ones'
        room is made free, because choosing them costs a look at every upload."""
        smallest = 0 if self.held > self._limit else SMALL
        now = self._now()

        def pace(upload: Upload) -> tuple[bool, float]:
            """The slowest of those older than MIN_AGE first, then those of which the least has arrived."""
            age = now - upload.started
            return age < MIN_AGE, upload.held / max(age, MIN_AGE)

        for upload in sorted((one for one in self._arriving() if one.held > smallest), key=pace):
            young = now - upload.started < MIN_AGE
            if not self._over and (young or upload is newest or not self._nearly_over):
                return
            self._drop(upload)
        if self._over:
            self._drop(newest)

    def _drop(self, upload: Upload) -> None:
        upload.drop()
        self.release(upload)  # now, though an upload over ASGI ends a moment later


class Place(Protocol):
    """One of the connections that we can hold."""

    @property
    def phase(self) -> str: ...

    started: float
    remote: str | None
    owed: bool
    """A request arrived whole and its answer is due."""
    authentic: bool
    """A request that came here proved itself."""


P = TypeVar("P", bound=Place)


def in_the_way(places: Iterable[P], now: float) -> list[P]:
    """Those to be closed for others, of the address with most strangers: the oldest, but uploads after what says
    nothing, and newcomers last. Without strangers the one that waits longest."""
    waiting = [place for place in places if not place.owed]
    strangers = [place for place in waiting if not place.authentic]
    [(address, _)] = Counter(place.remote for place in strangers).most_common(1) or [(None, 0)]
    crowd = [place for place in strangers if place.remote == address]

    def standing(place: Place) -> tuple[bool, bool, float]:
        young = now - place.started < MIN_AGE
        return young, place.phase == "body" and not young, place.started

    return nsmallest(EVICTED, crowd, standing) or nsmallest(1, waiting, standing)

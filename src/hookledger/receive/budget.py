"""Limit the body bytes held over all connections, and choose what to close when bytes or connections run out
(decision 0033)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Protocol, TypeVar

from ..errors import Unavailable

SMALL = 64 * 1024
"""Bytes; half of the budget is reserved for bodies up to this size: some providers never redeliver after a 503."""
MIN_AGE = 1.0
"""Seconds before the rate of an upload is meaningful."""
EVICTED = 16
"""Connections closed together when none is free: choosing them means examining every connection."""


def no_room() -> Unavailable:
    full = Unavailable("other uploads hold all of intake.limits.body_bytes: raise it unless this is an attack")
    return full.because("no_room")


class Upload(Protocol):
    """One body, from its first byte until its answer."""

    held: int
    """Bytes that have arrived and are counted."""
    started: float

    def drop(self) -> None:
        """Answer 503 and release the bytes."""


class BodyBudget:
    """Counts the bytes of bodies that are not answered yet. `arriving` lists the uploads that may be dropped, not
    complete bodies, which are being verified or recorded."""

    def __init__(self, limit: int, arriving: Callable[[], Iterable[Upload]], now: Callable[[], float]) -> None:
        self.held: int = 0
        self._large = 0  # of it, in bodies over SMALL
        self._limit = limit
        self._large_limit = limit // 2
        self._arriving = arriving
        self._now = now

    def add(self, upload: Upload, more: int) -> None:
        """Count bytes of this upload, and drop uploads, perhaps this one, if the budget is exceeded."""
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
        """Drop the slowest uploads: only large ones if these exceed their half, any if the total is exceeded. Frees
        an eighth of the budget from slow uploads, because choosing means examining every upload."""
        smallest = 0 if self.held > self._limit else SMALL
        now = self._now()

        def slowest_first(upload: Upload) -> tuple[bool, float]:
            """Sort the uploads older than MIN_AGE by rate, then the others by the bytes that have arrived."""
            age = now - upload.started
            return age < MIN_AGE, upload.held / max(age, MIN_AGE)

        for upload in sorted((one for one in self._arriving() if one.held > smallest), key=slowest_first):
            young = now - upload.started < MIN_AGE
            if not self._over and (young or upload is newest or not self._nearly_over):
                return
            self._drop(upload)
        if self._over:
            self._drop(newest)

    def _drop(self, upload: Upload) -> None:
        upload.drop()
        self.release(upload)  # an upload over ASGI ends a moment later


class OpenConnection(Protocol):
    """One client connection, as far as eviction needs it."""

    @property
    def phase(self) -> str: ...

    started: float
    remote: str | None
    owed: bool
    """Whether a complete request waits for its answer."""
    authentic: bool
    """Whether it has delivered an authentic request."""


C = TypeVar("C", bound=OpenConnection)


def connections_to_evict(connections: Iterable[C], now: float) -> list[C]:
    """Return the connections to close for new ones: of the address with most unauthenticated connections, idle ones
    before uploads, young ones last, each oldest first. Without unauthenticated ones, the one that waits longest."""
    waiting = [one for one in connections if not one.owed]
    strangers = [one for one in waiting if not one.authentic]
    [(address, _)] = Counter(one.remote for one in strangers).most_common(1) or [(None, 0)]
    same_address = [one for one in strangers if one.remote == address]

    def eviction_order(one: OpenConnection) -> tuple[bool, bool, float]:
        young = now - one.started < MIN_AGE
        return young, one.phase == "body" and not young, one.started

    return nsmallest(EVICTED, same_address, eviction_order) or nsmallest(1, waiting, eviction_order)

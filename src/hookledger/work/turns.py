"""Who is next: sources take turns, so that the backlog of one does not keep the others waiting.

`Due` shares the room of each claim among the sources that have something due, by stride scheduling: each turn of a
source adds 1/weight to its place, and the source with the lowest place is next. `Hand` starts what was claimed, one
source after another. Both are plain values: no clock, no store.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf, nextafter
from typing import NamedTuple
from uuid import UUID

from ..model import Claimed, Kind, Share, base_source
from .slots import Library, Limited

KINDS = 16
"""Of one share, at most: a claim locks as many events of each kind as the share may have of all."""

NEXT = nextafter(0.0, -inf)
"""The place before the first."""


class Flow(NamedTuple):
    """Events of one source that are under the same limits."""

    source: str
    library: Library
    batch: int
    """How many of them one run of the handler takes."""

    @property
    def limited(self) -> tuple[str, Library]:
        """What limits it: its source, whose stages share the limit, and its library."""
        return base_source(self.source), self.library

    def runs(self, events: int) -> int:
        """How many runs of a handler so many events need."""
        return -(-events // self.batch)


class Asked(NamedTuple):
    """What a claim asks for."""

    flow: Flow
    share: Share


class Due:
    """What was due at the last look, less what claims have taken since. `weights` of sources; 1 if not named."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._kinds: dict[Flow, list[Kind]] = {}
        self._places: dict[str, float] = {}
        """In the order of turns, of the sources that take turns: the lowest is next."""

    def __bool__(self) -> bool:
        return bool(self._kinds)

    @property
    def flows(self) -> Sequence[Flow]:
        return list(self._kinds)

    @property
    def sources(self) -> set[str]:
        return {flow.source for flow in self._kinds}

    def found(self, flows: Mapping[Flow, Sequence[Kind]]) -> None:
        """What a look found; kinds and flows with the longest due first."""
        self._kinds = {flow: list(kinds) for flow, kinds in flows.items()}

    def ask(self, room: int, limits: Mapping[Limited, int]) -> list[Asked]:
        """Share `room`, in runs of handlers, among what is due. `limits`: how many of it a source or a library may
        have; without limit if not named."""
        runs = self._share(room, limits)
        return [Asked(flow, self._named(flow, number * flow.batch)) for flow, number in runs.items()]

    def _share(self, room: int, limits: Mapping[Limited, int]) -> Counter[Flow]:
        shares: Counter[Flow] = Counter()
        left = dict(limits)
        turns = self._take_places(left) if room > 0 else {}
        heap = [(self._places[source], number, source) for number, source in enumerate(turns)]
        heapify(heap)
        while room > 0 and heap:
            place, number, source = heappop(heap)
            flow = turns[source].popleft()
            most = _most(flow, room, left)
            if most > 0:
                got = 1 if heap or turns[source] else most
                shares[flow] += got
                room -= got
                for limited in flow.limited:
                    if limited in left:
                        left[limited] -= got
                turns[source].append(flow)
                place += got / self._weight(source)
            if turns[source]:
                heappush(heap, (place, number, source))
        return shares

    def _take_places(self, left: Mapping[Limited, int]) -> dict[str, deque[Flow]]:
        """The flows that no limit stops, by source. A source that had nothing due, or was stopped, is next: it has
        saved no turns, which would keep the others waiting."""
        turns: dict[str, deque[Flow]] = {}
        for flow in self._kinds:
            if _most(flow, 1, left) > 0:
                turns.setdefault(flow.source, deque()).append(flow)
        known = {source: place for source, place in self._places.items() if source in turns}
        now = min(known.values(), default=0.0)
        self._places = {source: known[source] - now if source in known else NEXT for source in turns}
        return turns

    def _weight(self, source: str) -> int:
        return self._weights.get(base_source(source), 1)

    def _named(self, flow: Flow, events: int) -> Share:
        """The kinds with the longest due: so many events cannot be of more kinds."""
        return Share(tuple(self._kinds[flow][: min(KINDS, events)]), events)

    def took(self, asked: Sequence[Asked], claimed: Sequence[Claimed]) -> None:
        """What a claim brought. Kinds that brought less than their share have nothing due; others go to the end."""
        owner = {kind: number for number, one in enumerate(asked) for kind in one.share.kinds}
        got = Counter(owner[one.kind] for one in claimed)
        for number, (flow, share) in enumerate(asked):
            self._places[flow.source] += flow.runs(got[number]) / self._weight(flow.source)
            kinds = self._kinds[flow][len(share.kinds) :]
            if got[number] >= share.limit:
                kinds += share.kinds
            if kinds:
                self._kinds[flow] = kinds
            else:
                del self._kinds[flow]


def _most(flow: Flow, room: int, left: Mapping[Limited, int]) -> int:
    return min(room, *(left.get(limited, room) for limited in flow.limited))


class Hand:
    """Events that were claimed and not started. Sources take turns; claims keep their weights."""

    def __init__(self, flow_of: Callable[[Kind], Flow]) -> None:
        self._flow_of = flow_of
        self._queues: dict[Flow, deque[Claimed]] = {}
        """In the order of turns."""

    def __iter__(self) -> Iterator[Claimed]:
        return (claimed for queue in self._queues.values() for claimed in queue)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, claimed: Sequence[Claimed]) -> None:
        for one in claimed:
            flow = self._flow_of(one.kind)
            self._queues.setdefault(flow, deque()).append(one)

    def next(self, may_start: Callable[[Flow], bool]) -> tuple[Flow, list[Claimed]] | None:
        """Take the events of the next run: one or, for a handler that takes several, others of its kind too."""
        flow = next(filter(may_start, self._queues), None)
        if flow is None:
            return None
        queue = self._queues[flow]
        group, rest = [queue.popleft()], deque[Claimed]()
        while queue and len(group) < flow.batch:
            claimed = queue.popleft()
            (group if _fits(claimed, group) else rest).append(claimed)
        queue.extendleft(reversed(rest))
        self._end_turn(flow)
        return flow, group

    def _end_turn(self, flow: Flow) -> None:
        for other in [*(one for one in self._queues if one.source == flow.source and one != flow), flow]:
            queue = self._queues.pop(other)
            if queue:
                self._queues[other] = queue

    def remove(self, ident: UUID) -> Claimed | None:
        """Take this event, if it is here."""
        found = next((one for one in self if one.id == ident), None)
        if found is not None:
            flow = self._flow_of(found.kind)
            self._queues[flow].remove(found)
            if not self._queues[flow]:
                del self._queues[flow]
        return found

    def clear(self) -> list[Claimed]:
        """Take all."""
        found = list(self)
        self._queues.clear()
        return found

    def runs(self) -> tuple[int, Counter[Limited]]:
        """How many runs of handlers it needs, in all and of each source and library."""
        total, each = 0, Counter[Limited]()
        for flow, queue in self._queues.items():
            runs = flow.runs(len(queue))
            total += runs
            for limited in flow.limited:
                each[limited] += runs
        return total, each


def _fits(claimed: Claimed, group: Sequence[Claimed]) -> bool:
    """Whether it may run in one transaction with these."""
    return claimed.kind == group[0].kind

"""Deletes data past its retention period, oldest first, in small transactions with pauses between them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from ...clock import NEVER, Clock
from ...errors import HookledgerError, WrongState
from ...ids import FIRST_ID, first_id
from ...model import base_source
from ...states import State
from ...store.ops.audit import Audit
from ...store.ops.pruning import INTERRUPTED, Arrived, Candidate, Pruned, Round, Turn
from ...store.ops.pruning import OVER as PRUNED
from ...store.protocol import Store
from ...work.settings import worker_name
from ..context import Context
from .settings import Limits, RetentionSettings, limits

log: logging.Logger = logging.getLogger(__name__)

LEASE = 10.0
"""Seconds that the pruning lease lasts beyond the next pause; renewed at a third of it, and by each deletion."""
LOOK = 0.25
"""Seconds between two looks at a lease that another process holds."""
PATIENCE = 10
"""How many times `batch_time` a transaction may take on PostgreSQL, where no acknowledgement waits for it."""
OWN = Audit("hookledger", "retention")
"""Audit actor and reason of pruning by workers."""

OVER = frozenset({State.PROCESSED, State.SKIPPED, State.DISCARDED})
"""States that `events`, `payloads` and `history` apply to. Failed events are dead letters, with their own rule."""


WHOLLY = ("events", "failed")
"""Rules that delete all of an event except its keys."""


class Walk(Struct, frozen=True):
    """One rule with one limit, for all sources that share it."""

    rule: str
    limit: float

    @property
    def name(self) -> str:
        return f"{self.rule}:{self.limit}"  # unrounded: similar limits are different walks


class Pruner:
    """Prunes by rules. `by_source`: limits of sources with their own; `others`: of all other sources, also of removed
    ones. `holder`: our name on the lease that lets only one process prune."""

    def __init__(
        self,
        store: Store,
        settings: RetentionSettings,
        by_source: Mapping[str, Limits],
        others: Limits,
        clock: Clock,
        holder: str,
    ) -> None:
        self._store = store
        self._pruning = store.pruning
        self._settings = settings
        self._by_source = by_source
        self._others = others
        self._clock = clock
        self._holder = holder
        self._size = min(50, settings.batch)
        self._hold = settings.batch_time * (1 if self._pruning.stops_others else PATIENCE)
        self._renewed = float("-inf")

    # ── when ──

    async def run(self) -> None:
        """Prune periodically, the first time after an interval, so that short-lived workers do not prune."""
        while any(limits.any for limits in (self._others, *self._by_source.values())):
            await asyncio.sleep(self._settings.interval)
            try:
                done = await self.round()
                if done.total:
                    log.info("retention deleted %s", done.words())
            except WrongState:
                pass  # another process prunes
            except HookledgerError as error:
                log.warning("retention: %s", error)
            except Exception:  # the next round begins where this one ended
                log.exception("retention: internal error")

    async def round(
        self,
        by: Audit = OWN,
        *,
        source: str | None = None,
        from_start: bool = False,
        dry: bool = False,
        progress: Callable[[Pruned], None] = lambda _: None,
    ) -> Pruned:
        """Delete everything that is due, of one source or all. `from_start`: from the oldest on, wherever the last
        round ended; so does a dry run, which deletes nothing. Raises WrongState while another process prunes."""
        round_ = Round(self._holder, *by, LEASE + self._settings.batch_delay)
        how = INTERRUPTED
        try:
            await self._take_turn(round_)  # a cancelled claim may have succeeded
            for walk in self._walks(source):
                await self._walk(walk, source, from_start or dry or source is not None, dry, round_, progress)
            how = PRUNED
        finally:
            await self._pruning.end_turn(round_, how)
            self._renewed = float("-inf")
        return round_.done

    # ── what ──

    def _limits(self, source: str) -> Limits:
        return self._by_source.get(base_source(source), self._others)

    def _walks(self, source: str | None) -> list[Walk]:
        """Return the rules' walks; whole deletions first, so that nothing is emptied before it is deleted."""
        limits = [self._limits(source)] if source else [self._others, *self._by_source.values()]
        rules = ("events", "failed", "payloads", "history", "duplicates")
        found = {Walk(rule, _limit(one, rule)) for one in limits for rule in rules}
        due = [walk for walk in found if walk.limit < NEVER]
        return sorted(due, key=lambda walk: (rules.index(walk.rule), walk.limit))

    async def _walk(
        self,
        walk: Walk,
        source: str | None,
        from_start: bool,
        dry: bool,
        round_: Round,
        progress: Callable[[Pruned], None],
    ) -> None:
        takes = None if dry else round_
        position = (
            FIRST_ID if from_start else await self._pruning.position(walk.name, self._settings.full_scan_interval)
        )
        end = first_id(self._clock.time() - walk.limit)
        while True:
            begun, size = time.monotonic(), self._size
            if walk.rule == "duplicates":
                arrived = await self._pruning.deliveries(position, end, size)
                passed = list(dict.fromkeys(one.request_id for one in arrived))
                step = await self._drop(walk, source, arrived, takes)
            else:
                found = await self._pruning.events(position, end, size)
                passed = [one.id for one in found]
                step = await self._take(walk, source, found, takes)
            round_.done.add(step)
            progress(round_.done)
            if passed:
                position = passed[-1]
                if not from_start:
                    await self._pruning.remember(walk.name, position)
            if len(passed) < size:
                return
            await self._rest(round_, time.monotonic() - begun)

    async def _take(self, walk: Walk, source: str | None, found: Sequence[Candidate], round_: Round | None) -> Pruned:
        due = [one for one in found if self._due(walk, source, one)]
        step = Pruned(looked_at=len(found))
        if round_ is None and walk.rule not in WHOLLY:  # a round that takes them away does not come by them again
            due = [one for one in due if not self._goes(source, one)]
        if walk.rule == "payloads":
            due = [one for one in due if not one.emptied]
        if not due:
            return step
        if walk.rule in WHOLLY and (due := await self._with_stages(source, due)):
            step.events = await self._pruning.prune(due, walk.limit, round_)
        elif walk.rule == "payloads":
            step.payloads = await self._pruning.empty(due, walk.limit, round_)
        elif walk.rule == "history":
            step.history = await self._pruning.forget(due, round_)
        return step

    async def _with_stages(self, source: str | None, due: Sequence[Candidate]) -> list[Candidate]:
        """Return the events whose stages may be deleted too, each by the rule for its state, with these stages."""
        found: dict[UUID, list[Candidate]] = {one.id: [one] for one in due if one.parent is None}
        for stage in await self._pruning.stages(list(found)) if found else ():
            assert stage.parent is not None
            if stage.parent in found and self._goes(source, stage):
                found[stage.parent].append(stage)
            else:
                found.pop(stage.parent, None)
        return [one for family in found.values() for one in family]

    def _due(self, walk: Walk, source: str | None, one: Candidate) -> bool:
        if source not in (None, base_source(one.source)) or _limit(self._limits(one.source), walk.rule) != walk.limit:
            return False
        if one.open or one.finished_ago is None or one.finished_ago < walk.limit:
            return False
        return one.state is State.FAILED if walk.rule == "failed" else one.state in OVER

    def _goes(self, source: str | None, one: Candidate) -> bool:
        limits = self._limits(one.source)
        return any(self._due(Walk(rule, _limit(limits, rule)), source, one) for rule in WHOLLY)

    async def _drop(self, walk: Walk, source: str | None, arrived: Sequence[Arrived], round_: Round | None) -> Pruned:
        """Delete rows of duplicates by `history`, and quarantined deliveries of pruned events by `events`."""
        duplicates, quarantined = [], []
        for one in arrived:
            limits = self._limits(one.source)
            if one.first or source not in (None, one.source) or _limit(limits, walk.rule) != walk.limit:
                continue
            if one.duplicate and one.received_ago >= limits.history:
                duplicates.append(one)
            elif not one.duplicate and one.received_ago >= limits.events:
                quarantined.append(one)
        step = Pruned(looked_at=len(arrived))
        if duplicates or quarantined:
            step.deliveries = await self._pruning.drop(duplicates, quarantined, round_)
        return step

    # ── how fast ──

    async def _rest(self, round_: Round, took: float) -> None:
        """Adapt the batch to `batch_time`, on PostgreSQL to PATIENCE times that. Pause at least as long as the
        work took."""
        fitting = int(self._size * self._hold / max(took, 1e-4))
        self._size = max(1, min(self._settings.batch, fitting, self._size * 2))
        nap = max(self._settings.batch_delay, took)
        round_.lease = LEASE + nap
        if nap > LEASE / 3 or time.monotonic() - self._renewed > LEASE / 3:
            turn = await self._pruning.turn(round_)
            if not turn.ours:
                raise _busy(turn)
            self._renewed = time.monotonic()
        await asyncio.sleep(nap)

    async def _take_turn(self, round_: Round) -> None:
        """Take the pruning lease; a holder that renews keeps it, and the lease of one that does not expires soon."""
        seen: Turn | None = None
        while not (turn := await self._pruning.turn(round_)).ours:
            if seen is not None and seen.holder and turn != seen:
                raise _busy(turn)
            seen = turn
            await asyncio.sleep(LOOK)
        self._renewed = time.monotonic()
        if turn.interrupted:
            log.warning("the last pruning round was interrupted, as its audit entry says: %s", turn.interrupted)


def pruner(context: Context) -> Pruner:
    """Return a pruner that follows the settings."""
    settings, sources = context.retention, context.sources
    by_source = {name: limits(settings, sources.source(name).settings.retention) for name in sources.names}
    return Pruner(context.store, settings, by_source, limits(settings), context.clock, worker_name())


def _busy(turn: Turn) -> WrongState:
    return WrongState(f"{turn.holder.partition(' ')[0]} is pruning now: try again later")


def _limit(limits: Limits, rule: str) -> float:
    if rule == "duplicates":
        return min(limits.history, limits.events)
    found: float = getattr(limits, rule)
    return found

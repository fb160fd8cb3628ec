"""What a store does for the effects that are calls: one method for each transition.

Written for each database: the calls that a handler waits for, the ends of calls, and the claims of the outbox.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ..ledger import Completion, Concluded, Effect, Intent, Started
from ..states import EffectState
from .call_outcome import (
    CallEnd,
    Move,
    Settled,
    Standing,
    apply_outcome,
    calls_for_attention,
    is_known,
    settled,
    settles_unknown,
)
from .ops.resolving import Resolutions
from .rows import value_of
from .session import Row, Session, reads, writes


class Ledger(Resolutions, ABC):
    """The effects that are calls. Every write is durable when it returns, whatever becomes of the handler."""

    # ── calls ──
    @abstractmethod
    async def start(self, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        """absent → started, with its first call; for a recorded effect, return it.

        None if it is not recorded and the claim on its event is lost: then do not make the call. Raises Blocked, and
        starts nothing, if a handler that has not committed holds one of them too long.
        """

    @writes
    async def restart(self, db: Session, effect: Effect, worker: str, lease: float) -> Started | None:
        """planned, failed, unknown → started, with its next call; None if it has changed."""
        row = await self._change(db, "restart_effect", effect, worker=worker, lease=lease)
        if row is None:
            return None
        started = value_of(Started, row)
        if self._database.exclusive:  # PostgreSQL adds the call in the same statement
            call = {"identity": started.identity, "number": started.number, "generation": started.generation}
            await db("add_call", **call, worker=worker)
        return started

    @writes
    async def mark_unknown(self, db: Session, effect: Effect, due_in: float | None) -> bool:
        """started → unknown, if its lease has expired, as `work/reclaim.py` finds; returns whether it had.

        Also releases an `unknown` effect if the lease of its check has expired. `due_in`: seconds until the outbox
        retries; None: an operator decides.
        """
        return await self._change(db, "mark_effect_unknown", effect, due_in=due_in) is not None

    @abstractmethod
    async def finish(self, completions: Sequence[Completion]) -> list[Concluded]:
        """Record how each call ended, and move its effect accordingly: see `apply_outcome`.

        This, `mark_unknown` and `conclude` also retry the events in review that waited for this outcome.
        """

    @writes
    async def conclude(
        self, db: Session, effect: Effect, happened: bool, result: bytes | None, due_in: float | None
    ) -> bool:
        """unknown → done or planned, as the effect's check found. False if it has changed."""
        found = {"happened": happened, "result": result, "due_in": due_in}
        return await self._change(db, "conclude_effect", effect, **found) is not None

    @writes
    async def put_off(self, db: Session, effect: Effect, due_in: float | None, error: str | None) -> bool:
        """unknown → unknown: release its lease. The outbox retries after `due_in` seconds; None: an operator decides.
        False if it has changed.
        """
        return await self._change(db, "put_off_effect", effect, due_in=due_in, error=error) is not None

    @writes
    async def release(self, db: Session, effect: Effect, due_in: float, reason: str) -> bool:
        """started → planned, as before its claim: its call was not made and does not count.

        False if it has changed.
        """
        row = await self._change(db, "release_effect", effect, due_in=due_in, error=reason)
        if row is not None:
            await db("remove_call", identity=effect.identity, number=row["number"])
        return row is not None

    @reads
    async def get(self, db: Session, identity: bytes) -> Effect | None:
        """One effect."""
        found = await db("effects", identities=[identity])
        return value_of(Effect, found[0]) if found else None

    @writes
    async def state_of(self, db: Session, identity: bytes) -> EffectState | None:
        """Return its state, after waiting for a transaction that is changing it.

        A later change sees everything that was committed before this call.
        """
        found = await db("lock_effect", identity=identity)
        return EffectState(found[0]["state"]) if found else None

    async def _change(self, db: Session, query: str, effect: Effect, **given: Any) -> Row | None:
        """One compare-and-set, and what it means for events; None when nothing matched."""
        for row in await db(query, identity=effect.identity, fence=effect.fence, **given):
            state = EffectState(row["state"])
            news = (
                [settled(effect.identity, effect.source, effect.name, effect.key, state)] if is_known(state) else []
            )
            await self.follow(db, {row["event_id"]}, news)
            return row
        return None

    # ── the outbox ──
    @abstractmethod
    async def claim(self, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        """planned → started with its next call counted, for due effects: (name, how many, lease) of each name.

        A due `unknown` effect comes leased but still unknown: its check, or `restart`, is next. In a lane only the
        first that is neither done nor cancelled.
        """

    @abstractmethod
    async def due(self, names: Sequence[str]) -> set[str]:
        """Those of the names that have something due."""

    @reads
    async def held(self, db: Session, worker: str) -> list[Effect]:
        """Every effect that this worker has started and not finished, whether it knows or not."""
        return [value_of(Effect, row) for row in await db("held_effects", worker=worker)]

    @reads
    async def expired(self, db: Session, limit: int) -> list[Effect]:
        """Effects whose lease has expired."""
        return [value_of(Effect, row) for row in await db("expired_effects", limit=limit)]


class Finish(NamedTuple):
    """What the end of a call means for its effect and for events."""

    concluded: Concluded
    move: Move | None = None
    attention: UUID | None = None
    """The event whose attention may be another now."""
    settled: Settled | None = None


def finish_of(effect: Row, recorded: Row | None, calls: Iterable[Row], completion: Completion) -> Finish:
    """`recorded`: the call with the outcome that was recorded now; None if it had one. `calls`: all of the effect."""
    before, generation = value_of(Standing, effect), effect["generation"]
    move = None
    if recorded is not None and recorded["generation"] == generation:  # else it belongs to a generation that is over
        ends = [value_of(CallEnd, call) for call in calls if call["generation"] == generation]
        move = apply_outcome(before, ends, completion, recorded["ended_at"])
    if move is None:
        return Finish(Concluded(before.state))
    known = None
    if settles_unknown(before, move.state):
        known = settled(effect["identity"], effect["source"], effect["name"], effect["key"], move.state)
    attention = effect["event_id"] if calls_for_attention(before, move) else None
    return Finish(Concluded(move.state, move.alert), move, attention, known)


def consequences(finishes: Iterable[Finish]) -> tuple[set[UUID], list[Settled]]:
    """What `follow` needs to know of them."""
    found = list(finishes)
    attention = {finish.attention for finish in found if finish.attention is not None}
    return attention, [finish.settled for finish in found if finish.settled is not None]

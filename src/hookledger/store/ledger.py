"""What a store does for the effects that are calls: one method for each transition, written for each database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..ledger import Completion, Concluded, Effect, Intent, Started
from ..states import EffectState
from .ops.resolving import Resolutions


class Ledger(Resolutions, ABC):
    """The effects that are calls. Every write is durable when it returns, whatever becomes of the handler."""

    # ── calls ──
    @abstractmethod
    async def start(self, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        """absent → started, its first call counted; for an effect that is known already, what is known.

        None when it is not known and the claim on its event is lost: then nothing is to be called. Raises Blocked,
        and starts none of them, when a handler that has not committed yet holds one for longer than a moment.
        """
        ...

    @abstractmethod
    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None:
        """planned, failed, unknown → started, its next call counted; None when it changed meanwhile."""
        ...

    @abstractmethod
    async def mark_unknown(self, effect: Effect, due_in: float | None) -> bool:
        """started → unknown, if its lease has run out; whether it had.

        Also gives back an `unknown` effect whose lease to be checked has run out. `due_in`: when the outbox is to
        go on by itself; None: it is not.
        """
        ...

    @abstractmethod
    async def finish(self, completions: Sequence[Completion]) -> list[Concluded]:
        """Record how calls ended, always; move each effect as far as that tells. See `apply_outcome`.

        This, `doubt` and `conclude` also send round again the events that waited for a person to tell what is known
        now.
        """
        ...

    @abstractmethod
    async def conclude(self, effect: Effect, happened: bool, result: bytes | None, due_in: float | None) -> bool:
        """unknown → done or planned: what the effect's check found. False when it changed meanwhile."""
        ...

    @abstractmethod
    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool:
        """unknown, and still so: give the lease back, to be looked at again in so many seconds, or by a person only.

        False when it changed meanwhile.
        """
        ...

    @abstractmethod
    async def release(self, effect: Effect, due_in: float, reason: str) -> bool:
        """started → planned, as if it had not been claimed: its call was not made and is not counted.

        False when it changed meanwhile.
        """
        ...

    @abstractmethod
    async def get(self, identity: bytes) -> Effect | None:
        """One effect."""
        ...

    @abstractmethod
    async def state_of(self, identity: bytes) -> EffectState | None:
        """Its state, once whoever is changing it has committed.

        Whoever changes it later sees all that was committed before this was asked.
        """
        ...

    # ── the outbox ──
    @abstractmethod
    async def claim(self, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        """planned → started with its next call counted, for due effects: (name, how many, lease) of each name.

        A due `unknown` effect comes leased but still unknown: its check, or `restart`, is next. In a lane only the
        first that is neither done nor cancelled.
        """
        ...

    @abstractmethod
    async def due(self, names: Sequence[str]) -> set[str]:
        """Those of the names that have something due."""
        ...

    @abstractmethod
    async def held(self, worker: str) -> list[Effect]:
        """Every effect that this worker has started and not finished, whether it knows or not."""
        ...

    @abstractmethod
    async def expired(self, limit: int) -> list[Effect]:
        """Effects whose lease has run out."""
        ...

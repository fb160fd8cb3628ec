"""What a store must do for the effects that are calls. As in `protocol.py`: one method for each transition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from ..ledger import Completion, Concluded, Effect, Intent, Started
from ..states import EffectState
from .session import Session


class Ledger(Protocol):
    """The effects that are calls. Every write is durable when it returns, whatever becomes of the handler."""

    # ── calls ──
    async def start(self, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        """absent → started, its first call counted; for an effect that is known already, what is known.

        None when it is not known and the claim on its event is lost: then nothing is to be called. Raises Blocked,
        and starts none of them, when a handler that has not committed yet holds one for longer than a moment.
        """
        ...

    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None:
        """planned, failed, unknown → started, its next call counted; None when it changed meanwhile."""
        ...

    async def doubt(self, effect: Effect, due_in: float | None) -> bool:
        """started → unknown, if its lease has run out; whether it had.

        Also gives back an `unknown` effect whose lease to be checked has run out. `due_in`: when the outbox is to
        go on by itself; None: it is not.
        """
        ...

    async def finish(self, completions: Sequence[Completion]) -> list[Concluded]:
        """Record how calls ended, always; move each effect as far as that tells. See `weigh`.

        This, `doubt` and `conclude` also send round again the events that waited for a person to tell what is known
        now.
        """
        ...

    async def conclude(self, effect: Effect, happened: bool, result: bytes | None, due_in: float | None) -> bool:
        """unknown → done or planned: what the effect's check found. False when it changed meanwhile."""
        ...

    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool:
        """unknown, and still so: give the lease back, to be looked at again in so many seconds, or by a person only.

        False when it changed meanwhile.
        """
        ...

    async def release(self, effect: Effect, due_in: float, reason: str) -> bool:
        """started → planned, as if it had not been claimed: its call was not made and is not counted.

        False when it changed meanwhile.
        """
        ...

    async def get(self, identity: bytes) -> Effect | None:
        """One effect."""
        ...

    async def state_of(self, identity: bytes) -> EffectState | None:
        """Its state, once whoever is changing it has committed.

        Whoever changes it later sees all that was committed before this was asked.
        """
        ...

    # ── the outbox ──
    async def claim(self, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        """planned → started with its next call counted, for due effects: (name, how many, lease) of each name.

        A due `unknown` effect comes leased but still unknown: its check, or `restart`, is next. In a lane only the
        first that is neither done nor cancelled.
        """
        ...

    async def due(self, names: Sequence[str]) -> set[str]:
        """Those of the names that have something due."""
        ...

    async def held(self, worker: str) -> list[Effect]:
        """Every effect that this worker has started and not finished, whether it knows or not."""
        ...

    async def expired(self, limit: int) -> list[Effect]:
        """Effects whose lease has run out."""
        ...

    # ── operate ──
    async def resolve(self, effect: Effect, decision: str, result: bytes | None, actor: str, reason: str) -> None:
        """A person's decision, audited: `happened` → done, `did_not_happen` → planned, `cancel` → cancelled.

        The events that waited for this go on. Raises WrongState when the effect changed meanwhile.
        """
        ...

    async def try_now(self, effect: Effect, actor: str, reason: str) -> None:
        """Planned, failed or unknown: due now with a fresh budget, audited; the outbox goes on as its policy says.

        Raises WrongState for what the outbox may not go on with, and when the effect changed meanwhile.
        """
        ...


class LedgerWithin(Protocol):
    """What the ledger does within an operation's transaction."""

    async def attend(self, db: Session, events: Collection[UUID]) -> None:
        """Look whether anything of these events waits for a person."""
        ...

    async def lock_all(self, db: Session, identities: Collection[bytes]) -> dict[bytes, Effect]:
        """Effects as they are now, and stay until the end of the transaction."""
        ...

    async def resolve_all(
        self, db: Session, effects: Sequence[Effect], decision: str, actor: str, reason: str, part_of: str
    ) -> None:
        """Decide these effects, and then what that means for events; the audit names what it is `part_of`. Raises
        WrongState, after which the transaction cannot go on."""
        ...

    async def of_events(self, db: Session, event_ids: Sequence[UUID]) -> list[Effect]:
        """What some events brought about, without the calls."""
        ...

"""Operators' decisions about single effects: each is one audited transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from ...ids import new_id
from ...ledger import Effect
from ...states import EffectKind, EffectState, State
from ..call_outcome import Settled, check_try, decide, is_known, replaced, settled
from ..rows import value_of
from ..session import Operations, Session, writes
from .audit import Audit, Change, record_action
from .decisions import about, changed, move_all

NO_EVENTS: Mapping[UUID, Audit] = MappingProxyType({})


class Resolutions(Operations, ABC):
    """Part of `store.ledger`."""

    async def follow(
        self,
        db: Session,
        attention: Collection[UUID],
        news: Sequence[Settled] = (),
        waiting: Mapping[UUID, Audit] = NO_EVENTS,
        part_of: str | None = None,
    ) -> None:
        """Apply changed effects to events: set their attention, and retry those in review that waited for an outcome.

        `waiting`: other events to retry. `part_of`: the job's name in the audit log.
        """
        sent = dict(waiting)
        for event_id, known in await self._waiting(db, news) if news else ():
            sent.setdefault(event_id, Audit(known.actor, known.reason))
        if attention or sent:
            await self._attend(db, attention, sent)
        for event_id, by in sent.items():  # only an event that is still in review matches
            await move_all(db, "retry", [(event_id, State.NEEDS_REVIEW, None)], by, part_of)

    @abstractmethod
    async def _waiting(self, db: Session, news: Sequence[Settled]) -> list[tuple[UUID, Settled]]:
        """The events in review that wait for one of these."""

    @abstractmethod
    async def _attend(self, db: Session, attention: Collection[UUID], sent: Collection[UUID]) -> None:
        """Lock these events, and set the attention of the former by their effects."""

    @writes
    async def resolve(
        self, db: Session, effect: Effect, decision: str, result: bytes | None, actor: str, reason: str
    ) -> None:
        """Apply an operator's decision, audited: `happened` → done, `did_not_happen` → planned, `cancel` → cancelled.

        Retries the events that waited for it. Raises WrongState if the effect has changed.
        """
        await self.resolve_all(db, [effect], decision, actor, reason, result=result)

    async def resolve_all(
        self,
        db: Session,
        effects: Sequence[Effect],
        decision: str,
        actor: str,
        reason: str,
        part_of: str | None = None,
        *,
        result: bytes | None = None,
    ) -> None:
        """Decide these effects, and apply that to events; the audit log names what it is `part_of`. Raises
        WrongState; then the transaction must roll back."""
        by, changes, old = Audit(actor, reason), list[Change](), dict[UUID, bytes]()
        news: list[Settled] = []
        waiting: dict[UUID, Audit] = {}
        for effect in sorted(effects, key=lambda effect: effect.identity):
            target = decide(effect, decision, result)
            moves = target is not effect.state
            decided = decision if moves and target is not EffectState.CANCELLED else None
            where = {"identity": effect.identity, "fence": effect.fence, "state": effect.state}
            if not await db("resolve_effect", **where, target=target, decided=decided, result=result):
                raise changed(effect)
            subject, action = ", ".join(filter(None, (about(effect), part_of))), new_id()
            changes.append(Change(subject, (effect.state.value, target.value), effect.event_id, action))
            if (taken := replaced(effect, target, result)) is not None:
                old[action] = taken
            if moves and is_known(target):
                known = settled(effect.identity, effect.source, effect.name, effect.key, target)
                news.append(known._replace(actor=actor, reason=reason))
            if moves and effect.kind is EffectKind.CALL:
                waiting[effect.event_id] = by  # its own handler waited for this answer, whatever it said
        await record_action(db, "resolve", by, *changes)
        for action, taken in old.items():
            await db("keep_replaced", id=action, replaced=taken)
        await self.follow(db, {effect.event_id for effect in effects}, news, waiting, part_of)

    @writes
    async def try_now(self, db: Session, effect: Effect, actor: str, reason: str) -> None:
        """Make a planned, failed or unknown effect due with a fresh budget, audited; the outbox follows its policy.

        Raises WrongState if the outbox may not continue it, or if the effect has changed.
        """
        check_try(effect)
        tried = await db("try_effect", identity=effect.identity, fence=effect.fence)
        if not tried:
            now = await self.lock_all(db, [effect.identity])
            raise changed(effect, now.get(effect.identity))
        states = (effect.state.value, tried[0]["state"])
        by, event_id = Audit(actor, reason), tried[0]["event_id"]
        await record_action(db, "try", by, Change(about(effect), states, event_id))
        await self.follow(db, {event_id})

    async def lock_all(self, db: Session, identities: Collection[bytes]) -> dict[bytes, Effect]:
        """Lock effects until the end of the transaction; returns them as they are now."""
        wanted = sorted(identities)
        await db("lock_effects", identities=wanted)
        return {row["identity"]: value_of(Effect, row) for row in await db("effects", identities=wanted)}

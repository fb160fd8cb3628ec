"""Retry, replay and discard: what operators do to whole events, each one transaction, audited in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ...errors import WrongState
from ...ids import new_id, superseded_identity
from ...ledger import Effect
from ...model import ActionRow
from ...states import BY_NAME, EffectKind, EffectState, State
from ..rows import action_of, value_of
from ..session import Operations, Session, writes
from .audit import Audit, Change, record_action
from .pruning import Tombstone

MADE_WAY = "repeated on purpose: it made way for a later run"
"""Why the row of a `once` is evidence only."""
SKIPPED = 1000
"""Generations of an effect that a deliberate repetition leaves out, for each restore: their keys may be used."""
ABSENT = "absent"
"""Where the row of a `once` goes that makes way: `event.once` finds none."""

DONE = {"retry": "retried", "replay": "replayed", "discard": "discarded"}


Seen = tuple[UUID, State, int | None]
"""An event, the state and the claim number that it was seen with; None: whichever it has."""


class Decisions(Operations):
    """Part of the store itself."""

    @writes
    async def retry(
        self, db: Session, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int | None = None
    ) -> None:
        """failed, retrying, needs_review → pending, audited, with a fresh budget in the same run.

        Raises WrongState as `replay` does.
        """
        await move(db, "retry", (event_id, expected, seen), Audit(actor, reason))

    @writes
    async def discard(
        self, db: Session, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int | None = None
    ) -> None:
        """pending, retrying, failed, needs_review → discarded, audited. Its effects stay as they are.

        Raises WrongState as `replay` does.
        """
        await move(db, "discard", (event_id, expected, seen), Audit(actor, reason))

    @writes
    async def replay(
        self,
        db: Session,
        event_id: UUID,
        expected: State,
        actor: str,
        reason: str,
        *,
        seen: int | None = None,
        repeat: Sequence[Effect] = (),
    ) -> int:
        """processed, skipped, failed, discarded, needs_review → pending, audited, as a new run; returns its number.

        `seen`: the claim number that the decision was made on; an event that went round since then is refused,
        though it be in the expected state again. `repeat`: done or cancelled effects of this event that are to be
        done once more when the run asks for them, each audited by itself, in the same transaction.

        Raises WrongState, which says what the event is now and what was done to it last; then nothing is changed.
        """
        by = Audit(actor, reason)
        for effect in in_order(repeat, event_id):
            decision = new_id()
            if not await _repeat(db, effect, decision):
                found = await _found(db, event_id)
                if not stands(found, expected, seen):
                    raise conflict(event_id, "replay", expected, seen, found)
                raise changed(effect)
            states = (effect.state.value, after_repeat(effect))
            subject = about(effect)
            await record_action(db, "repeat", by, Change(subject, states, event_id, decision))
        return await move(db, "replay", (event_id, expected, seen), by)


async def move(db: Session, name: str, event: Seen, by: Audit) -> int:
    """The transition and its audit row; the run that the event is in after it. Raises WrongState."""
    runs = await move_all(db, name, [event], by)
    if event[0] not in runs:
        raise await why_not(db, name, event)
    return runs[event[0]]


async def move_all(
    db: Session, name: str, events: Sequence[Seen], by: Audit, part_of: str | None = None
) -> dict[UUID, int]:
    """The same for several events, in the order of their ids; what comes back was moved. The audit of each names what
    it is `part_of`."""
    rows = await db(name, events=list(events), reason=by.reason)
    runs: dict[UUID, int] = {row["id"]: row["run"] for row in rows}
    target = BY_NAME[name].target.value
    changes = []
    for event_id, state, _ in events:
        if event_id in runs:
            run = f"run {runs[event_id]}" if name == "replay" else None
            changes.append(Change(", ".join(filter(None, (run, part_of))) or None, (state.value, target), event_id))
    if changes:
        await record_action(db, name, by, *changes)
    return runs


async def why_not(db: Session, name: str, event: Seen) -> WrongState:
    """Why an event was not moved."""
    event_id, expected, seen = event
    return conflict(event_id, name, expected, seen, await _found(db, event_id))


async def find_last_action(db: Session, event_id: UUID) -> ActionRow | None:
    """What was done to an event last."""
    found = await db("last_action", event_id=event_id)
    return action_of(found[0]) if found else None


async def _repeat(db: Session, effect: Effect, decision: UUID) -> bool:
    where = {"identity": effect.identity, "fence": effect.fence, "event_id": effect.event_id}
    if effect.kind is EffectKind.ONCE:
        aside = superseded_identity(effect.identity, decision)
        return bool(await db("make_way", **where, aside=aside, error=MADE_WAY))
    found = await db("repeat", **where)
    if found and found[0]["generation"] > effect.generation:
        await db("skip_used", identity=effect.identity, skipped=SKIPPED)
    return bool(found)


async def _found(db: Session, event_id: UUID) -> Found | Tombstone | None:
    """The event as it is now."""
    for row in await db("event_now", event_id=event_id):
        last = await find_last_action(db, event_id)
        return Found(State(row["state"]), row["run"], row["claim"], last, row["emptied_at"] is not None)
    gone = await db("pruned_events", first=event_id, last=event_id)
    return value_of(Tombstone, gone[0]) if gone else None


class Found(NamedTuple):
    """An event as it is now, and what was done to it last."""

    state: State
    run: int
    claim: int
    last: ActionRow | None
    emptied: bool = False


def in_order(repeat: Sequence[Effect], event_id: UUID) -> list[Effect]:
    """The effects that are to be repeated, in the order in which everyone locks them. Raises WrongState for one that
    is not this event's, or of which it is not settled that it is over.
    """
    for effect in repeat:
        label = f"effect {effect.name}:{effect.key}"
        if effect.event_id != event_id:
            raise WrongState(f"{label} is another event's: {effect.event_id}")
        if effect.superseded:
            raise WrongState(f"{label} made way for a later run already")
        if effect.alert is not None:
            raise WrongState(f"{label} has an open alert: answer it with hookledger resolve first")
        if effect.state not in (EffectState.DONE, EffectState.CANCELLED):
            first = ": hookledger resolve first" if effect.state is EffectState.UNKNOWN else ""
            raise WrongState(f"{label} is {effect.state}: only what is done or cancelled can be repeated{first}")
    return sorted({effect.identity: effect for effect in repeat}.values(), key=lambda effect: effect.identity)


def after_repeat(effect: Effect) -> str:
    """Return the state that the audit log names."""
    return ABSENT if effect.kind is EffectKind.ONCE else EffectState.PLANNED.value


def conflict(
    event_id: UUID, name: str, expected: State, seen: int | None, found: Found | Tombstone | None
) -> WrongState:
    """Why a transition was not made, in words that tell the loser of a race what changed."""
    if found is None:
        return WrongState(f"there is no event {event_id}")
    if isinstance(found, Tombstone):
        return WrongState(found.words)
    if found.state is not expected or (seen is not None and found.claim != seen):
        again = " again" if found.state is expected else ""
        was = f"it is no longer {expected}" if not again else "it has run since then"
        words = f"event {event_id} is {found.state}{again} now, in run {found.run}: {was}"
        return WrongState(words + last_action(found.last))
    if found.emptied and name != "discard":
        return WrongState(f"the bytes of event {event_id} were pruned or erased: there is nothing to process")
    allowed = ", ".join(sorted(state.value for state in BY_NAME[name].sources))
    return WrongState(f"event {event_id} is {found.state}: only {allowed} can be {DONE[name]}")


def last_action(last: ActionRow | None) -> str:
    """Return who acted last, as the end of an error message."""
    if last is None:
        return ""
    return f". Last action: {last.name} by {last.actor} at {last.at:%Y-%m-%d %H:%M:%S} UTC ({last.reason})"


def stands(found: Found | Tombstone | None, expected: State, seen: int | None) -> bool:
    """Whether the event is as it was when the decision was made."""
    return isinstance(found, Found) and found.state is expected and seen in (None, found.claim)


def about(effect: Effect) -> str:
    """Return its name in the audit log."""
    return f"{effect.name}:{effect.key}"


def changed(effect: Effect, now: Effect | None = None) -> WrongState:
    """`now`: what it is after that."""
    became = f": it was {effect.state}, and is {now.state}" if now is not None else ""
    return WrongState(f"effect {about(effect)} has changed{became}")

"""Retry, replay and discard: what operators do to whole events, each one transaction, audited in it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...errors import WrongState
from ...ids import new_id, superseded_identity
from ...ledger import Effect
from ...states import BY_NAME, EffectKind, EffectState, State
from ..history import ActionRow
from ..rows import action_of, value_of
from ..session import Operations, Row, Session, writes
from .audit import Audit, Change, record_action
from .pruning import Tombstone

SUPERSEDED = "repeated on purpose: it made way for a later run"
"""Why the row of a `once` is evidence only."""
SKIPPED = 1000
"""Generations of an effect that a deliberate repetition leaves out, for each restore: their keys may be used."""
ABSENT = "absent"
"""Where the row of a `once` goes that makes way: `event.once` finds none."""

DONE = {
    **{"retry": "retried", "replay": "replayed", "discard": "discarded"},
    **{"approve": "approved", "reject": "rejected", "settle": "settled"},
}


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

        `seen`: the claim number that the decision was made on; an event that has run since then is a conflict, even
        in the expected state. `repeat`: done or cancelled effects of this event that the new run performs again; each
        has its own audit log entry, in the same transaction.

        Raises WrongState, which says what the event is now and what was done to it last; then nothing is changed.
        """
        event, by = (event_id, expected, seen), Audit(actor, reason)
        for effect in in_order(repeat, event_id):
            decision = new_id()
            if not await _repeat(db, effect, decision):
                now = await db("event_now", event_id=event_id)
                raise changed(effect) if now and _stands(now[0], event) else await why_not(db, "replay", event)
            after = ABSENT if effect.kind is EffectKind.ONCE else EffectState.PLANNED.value
            change = Change(about(effect), (effect.state.value, after), event_id, decision)
            await record_action(db, "repeat", by, change)
        return await move(db, "replay", event, by)


async def move(db: Session, name: str, event: Seen, by: Audit) -> int:
    """Make the transition and its audit log entry; returns the event's run. Raises WrongState."""
    runs = await move_all(db, name, [event], by)
    if event[0] not in runs:
        raise await why_not(db, name, event)
    return runs[event[0]]


async def move_all(
    db: Session, name: str, events: Sequence[Seen], by: Audit, part_of: str | None = None
) -> dict[UUID, int]:
    """Move several events, in the order of their ids; returns the run of each that was moved. The audit log entry of
    each names what it is `part_of`."""
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
    """Why an event was not moved, in words that tell the loser of a race what changed."""
    event_id, expected, _ = event
    for now in await db("event_now", event_id=event_id):
        if not _stands(now, event):
            again = " again" if now["state"] == expected else ""
            was = "it has run since then" if again else f"it is no longer {expected}"
            words = f"event {event_id} is {now['state']}{again} now, in run {now['run']}: {was}"
            return WrongState(words + last_action(await find_last_action(db, event_id)))
        if now["emptied_at"] is not None and name != "discard":
            return WrongState(f"the bytes of event {event_id} were pruned or erased: there is nothing to process")
        allowed = ", ".join(sorted(state.value for state in BY_NAME[name].sources))
        return WrongState(f"event {event_id} is {now['state']}: only {allowed} can be {DONE[name]}")
    for row in await db("pruned_events", first=event_id, last=event_id):
        return WrongState(value_of(Tombstone, row).words)
    return WrongState(f"there is no event {event_id}")


def _stands(now: Row, event: Seen) -> bool:
    """Whether the event is as it was when the decision was made."""
    _, expected, seen = event
    return now["state"] == expected and seen in (None, now["claim"])


async def find_last_action(db: Session, event_id: UUID) -> ActionRow | None:
    """What was done to an event last."""
    found = await db("last_action", event_id=event_id)
    return action_of(found[0]) if found else None


async def _repeat(db: Session, effect: Effect, decision: UUID) -> bool:
    where = {"identity": effect.identity, "fence": effect.fence, "event_id": effect.event_id}
    if effect.kind is EffectKind.ONCE:
        aside = superseded_identity(effect.identity, decision)
        return bool(await db("supersede_once", **where, aside=aside, error=SUPERSEDED))
    found = await db("repeat", **where)
    if found and found[0]["generation"] > effect.generation:
        await db("skip_generations", identity=effect.identity, skipped=SKIPPED)
    return bool(found)


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


def last_action(last: ActionRow | None) -> str:
    """Return who acted last, as the end of an error message."""
    if last is None:
        return ""
    return f". Last action: {last.name} by {last.actor} at {last.at:%Y-%m-%d %H:%M:%S} UTC ({last.reason})"


def about(effect: Effect) -> str:
    """Return its name in the audit log."""
    return f"{effect.name}:{effect.key}"


def changed(effect: Effect, now: Effect | None = None) -> WrongState:
    """`now`: what it is after that."""
    became = f": it was {effect.state}, and is {now.state}" if now is not None else ""
    return WrongState(f"effect {about(effect)} has changed{became}")

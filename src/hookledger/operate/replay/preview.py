"""Previews a replay from the ledger and the handler's declarations: what it would do, and whether it is safe.

Pure. It assumes that the run requests the same effects with the same arguments as before; each is skipped, performed
or left by its state and policy. Effects that no run has requested yet cannot be predicted.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from ...effects.known import recorded
from ...effects.model import Effect as Declared
from ...errors import BadResult
from ...ledger import Effect, GuardHistory, GuardRequest, answered, changed_kind, tie_of
from ...model import Kind, base_source
from ...states import BY_NAME, EffectKind, EffectState, State
from ...store.history import EventRow, Evidence, History
from ...work.route import Handler
from ..context import Application
from ..workers import handles_type
from .by_request import is_by_request, kept_answer, of_route

CANNOT_FORESEE = (
    "Effects that no run of this event has requested yet, and those that another event requested first, cannot be "
    "predicted."
)

SHOWN = 500
"""Maximum number of effects that a history holds."""


class InReplay(StrEnum):
    """What a replay does with one effect."""

    SKIPPED = "skipped"
    """It is over: the run skips it."""

    HAPPENS = "happens"
    """The run performs it, if it requests it as before."""

    REPEATED = "repeated"
    """It is done, and the run performs it again, as you decided."""

    CHECKED = "checked"
    """Its check runs first, and decides."""

    OUTBOX = "outbox"
    """The outbox continues with it, replay or not."""

    STAYS = "stays"
    """It did not happen, and a replay does not perform it."""

    UNDECIDED = "undecided"
    """An operator must decide its outcome before a replay."""


class Verdict(StrEnum):
    """Whether a replay is safe."""

    SAFE = "safe"
    """All known effects are done and skipped, and the handler declares that its other writes may be repeated."""

    WILL_DO = "will do"
    """The listed actions happen."""

    NEEDS_A_DECISION = "needs a decision"
    """Not allowed until you resolve the listed items."""


class EffectPreview(Struct, frozen=True):
    """One effect: its state, and what a replay does with it."""

    name: str
    key: str
    kind: EffectKind
    state: EffectState
    in_replay: InReplay
    why: str
    done_at: datetime | None
    claim: int
    """Claim of the attempt that first requested it,"""
    run: int | None
    """and the run of that attempt."""
    generation: int
    idempotency_key: str | None
    identity: str
    """Hexadecimal."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"


class GuardPreview(Struct, frozen=True):
    """A guard that the event asked before: what it would answer now, if the run asks as before."""

    name: str
    key: str
    version: str
    """As the event's last attempt gave it."""
    stale: bool
    """Whether a newer version is applied; that is no obstacle."""
    words: str

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"


class Preview(Struct, frozen=True):
    """What a replay of an event would do."""

    event_id: UUID
    state: State
    run: int
    """The run that a replay would start."""
    verdict: Verdict
    items: tuple[str, ...]
    """What a replay would do, or what must be decided first; empty if it is safe."""
    reasons: tuple[str, ...]
    handler: str | None
    converges: bool
    effects: tuple[EffectPreview, ...]
    guards: tuple[GuardPreview, ...]

    @property
    def words(self) -> str:
        """Return the verdict and its items in one line."""
        return f"{self.verdict}: {'; '.join(self.items)}" if self.items else str(self.verdict)

    @property
    def fingerprint(self) -> str:
        """Return a digest that two previews share exactly if agreeing to one means agreeing to the other."""
        in_replay = [(effect.identity, effect.in_replay, effect.generation) for effect in self.effects]
        stale = [guard.label for guard in self.guards if guard.stale]
        return sha256(msgspec.json.encode([self.verdict, self.items, in_replay, stale])).hexdigest()[:32]


def preview_replay(
    history: History | Evidence, application: Application, repeat: Collection[bytes] = (), *, approved: bool = False
) -> Preview:
    """Return what a replay would do now, or with `approved` the run of an approval. `repeat`: identities of finished
    effects to perform again."""
    event = history.event
    runs = {attempt.claim: attempt.run for attempt in history.attempts}
    known = _present([told.effect for told in history.effects])
    effects = tuple(_forecast(effect, application, effect.identity in repeat, runs) for effect in known)
    handler = application.routes.find(Kind(event.source, event.type, event.version))
    undecided = [*obstacles(history), *(f"{e.label} {e.why}" for e in effects if e.in_replay is InReplay.UNDECIDED)]
    active = [f"{e.label} {e.why}" for e in effects if e.in_replay in _ACTIVE]
    writes, reasons = _writes(history, application, handler)
    if len(history.effects) >= SHOWN:
        writes.append(f"effects beyond the first {SHOWN} of the event")
    if undecided:
        verdict, named = Verdict.NEEDS_A_DECISION, undecided
    elif active or writes:
        verdict, named = Verdict.WILL_DO, [*active, *writes]
    else:
        verdict, named = Verdict.SAFE, []
        reasons.append("All recorded effects are over, and are skipped.")
    reasons += [f"{e.label} {e.why}." for e in effects if e.in_replay is InReplay.STAYS]
    guards = _guards(history, approved) if isinstance(history, History) else ()
    reasons += [f"{guard.words}{_whole_event(event, handler, approved)}." for guard in guards if guard.stale]
    reasons += [*kept_answer(history, handler), *_order(history), *_stages(history, handler)]
    return Preview(
        event.id,
        event.state,
        event.run + 1,
        verdict,
        tuple(named),
        (*reasons, CANNOT_FORESEE),
        handler.name if handler else None,
        handler is not None and handler.converges,
        effects,
        guards,
    )


_ACTIVE = {InReplay.HAPPENS, InReplay.REPEATED, InReplay.CHECKED, InReplay.OUTBOX}


def _present(effects: list[Effect]) -> list[Effect]:
    """Return the effects that a run can meet; a superseded `once` only until it was done again."""
    present = [effect for effect in effects if not effect.superseded]
    again = {(effect.name, effect.key) for effect in present if effect.kind is EffectKind.ONCE}
    made_way = {(effect.name, effect.key): effect for effect in effects if effect.superseded}
    return [*present, *(effect for label, effect in made_way.items() if label not in again)]


def obstacles(history: History | Evidence) -> list[str]:
    """Return why the event cannot be replayed at all."""
    event, allowed = history.event, BY_NAME["replay"].sources
    if event.state not in allowed:
        return [f"the event is {event.state}: only {', '.join(sorted(allowed))} can be replayed"]
    if not history.kept or event.emptied_at is not None:
        when = f" since {event.emptied_at:%Y-%m-%d}" if event.emptied_at else ""
        return [f"the event's body is not kept{when}: there is nothing to process"]
    return []


def _writes(
    history: History | Evidence, application: Application, handler: Handler | None
) -> tuple[list[str], list[str]]:
    """Return what happens outside the ledger, and why that is assumed."""
    event = history.event
    if is_by_request(history, handler) and (handler or not application.loaded):
        return of_route(history, handler)
    again = "again" if event.first_processed_at else "for the first time: no run was processed yet"
    if handler is None:
        if application.loaded:
            kind = Kind(event.source, event.type, event.version)
            unhandled = f"nothing here: no handler of this application handles {kind.label} of {event.source!r}"
            if handles_type(application.routes.handles(), kind):
                return [unhandled], ["It waits for a handler of its version."]
            return [unhandled], ["Unless another worker handles it, the event waits, and is finally skipped."]
        words = "The application is not loaded (--app): what it declares about handler and effects is not known here."
        return [f"whatever its handler does outside the ledger, {again}"], [words]
    if not handler.converges:
        words = (
            f'{handler.name} does not declare replay="converges": its writes outside '
            "event.once, and anything else it does, may not be safe to repeat."
        )
        return [f"what {handler.name} writes outside event.once, {again}"], [words]
    reasons = [f'{handler.name} declares replay="converges": what it writes outside event.once may be repeated.']
    if event.first_processed_at is None:
        return ["what no run has reached yet: the event was never processed"], reasons
    return [], reasons


def _guards(history: History, approved: bool) -> tuple[GuardPreview, ...]:
    """Compare the last answer of each guard with the guard as it is now."""
    last = {known.answer.identity: known for known in history.guards}
    return tuple(_guard(history.event, known, approved) for known in last.values())


def _guard(event: EventRow, known: GuardHistory, approved: bool) -> GuardPreview:
    shared = {name: getattr(known.answer, name) for name in known.answer.__struct_fields__}
    shared |= {
        "source": base_source(event.source),
        "event_key": event.key,
        "received_at": event.received_at,
        "approved": False,
    }
    request = GuardRequest(**{name: shared[name] for name in GuardRequest.__struct_fields__})
    guard, about = known.guard, (request.name, request.key, request.version)
    other_kind = guard is not None and guard.kind != request.kind
    if guard is not None and other_kind and not approved:
        words = changed_kind(request, guard.kind, guard.version, guard.event_id)
        return GuardPreview(*about, False, f"{words}; the event would need review{_unless_approved(event)}")
    if guard is None or other_kind or guard.event_id == event.id or guard.order < request.order:
        return GuardPreview(*about, False, f"version {request.version} would be applied to {known.answer.label}")
    seen = guard.version, guard.event_id, guard.event_key
    return GuardPreview(*about, True, answered(request, False, tie_of(request, guard), *seen).words)


def _whole_event(event: EventRow, handler: Handler | None, approved: bool) -> str:
    stale = handler.stale if handler else None
    if stale is None:
        return ""
    if approved:
        return f': the approved run continues all the same, though its handler declares stale="{stale}"'
    would = "be skipped" if stale == "skip" else "need review"
    return f': the event would {would}, because its handler declares stale="{stale}"{_unless_approved(event)}'


def _unless_approved(event: EventRow) -> str:
    """A guard does not end an approved run."""
    return ", unless it is approved" if event.state is State.NEEDS_REVIEW else ""


def _order(history: History | Evidence) -> list[str]:
    """Return when an ordered event would run."""
    if history.event.order_at is None:
        return []
    found = [f"It runs when it is its turn among the events of {history.event.entity}."]
    if isinstance(history, History) and (held_by := history.held_by) is not None:
        found.append(f"It would be held: {held_by.key} of the same entity is {held_by.state}; decide about it first.")
    return found


def _stages(history: History | Evidence, handler: Handler | None) -> list[str]:
    """Return what happens to the stages of the event."""
    event, there = history.event, history.stages if isinstance(history, History) else ()
    if event.first_processed_at is None:
        stages = ", ".join(handler.stages if handler else ())
        return [f"Its stages begin when it is processed: {stages}."] if stages else []
    if there:
        stages = ", ".join(str(row.stage) for row in there)
        return [f"Its stages are not replayed with it: {stages}. Replay a stage with --stage."]
    return ["Stages are not replayed with it."] if handler and handler.stages else []


def _forecast(effect: Effect, application: Application, repeat: bool, runs: dict[int, int]) -> EffectPreview:
    in_replay, why = _in_replay(effect, application.effects.find(effect.name), repeat)
    return EffectPreview(
        effect.name,
        effect.key,
        effect.kind,
        effect.state,
        in_replay,
        why,
        effect.finished_at if effect.state is EffectState.DONE else None,
        effect.claim,
        runs.get(effect.claim),
        effect.generation,
        effect.idempotency_key,
        effect.identity.hex(),
    )


def _in_replay(effect: Effect, declared: Declared[Any, Any] | None, repeat: bool) -> tuple[InReplay, str]:
    if effect.superseded:
        return InReplay.HAPPENS, "once more, as decided for an earlier run, unless another event did it since"
    if effect.alert is not None:
        return InReplay.UNDECIDED, "has an alert: read it, then hookledger resolve"
    if repeat:
        if declared is not None and declared.policy.ask_first:
            return InReplay.CHECKED, "is requested again; its check decides whether to perform it"
        key = "" if effect.kind is EffectKind.ONCE else ", under a new idempotency key"
        return InReplay.REPEATED, f"once more, as decided{key if effect.state is EffectState.DONE else ''}"
    match effect.state:
        case EffectState.DONE if effect.kind is EffectKind.CALL and not _readable(effect, declared):
            return (
                InReplay.UNDECIDED,
                "is done, but its handler gets no result: hookledger resolve --happened --result",
            )
        case EffectState.DONE:
            return InReplay.SKIPPED, "is done"
        case EffectState.CANCELLED:
            return InReplay.SKIPPED, "was cancelled by an operator"
    return _of_the_outbox(effect) if effect.kind is EffectKind.LATER else _of_the_run(effect, declared)


def _readable(effect: Effect, declared: Declared[Any, Any] | None) -> bool:
    """Whether a handler that calls it gets the recorded result."""
    try:
        if declared is not None:
            recorded(declared, effect)
    except BadResult:
        return False
    return True


def _of_the_outbox(effect: Effect) -> tuple[InReplay, str]:
    """Preview an outbox effect: requesting it again changes nothing."""
    match effect.state:
        case EffectState.FAILED:
            return InReplay.STAYS, "failed for good, and a replay does not send it again: hookledger resolve does"
        case EffectState.UNKNOWN if effect.due_at is None and effect.lease_left <= 0:
            return InReplay.UNDECIDED, "may have happened: find out, then hookledger resolve"
        case EffectState.UNKNOWN:
            return InReplay.OUTBOX, "may have happened: the outbox follows its policy, replay or not"
    return InReplay.OUTBOX, "by the outbox, replay or not"


def _of_the_run(effect: Effect, declared: Declared[Any, Any] | None) -> tuple[InReplay, str]:
    """Preview a call of the handler, or an effect to be repeated."""
    if effect.state is EffectState.STARTED and not effect.expired:
        return InReplay.UNDECIDED, "is being called now: try again when the call has ended"
    if effect.state in (EffectState.STARTED, EffectState.UNKNOWN):
        if declared is None:
            return InReplay.UNDECIDED, "may have happened, and its policy is not known here: hookledger resolve"
        if declared.checker is not None:
            return InReplay.CHECKED, "may have happened: its check runs first, and decides"
        if declared.policy.may_repeat(effect.unknown_for):
            return InReplay.HAPPENS, f"may have happened, and is called again, as its policy ({effect.repeat}) allows"
        return InReplay.UNDECIDED, "may have happened, and must not be repeated: find out, then hookledger resolve"
    if declared is not None and declared.policy.ask_first:
        return InReplay.CHECKED, "did not happen: its check runs first, and decides"
    return InReplay.HAPPENS, "did not happen, and is called"

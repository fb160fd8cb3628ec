"""What a replay would do, and whether it is safe, told from the ledger and from what the handler declares.

Pure. It foresees what the ledger knows: the run asks for the same effects with the same arguments as before, and each
is skipped, done or left as its state and its policy say. It cannot foresee what no run has asked for yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

import msgspec
from msgspec import Struct

from ..identities import operation_key
from ..ledger import Effect
from ..model import Evidence, History
from ..states import BY_NAME, EffectKind, EffectState, State

CANNOT_FORESEE = (
    "Effects that no run of this event has asked for yet, and those that another event asked for first, cannot be "
    "foreseen."
)

SHOWN = 500
"""How many effects of an event a store tells of."""


class HandlerFacts(Struct, frozen=True):
    """The handler that a run would use, as far as a preview asks."""

    name: str
    converges: bool
    """Its author's word that what it writes outside `event.once` may be written again."""


class EffectFacts(Struct, frozen=True):
    """A declared effect, as far as a preview asks."""

    may_repeat: Callable[[float | None], bool]
    """Whether an unknown outcome may be followed by another call, so many seconds after the first."""
    checked: bool
    """Whether the remote can be asked."""
    asks_first: bool
    """Whether it is asked before each call."""
    readable: Callable[[Effect], bool]
    """Whether a handler that calls it gets the result that was recorded."""
    keep_result: Callable[[object], bytes] = msgspec.json.encode
    """A result as the ledger keeps it; BadResult where a handler could not read it."""
    form: str = "null"
    """An example of the result, as JSON."""
    needs_result: bool = False
    """Whether a handler that calls it cannot do without a result."""


class Declared(Protocol):
    """What the application says. The rooms never import one another: inbox.py hands it in."""

    @property
    def loaded(self) -> bool:
        """Whether there is an application at all."""
        ...

    @property
    def advice(self) -> Sequence[str]:
        """What may surprise about its connections: what is so, a colon, what to do."""
        ...

    def handler(self, source: str, kind: str) -> HandlerFacts | None: ...

    def effect(self, name: str) -> EffectFacts | None: ...


class NothingDeclared:
    """No application."""

    loaded = False
    advice = ()

    def handler(self, source: str, kind: str) -> HandlerFacts | None:
        del source, kind
        return None

    def effect(self, name: str) -> EffectFacts | None:
        del name
        return None


class Fate(StrEnum):
    """What a replay means for one effect."""

    SKIPPED = "skipped"
    """It is over; the run passes it by."""

    HAPPENS = "happens"
    """The run does it, if it asks for it as before."""

    REPEATED = "repeated"
    """It is done, and the run does it once more, because somebody decided so."""

    CHECKED = "checked"
    """Its check is asked first, and decides."""

    OUTBOX = "outbox"
    """The outbox goes on with it, replay or not."""

    STAYS = "stays"
    """It did not happen, and a replay does not change that."""

    UNDECIDED = "undecided"
    """A person must decide about it before a replay."""


class Verdict(StrEnum):
    """Whether a replay is safe."""

    SAFE = "safe"
    """Everything known is done and is skipped, and the handler's author says that the rest may be repeated."""

    WILL_DO = "will do"
    """Something happens; it is named."""

    NEEDS_A_DECISION = "needs a decision"
    """Refused until a person has decided what is named."""


class Forecast(Struct, frozen=True):
    """One effect: where it stands, and what a replay means for it."""

    name: str
    key: str
    kind: EffectKind
    state: EffectState
    fate: Fate
    why: str
    done_at: datetime | None
    claim: int
    """Of the attempt that asked for it first,"""
    run: int | None
    """and the run of that."""
    generation: int
    idempotency_key: str | None
    identity: str
    """In hexadecimal digits."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"


class Preview(Struct, frozen=True):
    """What a replay of an event would do."""

    event_id: UUID
    state: State
    run: int
    """That the replay would begin."""
    verdict: Verdict
    deeds: tuple[str, ...]
    """What will be done, or what is to be decided; nothing if it is safe."""
    reasons: tuple[str, ...]
    handler: str | None
    converges: bool
    effects: tuple[Forecast, ...]

    @property
    def words(self) -> str:
        """The verdict in one line."""
        return f"{self.verdict}: {'; '.join(self.deeds)}" if self.deeds else str(self.verdict)

    def says_the_same(self, other: Preview) -> bool:
        """Whether whoever agreed to the one has agreed to the other."""
        fates = [(effect.identity, effect.fate, effect.generation) for effect in self.effects]
        others = [(effect.identity, effect.fate, effect.generation) for effect in other.effects]
        return (self.verdict, self.deeds, fates) == (other.verdict, other.deeds, others)


def foresee(history: History | Evidence, declared: Declared, repeat: Collection[bytes] = ()) -> Preview:
    """What a replay would do now. `repeat`: the identities of effects that are to be done once more."""
    event = history.event
    runs = {attempt.claim: attempt.run for attempt in history.attempts}
    known = _present([told.effect for told in history.effects])
    effects = tuple(_forecast(effect, declared, effect.identity in repeat, runs) for effect in known)
    handler = declared.handler(event.source, event.type)
    undecided = [*_refusals(history), *(f"{e.label} {e.why}" for e in effects if e.fate is Fate.UNDECIDED)]
    deeds = [f"{e.label} {e.why}" for e in effects if e.fate in _DEEDS]
    writes, reasons = _writes(history, declared, handler)
    if len(history.effects) >= SHOWN:
        writes.append(f"whatever stands beyond the first {SHOWN} effects of the event")
    if undecided:
        verdict, named = Verdict.NEEDS_A_DECISION, undecided
    elif deeds or writes:
        verdict, named = Verdict.WILL_DO, [*deeds, *writes]
    else:
        verdict, named = Verdict.SAFE, []
        reasons.append("Everything that the ledger knows of is over, and is skipped.")
    reasons += [f"{e.label} {e.why}." for e in effects if e.fate is Fate.STAYS]
    return Preview(
        event.id,
        event.state,
        event.run + 1,
        verdict,
        tuple(named),
        (*reasons, CANNOT_FORESEE),
        handler.name if handler else None,
        bool(handler and handler.converges),
        effects,
    )


_DEEDS = {Fate.HAPPENS, Fate.REPEATED, Fate.CHECKED, Fate.OUTBOX}


def _present(effects: list[Effect]) -> list[Effect]:
    """Those that a run can meet. A `once` that made way is one of them until it was done again."""
    present = [effect for effect in effects if not effect.superseded]
    again = {(effect.name, effect.key) for effect in present if effect.kind is EffectKind.ONCE}
    made_way = {(effect.name, effect.key): effect for effect in effects if effect.superseded}
    return [*present, *(effect for label, effect in made_way.items() if label not in again)]


def _refusals(history: History | Evidence) -> list[str]:
    """Why the event cannot be replayed at all."""
    event, allowed = history.event, BY_NAME["replay"].sources
    if event.state not in allowed:
        return [f"the event is {event.state}: only {', '.join(sorted(allowed))} can be replayed"]
    if not history.kept or event.emptied_at is not None:
        when = f" since {event.emptied_at:%Y-%m-%d}" if event.emptied_at else ""
        return [f"the bytes of the event are not kept any more{when}: there is nothing to process"]
    return []


def _writes(
    history: History | Evidence, declared: Declared, handler: HandlerFacts | None
) -> tuple[list[str], list[str]]:
    """What is done outside the ledger, and the reasons to think so."""
    event = history.event
    again = "again" if event.first_processed_at else "for the first time: no run was processed yet"
    if handler is None:
        if declared.loaded:
            nobody = f"nothing here: no handler of this application takes {event.type!r} of {event.source!r}"
            return [nobody], ["Unless another worker handles it, the event waits, and is skipped in the end."]
        words = "The application is not loaded (--app): what it declares about handler and effects is not known here."
        return [f"whatever its handler does outside the ledger, {again}"], [words]
    if not handler.converges:
        words = (
            f'{handler.name} does not declare replay="converges": nobody has said that what it writes by event.tx '
            "outside event.once, or does elsewhere, may be repeated."
        )
        return [f"what {handler.name} writes outside event.once, {again}"], [words]
    reasons = [f'{handler.name} declares replay="converges": what it writes outside event.once may be repeated.']
    if event.first_processed_at is None:
        return ["what no run has reached yet: the event was never processed"], reasons
    return [], reasons


def _forecast(effect: Effect, declared: Declared, repeat: bool, runs: dict[int, int]) -> Forecast:
    fate, why = _fate(effect, declared, repeat)
    is_call = effect.kind is not EffectKind.ONCE
    return Forecast(
        effect.name,
        effect.key,
        effect.kind,
        effect.state,
        fate,
        why,
        effect.finished_at if effect.state is EffectState.DONE else None,
        effect.claim,
        runs.get(effect.claim),
        effect.generation,
        operation_key(effect.identity, effect.generation) if is_call else None,
        effect.identity.hex(),
    )


def _fate(effect: Effect, declared: Declared, repeat: bool) -> tuple[Fate, str]:
    facts = declared.effect(effect.name)
    if effect.superseded:
        return Fate.HAPPENS, "once more, as decided for an earlier run, unless another event did it since"
    if effect.alert is not None:
        return Fate.UNDECIDED, "has an alert: read it, then hookledger resolve"
    if repeat:
        if facts is not None and facts.asks_first:
            return Fate.CHECKED, "is asked for once more; its check says whether there is anything to do"
        key = "" if effect.kind is EffectKind.ONCE else ", under a new idempotency key"
        return Fate.REPEATED, f"once more, as decided{key if effect.state is EffectState.DONE else ''}"
    match effect.state:
        case EffectState.DONE if effect.kind is EffectKind.CALL and facts is not None and not facts.readable(effect):
            return Fate.UNDECIDED, "is done, but its handler gets no result: hookledger resolve --happened --result"
        case EffectState.DONE:
            return Fate.SKIPPED, "is done"
        case EffectState.CANCELLED:
            return Fate.SKIPPED, "was cancelled by an operator"
    return _of_the_outbox(effect) if effect.kind is EffectKind.LATER else _of_the_run(effect, facts)


def _of_the_outbox(effect: Effect) -> tuple[Fate, str]:
    """What a handler left to the outbox is the outbox's: asking for it again changes nothing."""
    match effect.state:
        case EffectState.FAILED:
            return Fate.STAYS, "failed for good, and a replay does not send it again: hookledger resolve does"
        case EffectState.UNKNOWN if effect.due_at is None and effect.lease_left <= 0:
            return Fate.UNDECIDED, "may have happened: find out, then hookledger resolve"
        case EffectState.UNKNOWN:
            return Fate.OUTBOX, "may have happened: the outbox follows its policy, replay or not"
    return Fate.OUTBOX, "by the outbox, replay or not"


def _of_the_run(effect: Effect, facts: EffectFacts | None) -> tuple[Fate, str]:
    """What a handler called, or somebody decided to repeat."""
    if effect.state is EffectState.STARTED and not effect.expired:
        return Fate.UNDECIDED, "is being called at this moment: look again when that has ended"
    if effect.state in (EffectState.STARTED, EffectState.UNKNOWN):
        if facts is None:
            return Fate.UNDECIDED, "may have happened, and its policy is not known here: hookledger resolve"
        if facts.checked:
            return Fate.CHECKED, "may have happened: its check is asked, and decides"
        if facts.may_repeat(effect.doubtful_for):
            return Fate.HAPPENS, f"may have happened, and is called again, as its policy ({effect.repeat}) allows"
        return Fate.UNDECIDED, "may have happened, and must not be repeated: find out, then hookledger resolve"
    if facts is not None and facts.asks_first:
        return Fate.CHECKED, "did not happen: its check is asked, and decides"
    return Fate.HAPPENS, "did not happen, and is called"

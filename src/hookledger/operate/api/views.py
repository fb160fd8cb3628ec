"""What the API returns: an event in full, its effects, a preview. Only operators get data that may hold a payload."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ...ledger import Call, Effect, EffectHistory, GuardHistory, Tie
from ...model import unpack_headers
from ...states import EffectKind, EffectState, Repeat, State
from ...store.causes import masked, masked_cause
from ...store.history import ActionRow, AnswerRow, AttemptRow, DeliveryRow, EventRow, History, RequestRow, Turn
from ...store.ops.rejections import RejectionRow
from ..replay.preview import Preview


class Header(Struct, frozen=True):
    name: str
    value: str


class RequestFacts(Struct, frozen=True):
    """The request that brought an event, without its content."""

    id: UUID
    received_at: datetime
    size: int
    scheme: str
    secret: str
    """A short fingerprint of the secret that matched; never the secret."""
    signed_at: datetime | None


class RequestContent(Struct, frozen=True):
    """A kept request, without the secrets that the provider's contract names."""

    id: UUID
    source: str
    received_at: datetime
    remote: str | None
    scheme: str
    secret: str
    """A short fingerprint of the secret that matched; never the secret."""
    signed_at: datetime | None
    query: str
    headers: list[Header]
    body: bytes
    """The exact body, in base64."""


class EffectView(Struct, frozen=True):
    """An effect with its calls."""

    name: str
    key: str
    kind: EffectKind
    state: EffectState
    idempotency_key: str | None
    """The idempotency key that the downstream gets."""
    generation: int
    fence: int
    number: int
    tries: int
    source: str
    event_id: UUID
    claim: int
    """Claim of the attempt that requested it."""
    repeat: Repeat | None
    downstream: str
    lane: str | None
    due_at: datetime | None
    leased_until: datetime | None
    worker: str | None
    created_at: datetime
    finished_at: datetime | None
    decided: str | None
    alert: str | None
    superseded: bool
    error: str | None
    """Only for operators, as arguments and result."""
    arguments: Any
    result: Any
    calls: tuple[Call, ...]


class GuardView(Struct, frozen=True):
    """What a guard answered one attempt of the event."""

    name: str
    key: str
    claim: int
    """Claim of the attempt that asked."""
    at: datetime | None
    version: str
    applied: bool
    """Whether the event was allowed to write; false: stale."""
    tie: Tie | None
    """What decided between two events with this version: the rank of their types, their arrival, or their ids."""
    other_version: str | None
    """What the guard had before, by another event."""
    other_event_id: UUID | None
    other_key: str | None
    words: str
    now_version: str | None
    """What the guard has now,"""
    now_event_id: UUID | None
    """and of which event."""


class AnswerView(Struct, frozen=True):
    """What the event's handler answered. Headers and body only for operators."""

    run: int
    status: int
    headers: list[Header] | None
    body: bytes | None
    """The exact body, in base64."""
    size: int
    answered_at: datetime
    expires_at: datetime
    expired: bool
    """Whether redeliveries no longer get it."""


class DecidedEffect(Struct, frozen=True):
    """An effect and its event, after a decision about the effect."""

    effect: EffectView
    event: EventRow


class PreviewView(Preview, frozen=True):
    """What a replay would do now."""

    claim: int
    words: str
    fingerprint: str
    """Give it as `expected.preview`: 409 if the replay would then do something else."""


class EventView(Struct, frozen=True):
    """Everything known about one event."""

    event: EventRow
    request: RequestFacts | None
    deliveries: tuple[DeliveryRow, ...]
    attempts: tuple[AttemptRow, ...]
    effects: tuple[EffectView, ...]
    guards: tuple[GuardView, ...]
    """The answers of guards to attempts that were committed, oldest first."""
    actions: tuple[ActionRow, ...]
    replay: PreviewView
    body_of: UUID | None
    """The earlier event with the same body: its type allows shared bodies, or an operator accepted it from
    quarantine."""
    turn: Turn | None
    """Why it is not its turn: another event of its entity has it, or holds it."""
    stages: tuple[EventRow, ...]
    """Its stages, by name. Each is an event in calls like this one, by its own id."""
    answer: AnswerView | None
    """What its handler answered, while that is kept."""
    complete: bool
    """False for a viewer: arguments, results and errors are left out."""


def event_view(history: History, preview: Preview, *, complete: bool) -> EventView:
    shown = history if complete else without_errors(history)
    return EventView(
        event=row_view(history.event, complete=complete),
        request=_facts(history.request) if history.request else None,
        deliveries=history.deliveries,
        attempts=shown.attempts,
        effects=tuple(_effect_view(known, complete=complete) for known in shown.effects),
        guards=tuple(map(_guard_view, history.guards)),
        actions=shown.actions,
        replay=preview_view(history.event, preview),
        body_of=history.body_of,
        turn=history.turn,
        stages=tuple(row_view(row, complete=complete) for row in history.stages),
        answer=_answer_view(history.answer, complete=complete) if history.answer else None,
        complete=complete,
    )


def _answer_view(answer: AnswerRow, *, complete: bool) -> AnswerView:
    return AnswerView(
        run=answer.run,
        status=answer.status,
        headers=[Header(*pair) for pair in unpack_headers(answer.headers)] if complete else None,
        body=answer.body if complete else None,
        size=len(answer.body),
        answered_at=answer.answered_at,
        expires_at=answer.expires_at,
        expired=answer.expired,
    )


def without_errors(history: History) -> History:
    """Return the history for a viewer: no errors of attempts and calls, nothing that actions replaced. Effects keep
    their error: a timeline prints only that of a superseded `once`, which is the reason."""
    calls = [tuple(replace(call, error=None) for call in known.calls) for known in history.effects]
    return replace(
        history,
        attempts=tuple(replace(attempt, error=None) for attempt in history.attempts),
        effects=tuple(map(EffectHistory, (known.effect for known in history.effects), calls)),
        actions=tuple(replace(action, replaced=None) for action in history.actions),
    )


def row_view(row: EventRow, *, complete: bool) -> EventRow:
    """Return an event row. A viewer gets Hookledger's own reasons, but no exception text: it may quote a payload or
    arguments."""
    if complete:
        return row
    quoted = row.error is not None or (row.state is State.SKIPPED and row.attempts > 0)
    reason = masked(row.reason) if row.reason and quoted else row.reason
    cause = masked_cause(row.cause) if row.cause and quoted else row.cause
    return replace(row, result=None, error=None, reason=reason, cause=cause)


def _facts(request: RequestRow) -> RequestFacts:
    return RequestFacts(
        request.id, request.received_at, len(request.body), request.scheme, request.secret, request.signed_at
    )


def as_text(request: RequestRow | RejectionRow) -> dict[str, Any]:
    """Return the fields of a kept request, with query and headers as text."""
    headers = [Header(name, value) for name, value in unpack_headers(request.headers)]
    return asdict(request) | {"query": request.query.decode("latin-1"), "headers": headers}


def request_content(request: RequestRow) -> RequestContent:
    return msgspec.convert(as_text(request), RequestContent)


def decided_effect(history: History, effect: Effect) -> DecidedEffect:
    return DecidedEffect(_effect_view(history.effect(effect.identity), complete=True), history.event)


def _effect_view(known: EffectHistory, *, complete: bool) -> EffectView:
    effect = known.effect
    shown = {name: getattr(effect, name) for name in EffectView.__struct_fields__ if hasattr(effect, name)}
    shown |= {
        "error": effect.error if complete else None,
        "arguments": _json(effect.arguments) if complete else None,
        "result": _json(effect.result) if complete else None,
        "calls": known.calls,
    }
    return EffectView(**shown)


def _guard_view(known: GuardHistory) -> GuardView:
    answer, guard = known.answer, known.guard
    shown = {name: getattr(answer, name) for name in GuardView.__struct_fields__ if hasattr(answer, name)}
    now = (None, None) if guard is None else (guard.version, guard.event_id)
    return GuardView(**shown, now_version=now[0], now_event_id=now[1])


def _json(text: bytes | None) -> Any:
    """Return stored JSON unparsed, so that numbers of any size stay exact."""
    return msgspec.Raw(text) if text else None


def preview_view(event: EventRow, preview: Preview) -> PreviewView:
    return PreviewView(**asdict(preview), claim=event.claim, words=preview.words, fingerprint=preview.fingerprint)

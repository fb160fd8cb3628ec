"""What the API shows: an event in full, its effects, a preview. What may hold a payload is for operators."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from ...causes import masked, masked_cause
from ...identities import operation_key
from ...ledger import Call, Effect, EffectHistory
from ...model import ActionRow, AttemptRow, DeliveryRow, EventRow, History, RequestRow, unpack_headers
from ...states import EffectKind, EffectState, Repeat, State
from ..preview import Forecast, Preview, Verdict


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
    """A request as it was kept: less the secrets that the provider's contract names."""

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
    """Exactly as received, in base64."""


class EffectView(Struct, frozen=True):
    """An effect with its calls."""

    name: str
    key: str
    kind: EffectKind
    state: EffectState
    idempotency_key: str | None
    """What the remote knows it by."""
    generation: int
    fence: int
    number: int
    tries: int
    source: str
    event_id: UUID
    claim: int
    """Of the attempt that asked for it."""
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
    """For operators, as are arguments and result."""
    arguments: Any
    result: Any
    calls: tuple[Call, ...]


class PreviewView(Struct, frozen=True):
    """What a replay would do now."""

    event_id: UUID
    state: State
    claim: int
    run: int
    """That the replay would begin."""
    verdict: Verdict
    words: str
    deeds: tuple[str, ...]
    reasons: tuple[str, ...]
    handler: str | None
    converges: bool
    effects: tuple[Forecast, ...]
    fingerprint: str
    """Of what was shown: named as `expected.preview`, a replay that would do something else is refused."""


class EventView(Struct, frozen=True):
    """Everything known of one event."""

    event: EventRow
    request: RequestFacts | None
    deliveries: tuple[DeliveryRow, ...]
    attempts: tuple[AttemptRow, ...]
    effects: tuple[EffectView, ...]
    actions: tuple[ActionRow, ...]
    replay: PreviewView
    body_of: UUID | None
    """The event that had its body before: its type repeats or shares bodies, or an operator admitted it."""
    complete: bool
    """False for a viewer: arguments, results and errors are left out."""


def event_view(history: History, preview: Preview, *, complete: bool) -> EventView:
    attempts, actions = history.attempts, history.actions
    if not complete:
        attempts = tuple(msgspec.structs.replace(attempt, error=None) for attempt in attempts)
        actions = tuple(msgspec.structs.replace(action, replaced=None) for action in actions)
    return EventView(
        event=row_view(history.event, complete=complete),
        request=_facts(history.request) if history.request else None,
        deliveries=history.deliveries,
        attempts=attempts,
        effects=tuple(effect_view(known, complete=complete) for known in history.effects),
        actions=actions,
        replay=preview_view(history.event, preview),
        body_of=history.body_of,
        complete=complete,
    )


def without_errors(history: History) -> History:
    """Attempts and calls without what went wrong in them. A `once` that made way says for what, which is no error."""
    replace = msgspec.structs.replace
    return replace(
        history,
        attempts=tuple(replace(attempt, error=None) for attempt in history.attempts),
        effects=tuple(_without(known) for known in history.effects),
        actions=tuple(replace(action, replaced=None) for action in history.actions),
    )


def _without(known: EffectHistory) -> EffectHistory:
    return EffectHistory(known.effect, tuple(msgspec.structs.replace(call, error=None) for call in known.calls))


def row_view(row: EventRow, *, complete: bool) -> EventRow:
    """A viewer sees Hookledger's own reasons, but not the words of the handler's exceptions: they may quote a payload
    or an effect's arguments."""
    if complete:
        return row
    quoted = row.error is not None or (row.state is State.SKIPPED and row.attempts > 0)
    reason = masked(row.reason) if row.reason and quoted else row.reason
    cause = masked_cause(row.cause) if row.cause and quoted else row.cause
    return msgspec.structs.replace(row, result=None, error=None, reason=reason, cause=cause)


def _facts(request: RequestRow) -> RequestFacts:
    return RequestFacts(
        request.id, request.received_at, len(request.body), request.scheme, request.secret, request.signed_at
    )


def headers(packed: bytes) -> list[Header]:
    return [Header(name, value) for name, value in unpack_headers(packed)]


def request_content(request: RequestRow) -> RequestContent:
    return RequestContent(
        id=request.id,
        source=request.source,
        received_at=request.received_at,
        remote=request.remote,
        scheme=request.scheme,
        secret=request.secret,
        signed_at=request.signed_at,
        query=request.query.decode("latin-1"),
        headers=headers(request.headers),
        body=request.body,
    )


def effect_view(known: EffectHistory, *, complete: bool) -> EffectView:
    effect = known.effect
    calls = known.calls
    if not complete:
        calls = tuple(msgspec.structs.replace(call, error=None) for call in calls)
    shown = {name: getattr(effect, name) for name in EffectView.__struct_fields__ if hasattr(effect, name)}
    shown |= {
        "idempotency_key": None if effect.repeat is None else operation_key(effect.identity, effect.generation),
        "error": effect.error if complete else None,
        "arguments": _json(effect.arguments) if complete else None,
        "result": _json(effect.result) if complete else None,
        "calls": calls,
    }
    return EffectView(**shown)


def _json(text: bytes | None) -> Any:
    """As it is kept, without reading it: numbers of any size stay what they are."""
    return msgspec.Raw(text) if text else None


def preview_view(event: EventRow, preview: Preview) -> PreviewView:
    shown = {name: getattr(preview, name) for name in PreviewView.__struct_fields__ if hasattr(preview, name)}
    return PreviewView(**shown, claim=event.claim, fingerprint=fingerprint(preview))


def fingerprint(preview: Preview) -> str:
    """The same for two previews exactly when whoever agreed to the one has agreed to the other."""
    fates = [(effect.identity, effect.fate, effect.generation) for effect in preview.effects]
    return sha256(msgspec.json.encode([preview.verdict, preview.deeds, fates])).hexdigest()[:32]


def effect_of(history: History, effect: Effect) -> EffectHistory:
    [found] = [known for known in history.effects if known.effect.identity == effect.identity]
    return found

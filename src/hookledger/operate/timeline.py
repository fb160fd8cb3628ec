"""One event's history as one chronological list, with every key. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from ..ids import operation_key
from ..ledger import Effect, EffectHistory, GuardAnswer
from ..model import GUARDED, LISTED, base_source
from ..states import EffectKind, EffectState
from ..store.history import ActionRow, AnswerRow, AttemptRow, DeliveryRow, History, RequestRow
from ..store.ops.reviews import ANSWERS

UNSIGNED = {
    LISTED: "api: the provider listed it, asked with the source's token",
    GUARDED: f"{GUARDED}: your application authenticated the caller",
    "repair": "repair: an operator asked for it here",
    "none": "none: the source has no secret",
}
"""What proves an event without a signature, by scheme."""


class Entry(Struct, frozen=True):
    """One entry of a timeline."""

    at: datetime
    kind: str
    """delivery, authentication, attempt, guard, effect, answer, action."""
    what: str
    """What happened, in a word or two: accepted, claimed, processed, call started, done, applied, stale, tie …"""
    words: str
    by: str = ""
    """The source, worker or operator."""
    delivery: str | None = None
    """REQUEST:ITEM."""
    delivery_id: str | None = None
    """The provider's id of the delivery."""
    event_key: str | None = None
    claim: int | None = None
    run: int | None = None
    effect: str | None = None
    """NAME:KEY."""
    idempotency_key: str | None = None
    guard: str | None = None
    """NAME:KEY."""


_ORDER = ("delivery", "authentication", "action", "attempt", "guard", "effect", "answer")
"""Order among entries of the same time."""


def timeline(history: History) -> tuple[Entry, ...]:
    """Return every entry, oldest first."""
    entries = [
        *(_delivery(history, delivery) for delivery in history.deliveries),
        *_authentication(history),
        *(entry for attempt in history.attempts for entry in _attempt(attempt)),
        *_working(history),
        *(_guard(known.answer) for known in history.guards),
        *(entry for known in history.effects for entry in _effect(known)),
        *_answer(history),
        *(_action(action) for action in history.actions),
    ]
    return tuple(sorted(entries, key=lambda entry: (entry.at, _ORDER.index(entry.kind), entry.claim or 0)))


def _delivery(history: History, delivery: DeliveryRow) -> Entry:
    seen = f"the event was {delivery.event_state}" if delivery.event_state else ""
    kept = "" if delivery.kept else "bytes not kept"
    first = delivery.request_id == history.event.request_id and delivery.item == history.event.item
    body = f"the body of event {history.body_of}" if first and history.body_of else ""
    version = f"version {history.event.version}" if first and history.event.version else ""
    retry = f"retry {delivery.retry}" if delivery.retry else ""
    return Entry(
        delivery.received_at,
        "delivery",
        str(delivery.outcome),
        ", ".join(filter(None, (delivery.delivery_id, version, retry, seen, kept, body))),
        base_source(history.event.source),
        delivery=f"{delivery.request_id}:{delivery.item}",
        delivery_id=delivery.delivery_id,
        event_key=history.event.key,
    )


def _authentication(history: History) -> Iterator[Entry]:
    """Return how the event's first delivery was proved authentic; proofs of other deliveries are not kept."""
    proof = history.request
    if proof is not None:
        what = "not signed" if proof.scheme in UNSIGNED else "verified"
        place = f"{proof.id}:{history.event.item}"
        source = base_source(history.event.source)
        yield Entry(proof.received_at, "authentication", what, proved(proof), source, delivery=place)


def proved(proof: RequestRow) -> str:
    """Return what proves an event: a signature, or its substitute."""
    if proof.scheme in UNSIGNED:
        return UNSIGNED[proof.scheme]
    signed = f", signed {proof.signed_at:%Y-%m-%d %H:%M:%S}" if proof.signed_at else ""
    return f"{proof.scheme}, secret {proof.secret}{signed}"


def _attempt(attempt: AttemptRow) -> Iterator[Entry]:
    at, worker, words = attempt.started_at, attempt.worker or "", f"run {attempt.run}, claim {attempt.claim}"
    yield Entry(at, "attempt", "claimed", words, worker, claim=attempt.claim, run=attempt.run)
    took = (attempt.ended_at - attempt.started_at).total_seconds()
    last = (attempt.error or "").strip().splitlines()[-1:]
    yield Entry(
        attempt.ended_at,
        "attempt",
        str(attempt.outcome),
        " ".join([f"{words}, {took:.3f} s", *last]),
        worker,
        claim=attempt.claim,
        run=attempt.run,
    )


def _working(history: History) -> Iterator[Entry]:
    """Return the running attempt from its lease: an attempt has a row only when it has ended."""
    event = history.event
    if event.claimed_at is not None and event.leased_until is not None:
        words = f"run {event.run}, claim {event.claim}, until {event.leased_until:%H:%M:%S} at least"
        yield Entry(
            event.claimed_at, "attempt", "claimed", words, event.worker or "", claim=event.claim, run=event.run
        )


def _answer(history: History) -> Iterator[Entry]:
    answer = history.answer
    if answer is not None:
        yield Entry(answer.answered_at, "answer", "stored", answer_words(answer), run=answer.run)


def answer_words(answer: AnswerRow) -> str:
    """Return what redeliveries get, without its content."""
    until = f"{'expired' if answer.expired else 'kept until'} {answer.expires_at:%Y-%m-%d %H:%M:%S}"
    return f"{answer.status}, {len(answer.body):,} bytes, {until}"


def _guard(answer: GuardAnswer) -> Entry:
    assert answer.at is not None, "recorded answers have a time"
    what = ("applied" if answer.applied else "stale") + ", tie" * (answer.tie is not None)
    return Entry(answer.at, "guard", what, answer.words, claim=answer.claim, guard=answer.label)


def _effect(known: EffectHistory) -> Iterator[Entry]:
    effect = known.effect
    label = effect.label
    is_call = effect.kind is not EffectKind.ONCE

    def entry(at: datetime, what: str, words: str, by: str = "", generation: int = effect.generation) -> Entry:
        key = operation_key(effect.identity, generation) if is_call else None
        return Entry(at, "effect", what, words, by, claim=effect.claim, effect=label, idempotency_key=key)

    if not is_call:
        made_way = f": {effect.error}" if effect.superseded else ""
        yield entry(effect.created_at, "done", f"{label}, in the handler's transaction{made_way}")
        return
    if effect.kind is EffectKind.LATER or not known.calls:
        outbox = ", for the outbox" if effect.kind is EffectKind.LATER else ""
        yield entry(effect.created_at, "planned", label + outbox)
    for call in known.calls:
        repeated = f" (generation {call.generation})" if call.generation > 1 else ""
        words = f"{label}: call {call.number}{repeated}"
        if call.ended_at is None:
            yield entry(call.started_at, "called", f"{words}, no answer recorded", call.worker, call.generation)
            continue
        yield entry(call.started_at, "called", words, call.worker, call.generation)
        took = f"{(call.ended_at - call.started_at).total_seconds():.3f} s"
        ended = " ".join(filter(None, (f"{words}, {took}", call.error)))
        yield entry(call.ended_at, str(call.outcome), ended, call.worker, call.generation)
    if effect.finished_at is not None and _was_decided(effect):
        words = (effect.decided or effect.state).replace("_", " ")
        yield entry(effect.finished_at, str(effect.state), f"{label}: {words}")


def _was_decided(effect: Effect) -> bool:
    """Whether a check or an operator ended it, not a call. Times cannot tell: each row has its own."""
    if effect.state is EffectState.DONE:
        return effect.decided == "happened" or not effect.called_done
    return effect.state is EffectState.CANCELLED


PART_OF_A_JOB = re.compile(r", job [0-9a-f-]{36}$")
"""Suffix in the subject of a decision made by a bulk job."""


def _action(action: ActionRow) -> Entry:
    about = f"{action.subject}: " if action.subject else ""
    words = f"{about}{action.from_state} → {action.to_state}: {action.reason}"
    if action.replaced is not None:
        what = "the review was:" if action.name in ANSWERS else "the result was"
        words += f" ({what} {action.replaced})"
    effect = PART_OF_A_JOB.sub("", action.subject) if action.subject and ":" in action.subject else None
    return Entry(action.at, "action", action.name, words, action.actor, effect=effect)

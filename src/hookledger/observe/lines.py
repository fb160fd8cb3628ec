"""The log lines of events: each boundary that an event or a request passes is one line, with a constant message.

Values are fields of the record (`extra`), never part of the message. `LINES` and `FIELDS` are all there are:
docs/reference/logs.md is made from them. Their logger is `hookledger.events`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from logging import DEBUG, INFO, WARNING
from typing import Any

from msgspec import Struct

from .logs import known_facts

log: logging.Logger = logging.getLogger("hookledger.events")

MAX_VALUE = 500
"""Characters of one value: senders choose some of them."""

FIELDS: dict[str, str] = {
    "source": "The source; of a stage `SOURCE/STAGE`.",
    "event_id": "The event. Of a duplicate and of a quarantined delivery: the event that is known.",
    "event_key": "Its event key.",
    "event_type": "Its type.",
    "object_id": "What it is about, if the provider names it.",
    "state": "The event's state after this line. Of a duplicate and of a quarantined delivery: before it.",
    "correlation_id": "`X-Request-Id` of the delivery, else the trace id of its `traceparent`, else the event's id.",
    "trace_id": "The trace of the attempt, if the application has tracing; else of the delivery's `traceparent`.",
    "handler": "The handler's function.",
    "attempt": "The number of the attempt in this run, from 1.",
    "run": "1 for the first processing, one more for each replay.",
    "claim": "The fencing token of the attempt.",
    "outcome": "How a delivery was classified, or how an attempt ended.",
    "reason": "Why: a code of a rejected request, or the reason that the event has from now on.",
    "status": "The HTTP status of the answer.",
    "path": "The path of a request that no source has.",
    "left_out": "How many such lines were left out before this one, because there were too many.",
    "failures": "Which failure it is of this handler or effect at this place, since the process started.",
    "traceback": "The traceback, where it is too long or too strange for `exc_info`.",
    "effect": "The effect's name.",
    "effect_key": "The key that the handler gave it.",
    "op_key": "The idempotency key that the downstream gets.",
    "kind": "`once`, `call` or `later`.",
    "call": "The number of the physical call.",
    "error": "What the effect's function raised: class and message.",
    "actor": "The name of the API token.",
    "action": "The API call: method and path.",
    "subject": "What it was about: a reference of an event, a job, a source; not for an erasure.",
}
"""Every field, with its meaning."""

_NAMED = ("source", "event_id", "event_key", "event_type")
_DELIVERY = (*_NAMED, "object_id", "correlation_id", "trace_id", "status")
# In the order of importance: Sentry keeps the first ten fields.
_EVENT = (*_NAMED, "object_id", "attempt", "run", "correlation_id", "claim", "trace_id")
_ATTEMPT = (*_NAMED, "object_id", "handler", "attempt", "run", "state", "correlation_id", "claim", "trace_id")
_EFFECT = (*_NAMED, "effect", "effect_key", "kind", "handler", "attempt", "correlation_id", "op_key")
_MORE = ("object_id", "run", "claim", "trace_id")


class Line(Struct, frozen=True):
    """One line."""

    message: str
    level: int
    words: str
    """When it is logged."""
    fields: tuple[str, ...]
    levels: Mapping[str, int] = {}
    """Other levels, by outcome."""


ACCEPTED = Line("delivery accepted", DEBUG, "A new event is recorded.", (*_DELIVERY, "outcome"))
DUPLICATE = Line(
    "delivery duplicate", DEBUG, "The event is known, and only the delivery is recorded.", (*_DELIVERY, "state")
)
QUARANTINED = Line(
    "delivery quarantined",
    WARNING,
    "A known key with other content (`conflict`), or known content under another id or type (`same_body`). Limited.",
    (*_DELIVERY, "outcome", "state", "left_out"),
)
INVALID = Line(
    "delivery invalid",
    WARNING,
    "Authentic but unreadable: the event is a dead letter. Limited.",
    (*_DELIVERY, "outcome", "left_out"),
)
REJECTED = Line(
    "request rejected",
    WARNING,
    "A request that is answered with 4xx. Limited per source; INFO where no source has its path.",
    ("source", "reason", "status", "path", "left_out"),
)
ANSWERED = Line(
    "answered from the ledger",
    DEBUG,
    "A redelivery got the answer that its event's handler gave before; nothing ran.",
    (*_NAMED, "status"),
)
CLAIMED = Line("event claimed", DEBUG, "A worker claimed the event.", _EVENT)
ENDED = Line(
    "attempt ended",
    WARNING,
    "How the attempt ended, and why. Also a failure that the handler decided on, and an outage.",
    (*_ATTEMPT, "outcome", "reason", "left_out"),
    {"processed": DEBUG, "skipped": INFO, "waiting": INFO},
)
HANDLER_FAILED = Line(
    "handler failed",
    WARNING,
    "The attempt ended by an unexpected exception. The first time at each place it is ERROR with the traceback.",
    (*_ATTEMPT, "outcome", "reason", "failures", "traceback"),
)
EFFECT_MADE = Line(
    "effect made",
    DEBUG,
    "A call returned, or a `once` is new in this transaction.",
    (*_EFFECT, *_MORE, "call", "error"),
)
EFFECT_PLANNED = Line(
    "effect planned", DEBUG, "A `later` is in the outbox with this transaction.", (*_EFFECT, *_MORE)
)
EFFECT_REUSED = Line("effect reused", DEBUG, "It was asked for before: nothing is done again.", (*_EFFECT, *_MORE))
EFFECT_UNKNOWN = Line(
    "effect unknown",
    WARNING,
    "It is unknown whether the call happened. In the outbox, an unexpected exception is ERROR with the traceback the "
    "first time at each place.",
    (*_EFFECT, *_MORE, "call", "error", "failures", "traceback"),
)
EFFECT_FAILED = Line(
    "effect failed",
    WARNING,
    "The call did not happen: it was refused, or not sent. Tracebacks as above.",
    (*_EFFECT, *_MORE, "call", "error", "failures", "traceback"),
)
ACTED = Line(
    "operator acted",
    INFO,
    "An API call changed something. A command logs nothing: the audit log has every action of both.",
    ("actor", "action", "subject"),
)

LINES: tuple[Line, ...] = (
    *(ACCEPTED, DUPLICATE, QUARANTINED, INVALID, REJECTED, ANSWERED, CLAIMED, ENDED, HANDLER_FAILED),
    *(EFFECT_MADE, EFFECT_PLANNED, EFFECT_REUSED, EFFECT_UNKNOWN, EFFECT_FAILED, ACTED),
)
"""Every line."""


def wanted(level: int = DEBUG) -> bool:
    """Whether lines of this level are logged. Ask once for many, before any value is made."""
    return log.isEnabledFor(level)


def tell(line: Line, *, level: int | None = None, exc_info: Any = None, **fields: object) -> None:
    """Log a line with the facts of the event that is being processed and these fields; None is no value."""
    level = line.level if level is None else level
    if not log.isEnabledFor(level):
        return
    facts = {**known_facts(), **fields}
    extra = {name: _shown(name, facts[name]) for name in line.fields if facts.get(name) is not None}
    log.log(level, line.message, exc_info=exc_info, extra=extra, stacklevel=2)


def _shown(name: str, value: object) -> object:
    if isinstance(value, int):
        return value
    text = str(value)
    return text if len(text) <= MAX_VALUE or name == "traceback" else f"{text[: MAX_VALUE - 1]}…"


def page_level(line: Line) -> str:
    """Return the level of a line for the reference."""
    others = [f"{logging.getLevelName(level)} if {outcome}" for outcome, level in line.levels.items()]
    return ", ".join([logging.getLevelName(line.level), *others])

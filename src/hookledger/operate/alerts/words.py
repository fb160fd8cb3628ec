"""What a message says. Control characters are replaced: a name may come from a stranger."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from ...store.ops.alert_looks import AlertKind
from ...store.ops.alert_messages import TOPICS, Message
from .kinds import KINDS, OTHER, Severity

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
OF_SOURCE = (AlertKind.CONFLICT, AlertKind.SIGNATURE_FAILURES)
"""Kinds whose command takes the source."""


class Alert(Struct, frozen=True):
    """One message, as an `@inbox.alert` function gets it."""

    id: UUID
    """The same in every attempt to send it."""
    kind: str
    severity: Severity
    inbox: str
    """The inbox, as `[alerts] name` calls it."""
    topic: str
    """The same for every message about one topic of one kind."""
    subject: str
    count: int
    """Occurrences since the message before it."""
    title: str
    """All in one line."""
    text: str
    """The title, when it was, and what to do."""
    command: str
    """The command to begin with."""
    event_id: UUID | None
    """The newest event that it is about."""
    first_at: datetime
    last_at: datetime


def alert(message: Message, inbox: str) -> Alert:
    """Return what is sent for a stored message."""
    described = KINDS.get(message.kind, OTHER)
    title = plain(_title(message))
    command = _command(message)
    text = f"{title}\n{_when(message)}\n{described.do}\nNext: {command}"
    return Alert(
        message.id,
        message.kind,
        described.severity,
        inbox,
        message.topic,
        plain(message.subject),
        message.count,
        title,
        text,
        command,
        message.event_id,
        message.first_at,
        message.last_at,
    )


def test_alert(ident: UUID, inbox: str, now: datetime) -> Alert:
    """Return the message of `hookledger alerts test`."""
    title = "test message: alerts reach this target"
    command = "hookledger alerts"
    text = f"{title}\nNothing is wrong.\nNext: {command}"
    return Alert(ident, "test", "info", inbox, "test", "test", 1, title, text, command, None, now, now)


def plain(text: str) -> str:
    """Return text without characters that control a terminal or change its direction."""
    return _CONTROLS.sub("\ufffd", text)


def _title(message: Message) -> str:
    described = KINDS.get(message.kind, OTHER)
    if message.words:
        again = f" ({message.count:,} times)" if message.count > 1 else ""
        return (f"{message.subject}: " if message.subject else "") + message.words + again
    counted = described.one if message.count == 1 else described.many
    more = "more " if message.follows or not message.topic else ""
    said = f"{message.count:,} {more}{counted}"
    if message.topic:
        return f"{said}: {message.subject}"
    n, capped = message.more_topics, " or more" * (message.more_topics >= TOPICS)
    return f"and {n:,}{capped} more topic{'s' * (n != 1)} ({described.topic}) with {said}"


def _when(message: Message) -> str:
    first, last = (moment.astimezone(UTC) for moment in (message.first_at, message.last_at))
    if first == last:
        return f"at {first:%Y-%m-%d %H:%M:%S} UTC"
    return f"from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"


def _command(message: Message) -> str:
    command = KINDS.get(message.kind, OTHER).command
    if message.kind in OF_SOURCE and message.topic:
        return f"{command} --source {shlex.quote(plain(message.subject))}"
    if message.event_id is not None and message.topic and message.count == 1:
        return f"hookledger show {message.event_id}"
    if message.event_id is not None and message.topic:
        return f"{command}; the newest: hookledger show {message.event_id}"
    return command

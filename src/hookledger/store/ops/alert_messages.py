"""Messages to people: `store.alert_messages`. One for each target, topic and window of time, sent by any process.

A window begins with the first occurrence after the last window; its message is due immediately. Occurrences after
that message was taken to be sent go into the next window's message, which is due when that window begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from ...ids import FIRST_ID, LAST_ID, first_id, new_id, show
from ..rows import value_of
from ..session import Operations, Row, Session, reads, writes

COUNTED = 10_000
"""Messages of a state that are counted."""
TOPICS = 1_000
"""Topics over the limit of a window that are told apart."""
DIGEST = 8
MAX_WORDS = 500


class MessageState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"


class Sight(Struct, frozen=True):
    """Something that people are to be told, as one look finds it."""

    kind: str
    topic: str
    """Occurrences of one topic are one message."""
    digest: bytes
    """By which the next look knows it."""
    at: datetime
    subject: str
    event_id: UUID | None = None
    words: str = ""
    count: int = 1


class Watch(Struct, frozen=True):
    """What one target is to be told, and how often."""

    target: str
    kinds: frozenset[str]
    window: float = 600.0
    """Seconds in which one topic is one message."""
    topics: int = 10
    """Topics of one kind in a window that have their own message."""
    no_worker_after: float = 60.0
    signature_failures: int = 50
    """Rejected requests of a source within a window."""
    unproved: tuple[str, ...] = ()
    """The reasons of rejections that count for it."""
    given: tuple[Sight, ...] = ()
    """What is known from the settings."""


class Message(Struct, frozen=True):
    """A message as it is stored."""

    id: UUID
    target: str
    kind: str
    topic: str
    """A digest; empty: the topics over the limit of the window."""
    window_at: datetime
    """The beginning of its window."""
    subject: str
    words: str
    event_id: UUID | None
    """The newest event that it is about."""
    count: int
    """Occurrences since the message before it."""
    more_topics: int
    """How many topics it is about, if it is about those over the limit."""
    follows: bool
    """Whether it continues the message of the window before."""
    first_at: datetime
    last_at: datetime
    state: MessageState
    attempts: int
    due_at: datetime | None
    sent_at: datetime | None
    error: str | None
    """Why the last attempt failed."""


class LateTarget(Struct, frozen=True):
    """A target whose messages no process sends."""

    target: str
    count: int
    since: datetime


class AlertMessages(Operations):
    """`store.alert_messages`."""

    @reads
    async def any_due(self, db: Session, target: str) -> bool:
        """Whether a message may be sent now."""
        return bool(await db("is_message_due", target=target))

    @writes
    async def take(self, db: Session, target: str, worker: str, lease: float, limit: int) -> list[Message]:
        """Take due messages to send them: each attempt is counted before it is made. No other process has them until
        the lease expires."""
        ids = [row["id"] for row in await db("due_messages", target=target, limit=limit)]
        if not ids:
            return []
        taken = await db("lease_messages", ids=ids, lease=lease, worker=worker)
        return sorted(map(_message, taken), key=lambda one: (one.window_at, one.id))

    @writes
    async def sent(self, db: Session, message: Message) -> bool:
        """waiting → sent; False if another process took the message since."""
        return bool(await db("message_sent", id=message.id, attempt=message.attempts))

    @writes
    async def not_sent(self, db: Session, message: Message, error: str, due_in: float | None) -> bool:
        """waiting → waiting, due in so many seconds, or failed; False if another process took it since."""
        given = {"id": message.id, "attempt": message.attempts, "error": error[:MAX_WORDS] or "no reason given"}
        return bool(await db("message_not_sent", **given, due_in=due_in))

    @reads
    async def page(
        self,
        db: Session,
        *,
        state: MessageState | None = None,
        target: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[Message]:
        """Messages, the newest first, from before `before`."""
        given = {"state": state, "target": target, "before": before or LAST_ID, "limit": max(limit, 0)}
        return [_message(row) for row in await db("list_messages", **given)]

    @reads
    async def totals(self, db: Session, since: float | None = None) -> dict[MessageState, int]:
        """How many messages are in each state, counted up to COUNTED. `since`: made after this Unix time."""
        first = FIRST_ID if since is None else first_id(since)
        found = {}
        for state in MessageState:
            [row] = await db("count_messages", state=state, first=first, most=COUNTED)
            found[state] = int(row["n"])
        return found

    @reads
    async def late(self, db: Session, seconds: float) -> list[LateTarget]:
        """Targets with messages that are due for longer, and that no process has tried to send."""
        return [LateTarget(row["target"], row["n"], row["since"]) for row in await db("late_messages", late=seconds)]

    @reads
    async def old(self, db: Session, before: float, limit: int) -> list[UUID]:
        """The oldest messages that were made before this Unix time."""
        return [row["id"] for row in await db("old_messages", before=first_id(before), limit=limit)]

    @writes
    async def prune(self, db: Session, idents: Sequence[UUID]) -> None:
        await db("prune_messages", ids=list(idents))


def _message(row: Row) -> Message:
    return value_of(Message, row, more_topics=len(row["topics"]) // DIGEST)


# ── from what is new to messages ──


class _Draft(Struct):
    """What one look adds to one topic."""

    kind: str
    topic: str
    subject: str
    words: str
    event_id: UUID | None
    count: int
    first_at: datetime
    last_at: datetime
    topics: bytes = b""


class _Open(Struct):
    """A message that may be added to, or that counts for the limit."""

    id: UUID
    kind: str
    topic: str
    window_at: datetime
    state: str
    attempts: int
    topics: bytes


async def tell(db: Session, watch: Watch, news: Sequence[Sight], now: datetime) -> None:
    """Add what is new to the messages of a target. The caller holds the lock of its looks."""
    if not news:
        return
    known = [value_of(_Open, row) for row in await db("open_messages", target=watch.target, window=watch.window)]
    for draft in _limited(_drafts(news), known, watch, now):
        mine = [one for one in known if (one.kind, one.topic) == (draft.kind, draft.topic)]
        untaken = [one for one in mine if one.state == MessageState.WAITING and one.attempts == 0]
        latest = untaken or mine
        newest = latest[-1] if latest else None  # by time the last, unless the clock was set back
        given = {"words": draft.words, "event_id": draft.event_id, "count": draft.count, "last_at": draft.last_at}
        if newest is not None and newest.state == MessageState.WAITING and newest.attempts == 0:
            topics = _joined(newest.topics, draft.topics)
            if await db("extend_message", id=newest.id, topics=topics, **given):
                continue  # else a sender has just taken it
        next_at = now if newest is None else max(now, min(now, newest.window_at) + timedelta(seconds=watch.window))
        fixed = {"id": new_id(), "target": watch.target, "kind": draft.kind, "topic": draft.topic}
        first = {"subject": draft.subject, "first_at": draft.first_at, "window_at": next_at, "topics": draft.topics}
        await db("add_message", **fixed, **first, **given, follows=newest is not None)


def _drafts(news: Sequence[Sight]) -> list[_Draft]:
    """Join occurrences of one topic, the most frequent first."""
    found: dict[tuple[str, str], _Draft] = {}
    for one in sorted(news, key=lambda sight: sight.at):
        topic = sha256(one.topic.encode("utf-8", "replace")).hexdigest()[:32]
        draft = found.get((one.kind, topic))
        if draft is None:
            subject, words = show(one.subject.encode("utf-8", "replace")), one.words[:MAX_WORDS]
            found[one.kind, topic] = _Draft(one.kind, topic, subject, words, one.event_id, one.count, one.at, one.at)
        else:
            draft.count += one.count
            draft.event_id, draft.words, draft.last_at = one.event_id, one.words[:MAX_WORDS], one.at
    return sorted(found.values(), key=lambda draft: draft.count, reverse=True)


def _limited(drafts: Sequence[_Draft], known: Sequence[_Open], watch: Watch, now: datetime) -> list[_Draft]:
    """Join the topics over the limit of the window into one for each kind."""
    begin = now - timedelta(seconds=watch.window)
    counted: dict[str, set[str]] = {}
    for one in known:
        if one.window_at > begin and one.topic:
            counted.setdefault(one.kind, set()).add(one.topic)
    kept: list[_Draft] = []
    over: dict[str, _Draft] = {}
    for draft in drafts:
        topics = counted.setdefault(draft.kind, set())
        if draft.topic in topics or len(topics) < watch.topics:
            topics.add(draft.topic)
            kept.append(draft)
            continue
        ident = bytes.fromhex(draft.topic)[:DIGEST]
        rest = over.get(draft.kind)
        if rest is None:
            times = (draft.first_at, draft.last_at)
            over[draft.kind] = _Draft(draft.kind, "", "", "", draft.event_id, draft.count, *times, ident)
            continue
        rest.count += draft.count
        rest.topics = _joined(rest.topics, ident)
        rest.first_at, rest.last_at = min(rest.first_at, draft.first_at), max(rest.last_at, draft.last_at)
    return [*kept, *over.values()]


def _joined(one: bytes, other: bytes) -> bytes:
    """Digests of topics, each once."""
    parts = [given[place : place + DIGEST] for given in (one, other) for place in range(0, len(given), DIGEST)]
    return b"".join(list(dict.fromkeys(parts))[:TOPICS])

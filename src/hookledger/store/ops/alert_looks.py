"""What alerts are about, found in durable state: `store.alert_looks`.

Each target has its own looks. A look reads what is so now, compares it with what the target's last look saw, and
writes messages about the difference and what it saw in one transaction. A crash before the commit changes nothing:
the next look finds the same. Nothing here is on the path of a delivery or of an outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec import Struct

from ...ids import first_id, show
from ..causes import masked_cause
from ..session import Operations, Row, Session, reads, writes
from .alert_messages import Sight, Watch, tell
from .checks import standing
from .quarantine import QUARANTINED

PAGE = 5_000
"""Dead letters and quarantined deliveries that one look reads,"""
FEW = 1_000
"""and of everything else, of which there should be few. Of more, the newest are seen."""
CAUSES = 500
KNOWN = 4_096
"""Causes that a target remembers: one that is not among them is new."""
OVERLAP = timedelta(minutes=2)
"""How far each look reads back: a transaction may commit later than others that began after it."""
FIRST = timedelta(days=1)
"""How far the first look of a target reads back."""
DIED = "the worker died"
"""A cause in our own words, as `reclaim` writes it."""
DIGEST = 8


class AlertKind(StrEnum):
    """What an alert is about; `hookledger.operate.alerts.kinds` describes each."""

    NEW_CAUSE = "new_cause"
    DEAD_LETTER = "dead_letter"
    NEEDS_REVIEW = "needs_review"
    UNKNOWN_EFFECT = "unknown_effect"
    FAILED_EFFECT = "failed_effect"
    CONTRADICTION = "contradiction"
    CONFLICT = "conflict"
    REDELIVERY = "redelivery"
    CIRCUIT_OPEN = "circuit_open"
    NO_WORKER = "no_worker"
    SIGNATURE_FAILURES = "signature_failures"
    CONSISTENCY = "consistency"
    SECRET_EXPIRY = "secret_expiry"  # noqa: S105 - of a kind, not of a secret


class Look(Struct, frozen=True):
    """Where a look of one kind begins, and what the last one saw."""

    since_at: datetime
    seen: bytes = b""

    @property
    def digests(self) -> list[bytes]:
        return [self.seen[place : place + DIGEST] for place in range(0, len(self.seen), DIGEST)]


class Found(Struct, frozen=True):
    """What is new, and where the next look begins."""

    news: Sequence[Sight]
    next: Look


class Counted(Struct, array_like=True):
    """The rejected requests of one source."""

    last: int
    base: int
    """The number at the beginning of the window,"""
    since: float
    """which was then."""


RAISED = "raised"
"""The look at what processes reported by `raise_`."""


class AlertLooks(Operations):
    """`store.alert_looks`."""

    @reads
    async def anything(self, db: Session, watch: Watch) -> bool:
        """Whether a look would change something. It reads only: an idle inbox is not written to."""
        looks, now = await _looks(db, watch), await _now(db)
        for kind, find in _finders(watch):
            found = await find(db, watch, looks.get(kind) or Look(now - FIRST), now)
            if found.news or found.next != looks.get(kind):
                return True
        return False

    @writes
    async def look(self, db: Session, watch: Watch) -> int:
        """Write messages about what is new to the target; returns how many occurrences there were."""
        await db("begin_look", target=watch.target, nothing=b"")
        looks, now = await _looks(db, watch), await _now(db)
        news: list[Sight] = []
        for kind, find in _finders(watch):
            found = await find(db, watch, looks.get(kind) or Look(now - FIRST), now)
            news += found.news
            if found.next != looks.get(kind):
                given = {"since_at": found.next.since_at, "seen": found.next.seen}
                await db("remember_look", target=watch.target, kind=kind, **given)
        await tell(db, watch, _once(news), now)
        return sum(sight.count for sight in news)

    @writes
    async def raise_(self, db: Session, kind: AlertKind, subject: str, words: str) -> None:
        """Report a condition that no table shows: every target that wants the kind is told."""
        await db("raise_condition", kind=kind, subject=show(subject.encode("utf-8", "replace")), words=words)

    @writes
    async def prune(self, db: Session, keep: float) -> None:
        """Delete conditions that were raised so many seconds ago."""
        await db("prune_conditions", keep=keep)


async def _looks(db: Session, watch: Watch) -> dict[str, Look]:
    return {row["kind"]: Look(row["since_at"], bytes(row["seen"])) for row in await db("looks", target=watch.target)}


async def _now(db: Session) -> datetime:
    [row] = await db("time_of_look")
    now: datetime = row["now_at"]
    return now


def _once(news: Sequence[Sight]) -> list[Sight]:
    """Leave out a new cause whose event failed, or is in review, at the same time: one message says both."""
    failed = {sight.topic for sight in news if sight.kind in (AlertKind.DEAD_LETTER, AlertKind.NEEDS_REVIEW)}
    return [sight for sight in news if sight.kind != AlertKind.NEW_CAUSE or sight.topic not in failed]


# ── what is new, by what was seen ──


def _since(look: Look, now: datetime) -> datetime:
    """Where a look at what has a time begins: in the past, also after the database's clock was set back."""
    return look.since_at if look.since_at <= now else now - OVERLAP


def _after(rows: Sequence[Sight], look: Look, now: datetime, end: datetime | None = None) -> Found:
    """Of what has a time. `end`: of the last row, if there may be more behind it. When the clock was set back, what
    has a time to come was seen before."""
    if not rows:
        return Found((), look)
    seen, since = set(look.digests), _since(look, now)
    set_back = since < look.since_at
    news = [sight for sight in rows if sight.digest not in seen and not (set_back and sight.at > now)]
    newest = min(now, max(sight.at for sight in rows))
    begin = max(since, newest - OVERLAP if end is None else min(now, end))
    if end is not None and not news and begin == look.since_at:
        begin += timedelta(microseconds=1)  # more than a page at one moment, all of it seen
    kept = sorted({sight.digest for sight in rows if sight.at >= begin})
    return Found(news, Look(begin, b"".join(kept)))


def _present(rows: Sequence[Sight], look: Look) -> Found:
    """Of what is so, or is not: news again if it ends and comes back."""
    seen = set(look.digests)
    news = [sight for sight in rows if sight.digest not in seen]
    return Found(news, Look(look.since_at, b"".join(sorted({sight.digest for sight in rows}))))


def _unheard(rows: Sequence[Sight], look: Look) -> Found:
    """Of what is news once."""
    seen = set(look.digests)
    news = [sight for sight in rows if sight.digest not in seen]
    more = b"".join(dict.fromkeys(sight.digest for sight in news))
    return Found(news, Look(look.since_at, (look.seen + more)[-KNOWN * DIGEST :]))


def digest(*parts: object) -> bytes:
    return sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()[:DIGEST]


# ── one finder for each kind ──


async def _dead_letters(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = await db("failed_since", since_at=_since(look, now), most=PAGE)
    found = [
        _of_cause(AlertKind.DEAD_LETTER, row, digest(row["id"], row["claim"]), row["finished_at"]) for row in rows
    ]
    return _after(found, look, now, found[-1].at if len(rows) == PAGE else None)


async def _new_causes(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    seen, found = set(look.digests), []
    for row in await db("causes_now", most=CAUSES):
        ident = digest(row["cause"])
        if ident in seen:
            continue
        found += [
            _of_cause(AlertKind.NEW_CAUSE, newest, ident, newest["failed_at"], row["cause"])
            for newest in await db("newest_of_cause", cause=row["cause"])
            if newest["outcome"] != "waiting"  # its handler asked to wait: that is no failure
        ]
    return _unheard(found, look)


async def _in_review(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = await db("in_review_now", most=FEW)
    kind = AlertKind.NEEDS_REVIEW
    return _present([_of_cause(kind, row, digest(row["id"], row["claim"]), row["reviewed_at"]) for row in rows], look)


def _of_cause(kind: AlertKind, row: Row, ident: bytes, at: datetime, cause: str | None = None) -> Sight:
    """Payloads may be quoted in a cause, so people get the exception's class and place."""
    cause = row["cause"] if cause is None else cause
    masked = cause if cause == DIED else masked_cause(cause) if cause else "…"
    words = "its reason is in the ledger" if masked == "…" else masked
    return Sight(kind, f"{row['source']}\0{cause}", ident, at, f"{row['source']}: {words}", row["id"])


async def _unknown_effects(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = await db("unknown_now", most=FEW)
    return _present(
        [_of_effect(AlertKind.UNKNOWN_EFFECT, row, row["generation"], row["called_at"]) for row in rows], look
    )


async def _failed_effects(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = [row for row in await db("marked_effects_now", most=FEW) if not row["contradicted"]]
    return _present([_of_effect(AlertKind.FAILED_EFFECT, row, row["fence"], row["created_at"]) for row in rows], look)


async def _contradictions(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = [row for row in await db("marked_effects_now", most=FEW) if row["contradicted"]]
    return _present([_of_effect(AlertKind.CONTRADICTION, row, "alert", row["created_at"]) for row in rows], look)


def _of_effect(kind: AlertKind, row: Row, version: object, at: datetime) -> Sight:
    name = f"{row['source']}: effect {row['name']}" if row["source"] else f"effect {row['name']}"
    return Sight(kind, name, digest(bytes(row["identity"]).hex(), version), at, name, row["event_id"])


async def _quarantined(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    first, found, ends = first_id(_since(look, now).timestamp()), [], []
    for source in [row["source"] for row in await db("quarantine_sources")]:
        for outcome in QUARANTINED:
            rows = await db("quarantined_since", source=source, outcome=outcome, first=first, most=PAGE)
            found += [_quarantine(source, row) for row in rows]
            ends += [rows[-1]["received_at"]] if len(rows) == PAGE else []
    return _after(found, look, now, min(ends, default=None))


def _quarantine(source: str, row: Row) -> Sight:
    ident = digest(row["request_id"], row["item"])
    return Sight(AlertKind.CONFLICT, source, ident, row["received_at"], source, row["event_id"])


async def _redelivered(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = await db("marked_now", most=FEW)
    kind = AlertKind.REDELIVERY
    return _present(
        [Sight(kind, row["source"], digest(row["id"], row["alert"]), row["marked_at"], row["source"], row["id"])
         for row in rows],
        look,
    )  # fmt: skip


async def _open_circuits(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    rows = await db("circuits_open_now")
    kind = AlertKind.CIRCUIT_OPEN
    return _present(
        [Sight(kind, row["downstream"], digest(row["downstream"], row["changed_at"]), row["changed_at"],
               row["downstream"]) for row in rows],
        look,
    )  # fmt: skip


async def _no_worker(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    [unseen] = await db("worker_unseen_for")
    if unseen["seconds"] is not None and unseen["seconds"] <= watch.no_worker_after:
        return _present((), look)
    [due] = await db("longest_due", late=watch.no_worker_after)
    if due["due_at"] is None:
        return _present((), look)
    words = f"no worker is alive, and events are due since {due['due_at']:%Y-%m-%d %H:%M} UTC"
    return _present([Sight(AlertKind.NO_WORKER, "", digest("no worker"), due["due_at"], "", None, words)], look)


async def _signatures(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    """More than the threshold within a window. The first look only counts."""
    known = msgspec.json.decode(look.seen, type=dict[str, Counted]) if look.seen else None
    counts, news = known or {}, []
    for row in await db("unproved_requests", reasons=watch.unproved):
        n, source = int(row["n"]), row["source"]
        count = counts.setdefault(source, Counted(0, 0, 0.0) if known is not None else Counted(n, n, 0.0))
        if n == count.last:
            continue
        if now.timestamp() - count.since > watch.window:
            count.base, count.since = count.last, now.timestamp()
        count.last = n
        if n - count.base >= watch.signature_failures:
            more = n - count.base
            news.append(Sight(AlertKind.SIGNATURE_FAILURES, source, b"", row["last_at"], source, None, count=more))
            count.base, count.since = n, now.timestamp()
    return Found(news, Look(look.since_at, msgspec.json.encode(counts)))


async def _inconsistent(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    """What a stored consistency check found; again when a rule is kept for a while and broken once more."""
    found = (await standing(db)).violations
    kind = AlertKind.CONSISTENCY
    return _present([Sight(kind, rule, digest(rule), now, rule, count=n) for rule, n in found.items() if n], look)


async def _raised(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    known = {kind.value for kind in AlertKind}
    rows = [row for row in await db("conditions", since_at=_since(look, now)) if row["kind"] in known]
    found = [
        Sight(AlertKind(row["kind"]), row["subject"], digest(row["kind"], row["subject"], row["count"]),
              row["raised_at"], row["subject"], None, row["words"])
        for row in rows
    ]  # fmt: skip
    after = _after(found, look, now)
    return Found([sight for sight in after.news if sight.kind in watch.kinds], after.next)


async def _given(db: Session, watch: Watch, look: Look, now: datetime) -> Found:
    """What the process knows by its settings; another process may not know it."""
    return _unheard(watch.given, look)


Finder = Callable[[Session, Watch, Look, datetime], Awaitable[Found]]
FINDERS: dict[str, Finder] = {
    AlertKind.DEAD_LETTER: _dead_letters,
    AlertKind.NEW_CAUSE: _new_causes,
    AlertKind.NEEDS_REVIEW: _in_review,
    AlertKind.UNKNOWN_EFFECT: _unknown_effects,
    AlertKind.FAILED_EFFECT: _failed_effects,
    AlertKind.CONTRADICTION: _contradictions,
    AlertKind.CONFLICT: _quarantined,
    AlertKind.REDELIVERY: _redelivered,
    AlertKind.CIRCUIT_OPEN: _open_circuits,
    AlertKind.NO_WORKER: _no_worker,
    AlertKind.SIGNATURE_FAILURES: _signatures,
    AlertKind.CONSISTENCY: _inconsistent,
    AlertKind.SECRET_EXPIRY: _given,
}


def _finders(watch: Watch) -> list[tuple[str, Finder]]:
    wanted = [(str(kind), find) for kind, find in FINDERS.items() if kind in watch.kinds]
    return [*wanted, (RAISED, _raised)]

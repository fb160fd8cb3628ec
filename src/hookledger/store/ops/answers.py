"""The answers that handlers gave, and what a delivery of a known event can be answered (decision 0061)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from ...model import Claimed, Outcome, Recorded, StoredAnswer
from ...states import DeliveryOutcome, State
from ..history import AnswerRow
from ..rows import value_of
from ..session import Operations, Row, Session, searches, writes, writes_lightly

PRUNED = 500
"""Answers that one transaction deletes."""


class AnswerState(Struct, frozen=True):
    """A known event, and its answer if it has one that has not expired."""

    id: UUID
    source: str
    type: str
    version: str
    state: State
    claim: int
    run: int
    attempts: int
    crashes: int
    worker: str | None
    waits: bool
    """Whether it waits for an event of some entity."""
    processed_before: bool
    """Whether it was processed, in this run or an earlier one."""
    run_age: float
    lease_left: float | None
    """Seconds until its lease ends, negative when it has; None: it is not leased."""
    answer: StoredAnswer | None

    @property
    def expired(self) -> bool:
        """Whether it is processing under a lease that has ended."""
        return self.state is State.PROCESSING and self.lease_left is not None and self.lease_left < 0


class Claim(Struct, frozen=True):
    """What recording a delivery has shown: the new event, claimed, or the event that is known."""

    recorded: Recorded
    claimed: Claimed | None
    """None: the event is known, or paused."""
    known: AnswerState | None
    """The known event as the same transaction saw it; None: it is new, was pruned, or never was here."""


class Answers(Operations):
    """`store.answers`."""

    @searches
    async def find(self, db: Session, events: Sequence[UUID]) -> dict[UUID, AnswerState]:
        """What deliveries of these events can be answered now; without those that are gone."""
        return states(await db("answer_states", events=sorted(events)))

    @searches
    async def present(self, db: Session) -> datetime:
        """The time by the database's clock."""
        [row] = await db("present")
        found: datetime = row["asked_at"]
        return found

    @searches
    async def of_event(self, db: Session, event_id: UUID) -> AnswerRow | None:
        """The answer of one event, expired or not, until it is pruned."""
        return await answer_of(db, event_id)

    @writes
    async def keep(self, db: Session, event_id: UUID, answer: StoredAnswer) -> None:
        """Store the answer of an event that is settled already."""
        await db("keep_answer", event_id=event_id, **answer_values(answer))

    @writes_lightly
    async def prune(self, db: Session, most: int = PRUNED) -> int:
        """Delete answers that have expired, the oldest first, at most so many; returns how many."""
        return len(await db("prune_expired_answers", most=most))


async def answer_of(db: Session, event_id: UUID) -> AnswerRow | None:
    """What the handler of an event answered, as an operator sees it."""
    found = await db("answer_of_event", event_id=event_id)
    return value_of(AnswerRow, found[0]) if found else None


def states(rows: Iterable[Row]) -> dict[UUID, AnswerState]:
    """Rows of `answer_states`, by event."""
    return {row["id"]: value_of(AnswerState, row, answer=_stored(row)) for row in rows}


def met(recorded: Sequence[Recorded], claimed: Container[UUID]) -> list[UUID]:
    """The events that deliveries brought or met, without those that are new and claimed."""
    return sorted(
        {
            one.event_id
            for one in recorded
            if one.outcome is not DeliveryOutcome.ACCEPTED or one.event_id not in claimed
        }
    )


def claims(recorded: Sequence[Recorded], claimed: dict[UUID, Claimed], known: dict[UUID, AnswerState]) -> list[Claim]:
    """What recording has shown of each delivery. Of several that brought the same new event the first has it."""
    left = dict(claimed)
    return [Claim(one, left.pop(one.event_id, None), known.get(one.event_id)) for one in recorded]


def _stored(row: Row) -> StoredAnswer | None:
    return None if row["status"] is None else StoredAnswer(row["status"], row["headers"], row["body"])


def answer_values(answer: StoredAnswer) -> dict[str, Any]:
    """The parameters of `keep_answer`, without the event."""
    return {"status": answer.status, "headers": answer.headers, "body": answer.body, "keep": answer.keep}


def answers_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """The parameters of `keep_answer` for each outcome that has an answer, in one order."""
    answered = sorted((outcome for outcome in outcomes if outcome.answer is not None), key=lambda one: one.id)
    return [{"event_id": one.id, **answer_values(one.answer)} for one in answered if one.answer is not None]

"""What operators ask first about an event, answered from its history. Pure."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ..states import EffectState, State
from ..store.history import ActionRow, History
from ..store.ops.reviews import ANSWERS
from .replay.preview import Preview, Verdict


class AttemptSummary(Struct, frozen=True):
    """How often the event was attempted."""

    ended: int
    """Attempts that have ended, in all runs."""
    running: bool
    runs: int
    last: str | None
    """Outcome of the newest attempt."""


class EffectSummary(Struct, frozen=True):
    """An effect in one line."""

    label: str
    """NAME:KEY."""
    state: EffectState
    at: datetime | None
    """When it was done or cancelled."""


class StageSummary(Struct, frozen=True):
    """A stage in one line."""

    stage: str
    state: State


class Answers(Struct, frozen=True):
    """The answers about one event."""

    event_id: UUID
    key: str
    state: State
    reason: str | None
    first_received: datetime
    """When the event first arrived."""
    deliveries: int
    """How often it was delivered."""
    attempts: AttemptSummary
    """How often it was attempted."""
    completed: tuple[EffectSummary, ...]
    """Effects that are done."""
    open: tuple[EffectSummary, ...]
    """Effects that are pending, failed or unknown."""
    replays: tuple[ActionRow, ...]
    """Who replayed it, when and why."""
    reviews: tuple[ActionRow, ...]
    """Who approved, rejected or settled it, when and why."""
    verdict: Verdict
    """Whether a replay is safe now."""
    items: tuple[str, ...]
    """What a replay would do, or what must be decided first."""
    reasons: tuple[str, ...]
    """Why."""
    open_stages: tuple[StageSummary, ...] = ()
    """Stages that are not over, or that failed or need review: each is decided as EVENT/STAGE."""


SETTLED = (State.PROCESSED, State.SKIPPED, State.DISCARDED)
OVER = (EffectState.DONE, EffectState.CANCELLED)


def answer(history: History, preview: Preview) -> Answers:
    """Return the answers about an event. `preview`: of a replay now."""
    event = history.event
    known = [entry.effect for entry in history.effects if not entry.effect.superseded]
    effects = [EffectSummary(e.label, e.state, e.finished_at) for e in known]
    return Answers(
        event.id,
        event.key,
        event.state,
        event.reason,
        event.received_at,
        event.deliveries,
        AttemptSummary(
            len(history.attempts),
            event.state is State.PROCESSING,
            event.run,
            str(history.attempts[-1].outcome) if history.attempts else None,
        ),
        tuple(one for one in effects if one.state is EffectState.DONE),
        tuple(one for one in effects if one.state not in OVER),
        tuple(action for action in history.actions if action.name == "replay"),
        tuple(action for action in history.actions if action.name in ANSWERS),
        preview.verdict,
        preview.items,
        preview.reasons,
        tuple(StageSummary(str(row.stage), row.state) for row in history.stages if row.state not in SETTLED),
    )

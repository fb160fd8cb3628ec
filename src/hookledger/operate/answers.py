"""The six questions that operators ask of an event, answered from its history. Pure."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ..model import ActionRow, History
from ..states import EffectState, State
from .preview import Preview, Verdict


class Attempted(Struct, frozen=True):
    """How often it was tried."""

    ended: int
    """Attempts that have ended, in all runs."""
    running: bool
    runs: int
    last: str | None
    """How the newest ended."""


class Told(Struct, frozen=True):
    """An effect in one line."""

    label: str
    """NAME:KEY."""
    state: EffectState
    at: datetime | None
    """When it was done or cancelled."""


class Answers(Struct, frozen=True):
    """What is known of one event, as far as the six questions go."""

    event_id: UUID
    key: str
    state: State
    reason: str | None
    first_received: datetime
    """1. When did it first arrive,"""
    deliveries: int
    """and how often in all?"""
    attempts: Attempted
    """2. How often was it tried?"""
    completed: tuple[Told, ...]
    """3. Which effects are done?"""
    open: tuple[Told, ...]
    """4. Which are pending, or nobody knows?"""
    replays: tuple[ActionRow, ...]
    """5. Who replayed it, when and why?"""
    verdict: Verdict
    """6. Is another replay safe,"""
    deeds: tuple[str, ...]
    """what would it do, or what is to be decided first,"""
    reasons: tuple[str, ...]
    """and why?"""


OVER = (EffectState.DONE, EffectState.CANCELLED)


def answer(history: History, preview: Preview) -> Answers:
    """`preview`: of a replay now."""
    event = history.event
    known = [entry.effect for entry in history.effects if not entry.effect.superseded]
    told = [Told(f"{e.name}:{e.key}", e.state, e.finished_at) for e in known]
    return Answers(
        event.id,
        event.key,
        event.state,
        event.reason,
        event.received_at,
        event.deliveries,
        Attempted(
            len(history.attempts),
            event.state is State.PROCESSING,
            event.run,
            str(history.attempts[-1].outcome) if history.attempts else None,
        ),
        tuple(one for one in told if one.state is EffectState.DONE),
        tuple(one for one in told if one.state not in OVER),
        tuple(action for action in history.actions if action.name == "replay"),
        preview.verdict,
        preview.deeds,
        preview.reasons,
    )

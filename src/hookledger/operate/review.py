"""Deciding about one event in review: approve it for one run, reject it, or settle it by hand.

Each decides about the review that the operator read; WrongState if the event has left it, also if it has another one.
An approval answers what a handler asked with `raise Review(…)`. It changes no effect: a call with an unknown outcome
is decided with `resolve`.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ..errors import WrongState
from ..states import AttemptOutcome, State
from ..store.history import EventRow, History
from ..store.ops.audit import Audit
from ..store.ops.decisions import DONE
from . import search
from .context import Context
from .replay.preview import Preview
from .replay.replay import check_preview, preview


class Review(Struct, frozen=True):
    """Why an event is in review."""

    reason: str
    at: datetime
    claim: int | None
    """Claim of the attempt that asked for it; None: intake did."""


def review_of(history: History, name: str) -> Review:
    """Return the review that an answer of this name would answer now. WrongState if the event is not in review."""
    event = history.event
    _check_state(event, name)
    asked = [attempt for attempt in history.attempts if attempt.outcome is AttemptOutcome.NEEDS_REVIEW]
    if asked and asked[-1].claim == event.claim - 1:
        return Review(event.reason or "", asked[-1].ended_at, asked[-1].claim)
    return Review(event.reason or "", event.received_at, None)


def preview_approval(context: Context, history: History) -> Preview:
    """Return what the run that an approval begins would do, as far as the ledger knows. WrongState as `approve`."""
    _check_state(history.event, "approve")
    return preview(context, history, approved=True)


async def approve(context: Context, by: Audit, event: EventRow, *, shown: Preview | None = None) -> History:
    """Let the event pass its review, for one new run, in which its handler finds `event.approved`.

    `event`: as seen when this was decided. WrongState also if an operator must decide about an effect first, or if
    the run would do something else than `shown`.
    """
    _check_state(event, "approve")
    history = await search.find(context, str(event.id))
    if (history.event.state, history.event.claim) == (event.state, event.claim):  # else the store says what changed
        check_preview(event, preview(context, history), shown, done="approved")
    await context.store.reviews.approve(event.id, event.state, *by, seen=event.claim)
    return await search.find(context, str(event.id))


async def reject(context: Context, by: Audit, event: EventRow) -> History:
    """Close the event; its effects stay as they are. `event`: as for `approve`."""
    _check_state(event, "reject")
    await context.store.reviews.reject(event.id, event.state, *by, seen=event.claim)
    return await search.find(context, str(event.id))


async def settle(context: Context, by: Audit, event: EventRow) -> History:
    """Record that the event was settled by hand: it is processed, without a run. Its effects stay as they are.
    `event`: as for `approve`."""
    _check_state(event, "settle")
    await context.store.reviews.settle(event.id, event.state, *by, seen=event.claim)
    return await search.find(context, str(event.id))


def _check_state(event: EventRow, name: str) -> None:
    if event.state is not State.NEEDS_REVIEW:
        raise WrongState(f"event {event.id} is {event.state}: only {State.NEEDS_REVIEW} can be {DONE[name]}")

"""Replay: process an event again as a new run, on what its preview shows."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import WrongState
from ...ledger import Effect
from ...store.history import EventRow, History
from ...store.ops.audit import Audit
from .. import effects, search
from ..context import Context
from .preview import Preview, Verdict, preview_replay


def preview(context: Context, history: History, repeat: Sequence[str] = (), *, approved: bool = False) -> Preview:
    """Return what a replay would do now, and whether it is safe. `repeat`: finished effects to perform again, each a
    NAME, NAME:KEY or idempotency key. `approved`: what the run of an approval would do."""
    return _preview(context, history, effects.named(history, repeat), approved)


def _preview(context: Context, history: History, repeated: Sequence[Effect], approved: bool = False) -> Preview:
    return preview_replay(history, context.application, {effect.identity for effect in repeated}, approved=approved)


def check_preview(event: EventRow, now: Preview, shown: Preview | None, *, done: str) -> None:
    """WrongState if an operator must decide something first, or if the run would do something else than `shown`.
    `done`: what the event cannot be now."""
    if now.verdict is Verdict.NEEDS_A_DECISION:
        raise WrongState(f"event {event.id} cannot be {done} now: {now.words}")
    if shown is not None and now.fingerprint != shown.fingerprint:
        raise WrongState(f"event {event.id}: its effects have changed since the preview; a new run now: {now.words}")


async def replay(
    context: Context, by: Audit, event: EventRow, repeat: Sequence[str] = (), *, shown: Preview | None = None
) -> History:
    """Process an event again as a new run: effects that are done are skipped, except those in `repeat`.

    `event`: as seen when this was decided. WrongState if it has changed, if an operator must decide something first,
    or if the replay would do something else than `shown`.
    """
    history = await search.find(context, str(event.id))
    repeated: list[Effect] = []
    if (history.event.state, history.event.claim) == (
        event.state,
        event.claim,
    ):  # else the store reports who changed it
        repeated = effects.named(history, repeat)
        check_preview(event, _preview(context, history, repeated), shown, done="replayed")
    await context.store.replay(event.id, event.state, *by, seen=event.claim, repeat=repeated)
    return await search.find(context, str(event.id))

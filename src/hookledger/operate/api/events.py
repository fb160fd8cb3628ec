"""Events: the list, one in full, its request, its timeline, and a replay's preview."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from ...store.history import EventRow
from ...store.ops.filters import Filter
from .. import search
from ..answers import Answers, answer
from ..errors import NotFound
from ..quarantine.deliveries import conflicts
from ..quarantine.difference import Conflict
from ..replay.replay import preview
from ..timeline import Entry, timeline
from .auth import Role
from .call import Asked, Count, Limit, Look, Nothing, Text
from .views import (
    EventView,
    PreviewView,
    RequestContent,
    event_view,
    preview_view,
    request_content,
    row_view,
    without_errors,
)

IN_PAYLOADS = ("text", "error", "cause")
"""Filters on data that a viewer may not see: repeated queries would reveal it."""


class Page(Filter, frozen=True, forbid_unknown_fields=True):
    """A filter and a page."""

    before: UUID | None = None
    """Only older than this event: `next` of the previous page."""
    limit: Limit = 50


class Events(Struct, frozen=True):
    events: list[EventRow]
    next: UUID | None
    """`before` for the next page, even if this one is empty; null at the end."""
    looked_at: int | None
    """Events read before the search stopped early; null if it did not."""


class Counted(Struct, frozen=True):
    count: Count


class Timeline(Struct, frozen=True):
    entries: tuple[Entry, ...]
    """Oldest first."""
    complete: bool
    """False for a viewer: errors are left out."""


class Conflicts(Struct, frozen=True):
    conflicts: list[Conflict]
    """At most three, newest first."""


class Repeats(Struct, frozen=True, forbid_unknown_fields=True):
    repeat_effects: list[Text] = []
    """Finished effects to perform again: NAME, NAME:KEY or an idempotency key."""


def asked_filter(asked: Asked[Any, Nothing]) -> Filter:
    """Return the query's filter, if the caller's role allows all of it."""
    for name in IN_PAYLOADS:
        if getattr(asked.query, name, None) is not None:
            asked.caller.require(Role.OPERATOR, f"the filter {name}")
    return Filter(**{name: getattr(asked.query, name) for name in Filter.__struct_fields__})


async def list_events(asked: Asked[Page, Nothing]) -> Events:
    """List events, newest first. The filters `text`, `error` and `cause` need the role operator.

    A long search stops early: a page may be short or empty without being the last.
    """
    page = await search.page(asked.context, asked_filter(asked), before=asked.query.before, limit=asked.query.limit)
    return Events([row_view(row, complete=asked.sees_all) for row in page.events], page.next, page.looked_at)


async def count_events(asked: Asked[Filter, Nothing]) -> Counted:
    """Count the events that match the filter."""
    return Counted(await search.count(asked.context, asked_filter(asked)))


async def show_event(asked: Look) -> EventView:
    """Show one event in full, by id, id prefix or key.

    A viewer gets no arguments, results and errors. A key with a slash cannot be used here. A stage is named by its
    id, which `stages` has.
    """
    history = await search.find(asked.context, asked.path["reference"])
    return event_view(history, preview(asked.context, history), complete=asked.sees_all)


async def show_request(asked: Look) -> RequestContent:
    """Show the request that brought an event: its exact body in base64, headers and query without secrets."""
    history = await search.find(asked.context, asked.path["reference"])
    if history.request is None:
        raise NotFound(f"the body of event {history.event.id} is not kept: pruned or erased")
    return request_content(history.request)


async def list_conflicts(asked: Look) -> Conflicts:
    """List the newest deliveries whose content differs from the event's, and which fields differ."""
    history = await search.find(asked.context, asked.path["reference"])
    return Conflicts(await conflicts(asked.context, history))


async def preview_replay(asked: Asked[Repeats, Nothing]) -> PreviewView:
    """Show what a new run would do now, by replay or approval, and whether it is safe; nothing is changed."""
    history = await search.find(asked.context, asked.path["reference"])
    return preview_view(history.event, preview(asked.context, history, asked.query.repeat_effects))


async def show_answers(asked: Look) -> Answers:
    """Summarize an event: when it first arrived, how often it was attempted, which
    effects are done, which are open, who replayed or reviewed it, and whether another replay is safe."""
    history = await search.find(asked.context, asked.path["reference"])
    shown = history if asked.sees_all else without_errors(history)
    answers = answer(shown, preview(asked.context, history))
    reason = row_view(history.event, complete=asked.sees_all).reason
    return msgspec.structs.replace(answers, reason=reason)


async def show_timeline(asked: Look) -> Timeline:
    """Show everything that happened to an event, in order, with every key. A viewer gets no errors."""
    history = await search.find(asked.context, asked.path["reference"])
    shown = history if asked.sees_all else without_errors(history)
    return Timeline(timeline(shown), asked.sees_all)

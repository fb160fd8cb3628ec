"""Reading events: the list, one in full, its bytes, its story, what a replay would do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from ...filters import Filter
from ...model import EventRow
from ..answers import Answers, answer
from ..difference import Conflict
from ..insight import NotFound
from ..timeline import Entry
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
"""Filters that look into what a viewer may not see, and would tell it by and by."""


class Page(Filter, frozen=True, forbid_unknown_fields=True):
    """A filter, and where the page begins."""

    before: UUID | None = None
    """Older than this event: `next` of the page before."""
    limit: Limit = 50


class Events(Struct, frozen=True):
    events: list[EventRow]
    next: UUID | None
    """`before` of the next page, be there events on this one or not; null at the end."""
    looked_at: int | None
    """How many events were looked at before the search stopped short of a full page; null when it did not."""


class Counted(Struct, frozen=True):
    count: Count


class Timeline(Struct, frozen=True):
    entries: tuple[Entry, ...]
    """The first first."""
    complete: bool
    """False for a viewer: errors are left out."""


class Conflicts(Struct, frozen=True):
    conflicts: list[Conflict]
    """At most three, the newest first."""


class Repeats(Struct, frozen=True, forbid_unknown_fields=True):
    repeat_effects: list[Text] = []
    """Effects that are to be done once more: NAME, NAME:KEY, or an idempotency key."""


def asked_filter(asked: Asked[Any, Nothing]) -> Filter:
    """That of the query, if the caller may use all of it."""
    for name in IN_PAYLOADS:
        if getattr(asked.query, name, None) is not None:
            asked.caller.require(Role.OPERATOR, f"the filter {name}")
    return Filter(**{name: getattr(asked.query, name) for name in Filter.__struct_fields__})


async def list_events(asked: Asked[Page, Nothing]) -> Events:
    """Events, the newest first. The filters `text`, `error` and `cause` need the role operator.

    A search that has to read much stops now and then: a page may be short, or empty, and not the last.
    """
    page = await asked.insight.page(asked_filter(asked), before=asked.query.before, limit=asked.query.limit)
    return Events([row_view(row, complete=asked.sees_all) for row in page.events], page.next, page.looked_at)


async def count_events(asked: Asked[Filter, Nothing]) -> Counted:
    """How many events there are for which the filter holds."""
    return Counted(await asked.insight.count(asked_filter(asked)))


async def show_event(asked: Look) -> EventView:
    """Everything known of one event: by id, the beginning of one, or key.

    A viewer sees neither arguments nor results nor errors. A key that has a slash in it cannot be named here.
    """
    history = await asked.insight.event(asked.path["reference"])
    return event_view(history, asked.insight.preview(history), complete=asked.sees_all)


async def show_request(asked: Look) -> RequestContent:
    """The request that brought an event: its exact body in base64, headers and query less presented secrets."""
    history = await asked.insight.event(asked.path["reference"])
    if history.request is None:
        raise NotFound(f"the bytes of event {history.event.id} are not kept")
    return request_content(history.request)


async def list_conflicts(asked: Look) -> Conflicts:
    """The newest deliveries of an event with other content than it has, and what differs: fields and their values."""
    history = await asked.insight.event(asked.path["reference"])
    return Conflicts(await asked.insight.conflicts(history))


async def preview_replay(asked: Asked[Repeats, Nothing]) -> PreviewView:
    """What a replay would do now, and whether it is safe; nothing is changed."""
    history = await asked.insight.event(asked.path["reference"])
    repeated = asked.insight.repeated(history, asked.query.repeat_effects)
    return preview_view(history.event, asked.insight.preview(history, repeated))


async def answer_questions(asked: Look) -> Answers:
    """The six questions about one event: when it first came, how often it was tried, which effects are done, which
    are open, who replayed it, and whether another replay is safe."""
    history = await asked.insight.event(asked.path["reference"])
    answers = answer(history, asked.insight.preview(history))
    reason = row_view(history.event, complete=asked.sees_all).reason
    return msgspec.structs.replace(answers, reason=reason)


async def show_timeline(asked: Look) -> Timeline:
    """All that happened to one event, in order, with every key. A viewer sees no errors."""
    history = await asked.insight.event(asked.path["reference"])
    shown = history if asked.sees_all else without_errors(history)
    return Timeline(asked.insight.timeline(shown), asked.sees_all)

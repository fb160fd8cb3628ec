"""Tries schemas on stored events: what they would have refused."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from ...schemas.breaks import in_words
from ...schemas.compiled import Schema, is_plain
from ...store.causes import cause_of
from ...store.history import EventRow
from ..context import Context
from .stored import Progress, contents, untold

MOST_GROUPS = 200
SAMPLE = 3

Find = Callable[[EventRow], Schema | None]


class BrokenGroup(Struct):
    """Events that break a schema at the same place."""

    cause: str
    """As `hookledger failures` would have it."""
    expected: str
    """Of the first of them,"""
    found: str
    count: int
    sample: list[UUID]
    """The newest of them."""


class SchemaReport(Struct):
    """What schemas say of stored events."""

    source: str
    looked_at: int = 0
    fitting: int = 0
    broken: int = 0
    without_schema: int = 0
    unreadable: int = 0
    """Erased, or not in the provider's form."""
    groups: list[BrokenGroup] = []
    """Most frequent first. An event that breaks a schema at several places is in several."""
    more_groups: bool = False
    """Whether there are further ones, which are not counted."""
    next: UUID | None = None
    """Continue before this event; None: there is no older one."""


async def check(
    context: Context,
    source: str,
    kind: str | None,
    find: Find,
    *,
    last: int,
    version: str | None = None,
    before: UUID | None = None,
    progress: Progress = untold,
) -> SchemaReport:
    """Check the newest `last` events of a source, or of one version, from before `before`. Nothing is changed."""
    context.sources.endpoint(source)
    report, groups = SchemaReport(source), dict[str, BrokenGroup]()
    oldest: UUID | None = None
    async for stored in contents(context, source, kind, last=last, version=version, before=before):
        report.looked_at += 1
        oldest = stored.event.id
        schema = find(stored.event)
        if schema is None:
            report.without_schema += 1
        elif stored.raw is None:
            report.unreadable += 1
        elif breaks := schema.check(stored.content, plain=is_plain(stored.raw)):
            report.broken += 1
            told = {str(cause_of(in_words(schema.name, [one])[0])): one for one in reversed(breaks)}
            for cause, one in told.items():
                group = groups.get(cause)
                if group is None and len(groups) == MOST_GROUPS:
                    report.more_groups = True
                    continue
                if group is None:
                    group = groups[cause] = BrokenGroup(cause, one.expected, one.found, 0, [])
                group.count += 1
                if len(group.sample) < SAMPLE:
                    group.sample.append(stored.event.id)
        else:
            report.fitting += 1
        progress(report.looked_at)
    report.groups = sorted(groups.values(), key=lambda group: (-group.count, group.cause))
    report.next = oldest if report.looked_at >= last else None
    return report

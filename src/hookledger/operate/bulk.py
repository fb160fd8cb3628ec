"""Bulk work: what it would be about, its planning, and what stands against acting on one event of it."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..filters import Filter
from ..jobs import Deed, Job, NewJob, Portion
from ..model import Evidence, new_id
from ..states import BY_NAME
from ..store.protocol import Store
from .preview import Declared, Verdict, foresee

PER_SECOND = 100.0
"""The pace of a job, unless it names another."""
SAMPLE = 200
"""Of so many events a forecast tells the verdicts."""


class Prospect(Struct, frozen=True):
    """What a job would be about, if it were made now."""

    name: Deed
    count: int
    portions: tuple[Portion, ...]
    """The largest first; at most a hundred."""
    fitting: int
    """How many of those portions are in a state that the action begins in; the rest would be refused."""
    verdicts: dict[str, int]
    """For a replay: what previews say about the newest of them,"""
    sampled: int
    """which are so many."""


async def look(store: Store, declared: Declared, name: Deed, where: Filter) -> Prospect:
    """Reads no more than a sample of the events themselves. What it says may have changed by the next moment: only
    the count is held to, when the job is planned."""
    portions = tuple(await store.jobs.breakdown(where))
    allowed = BY_NAME[name].sources
    fitting = sum(portion.count for portion in portions if portion.state in allowed)
    verdicts: Counter[str] = Counter()
    if name == "replay":
        newest = await store.events(where, limit=SAMPLE)
        for evidence in await store.jobs.evidence([row.id for row in newest]):
            verdicts[foresee(evidence, declared).verdict.value] += 1
    return Prospect(name, await store.count(where), portions, fitting, dict(verdicts), verdicts.total())


async def plan(
    store: Store, name: Deed, where: Filter, actor: str, reason: str, *, count: int | None, per_second: float
) -> Job:
    """Freeze the set, which must have `count` events if that is given."""
    if not math.isfinite(per_second) or per_second < 0:
        raise ConfigError("a pace is a number of events a second; 0: as fast as it goes")
    try:
        msgspec.json.encode(where)
    except UnicodeEncodeError as error:
        raise ConfigError("the filter has text in it that no database can keep") from error
    new = NewJob(id=new_id(), name=name, where=where, actor=actor, reason=reason, per_second=per_second)
    return await store.jobs.plan(new, count)


def objection(evidence: Evidence, declared: Declared) -> str | None:
    """Why an event must not be replayed without a person's decision; None when nothing stands against it."""
    preview = foresee(evidence, declared)
    return preview.words if preview.verdict is Verdict.NEEDS_A_DECISION else None

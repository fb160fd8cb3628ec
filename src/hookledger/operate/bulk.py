"""Bulk work: what it would be about, its planning, and what stands against acting on one event of it."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..filters import Filter
from ..identities import new_id
from ..model import Evidence
from ..states import BY_NAME
from ..store.ops.job import Decided, Deed, Job, NewJob, Portion, Resolving
from ..store.protocol import Store
from .preview import Declared, Verdict, foresee

PER_SECOND = 100.0
"""The pace of a job, unless it names another."""
SAMPLE = 200
"""Of so many events a forecast tells the verdicts."""
THEN: dict[Decided, str] = {
    "happened": (
        "Each counts as done, and is not called again; events that waited for this go on. No result is recorded: a "
        "handler that needs one stops at it until `hookledger resolve EVENT EFFECT --happened --result …` gives it"
    ),
    "did_not_happen": (
        "Each is called again, under the same idempotency key: by the outbox at once, or by the handler of its "
        "event, which goes on if it waited for this. One that did happen after all may be done twice"
    ),
}
"""What follows a decision, for those who are to agree to it."""


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
    effects: int | None = None
    """For a resolve: how many effects would be decided. To agree is to name this number, and not that of events."""
    then: str | None = None
    """What would follow."""
    fingerprint: str | None = None
    """For a resolve: which effects, and which calls of them. A job that is planned with it decides no later call."""

    @property
    def agreed(self) -> int:
        """The number that is agreed to."""
        return self.count if self.effects is None else self.effects


async def look(
    store: Store, declared: Declared, name: Deed, where: Filter, resolving: Resolving | None = None
) -> Prospect:
    """Reads no more than a sample of the events themselves. What it says may have changed by the next moment: only
    the count is held to, when the job is planned."""
    _check(name, where, resolving)
    if resolving is not None:
        return await _look_at_effects(store, where, resolving)
    portions = tuple(await store.jobs.breakdown(where))
    allowed = BY_NAME[name].sources
    fitting = sum(portion.count for portion in portions if portion.state in allowed)
    verdicts: Counter[str] = Counter()
    if name == "replay":
        newest = await store.events(where, limit=SAMPLE)
        for evidence in await store.jobs.evidence([row.id for row in newest]):
            verdicts[foresee(evidence, declared).verdict.value] += 1
    return Prospect(name, await store.count(where), portions, fitting, dict(verdicts), verdicts.total())


async def _look_at_effects(store: Store, where: Filter, resolving: Resolving) -> Prospect:
    """An effect can be decided in whatever state its event is."""
    portions = tuple(await store.jobs.breakdown(where, resolving.effect))
    found = await store.jobs.doubtful(where, resolving.effect)
    fitting, then = sum(portion.count for portion in portions), THEN[resolving.decision]
    return Prospect("resolve", found.events, portions, fitting, {}, 0, found.effects, then, found.fingerprint)


def _check(name: Deed, where: Filter, resolving: Resolving | None, fingerprint: str | None = None) -> None:
    if name == "resolve" and resolving is None:
        raise ConfigError("to resolve, name the effect, and say whether it happened")
    if name != "resolve" and resolving is not None:
        raise ConfigError(f"a {name} decides no effect: only resolve names one")
    if resolving is None and fingerprint is not None:
        raise ConfigError(f"a {name} has no fingerprint: only resolve has one")
    if resolving is not None and (where.effect or "").startswith(f"{resolving.effect}:"):
        says = f"{where.effect} chooses its event, of which every unknown {resolving.effect} would be decided"
        raise ConfigError(f"{says}: to decide this one, use `hookledger resolve`")


async def plan(
    store: Store,
    name: Deed,
    where: Filter,
    actor: str,
    reason: str,
    *,
    count: int | None,
    per_second: float,
    resolving: Resolving | None = None,
    fingerprint: str | None = None,
) -> Job:
    """Freeze the set, which must have `count` events, or effects to be decided, if that is given; and if there is a
    fingerprint, these with the calls that were looked at."""
    _check(name, where, resolving, fingerprint)
    if not math.isfinite(per_second) or per_second < 0:
        raise ConfigError("a pace is a number of events a second; 0: as fast as it goes")
    try:
        msgspec.json.encode(where)
    except UnicodeEncodeError as error:
        raise ConfigError("the filter has text in it that no database can keep") from error
    new = NewJob(
        id=new_id(),
        name=name,
        where=where,
        actor=actor,
        reason=reason,
        per_second=per_second,
        resolving=resolving,
        fingerprint=fingerprint,
    )
    return await store.jobs.plan(new, count)


def objection(evidence: Evidence, declared: Declared) -> str | None:
    """Why an event must not be replayed without a person's decision; None when nothing stands against it."""
    preview = foresee(evidence, declared)
    return preview.words if preview.verdict is Verdict.NEEDS_A_DECISION else None

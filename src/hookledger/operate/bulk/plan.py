"""Plans bulk jobs: what one would act on, freezing its set, and why a replay in it is not allowed."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...ids import new_id
from ...model import Kind
from ...states import BY_NAME
from ...store.ops.audit import Audit
from ...store.ops.filters import Filter
from ...store.ops.job import BulkAction, Decided, EventGroup, Job, NewJob, Resolving
from ...store.protocol import Store
from ..context import Context
from ..replay.preview import preview_replay
from ..replay.stages import check_stage

PER_SECOND = 100.0
"""Default events per second of a job."""
SAMPLE = 200
"""Events sampled for replay verdicts."""
CONSEQUENCES: dict[Decided, str] = {
    "happened": (
        "Each counts as done, and is not called again; events that waited for this continue. No result is recorded: "
        "a handler that needs one stops at it until `hookledger resolve EVENT EFFECT --happened --result …` gives it"
    ),
    "did_not_happen": (
        "Each is called again, under the same idempotency key: by the outbox immediately, or by the handler of "
        "its event, which continues if it waited for this. An effect that did happen may then happen twice"
    ),
}
"""What follows a decision, shown before you confirm."""
ADDED = "Each gets the stage, which is processed for the first time; the event and its other stages stay as they are"
"""What follows a replay of events that lack a stage."""


class JobPreview(Struct, frozen=True):
    """What a job would act on if it were planned now."""

    name: BulkAction
    count: int
    groups: tuple[EventGroup, ...]
    """Largest first; at most a hundred."""
    allowed: int
    """Events in a state in which the action is allowed; for the others it is not."""
    verdicts: dict[str, int]
    """For a replay: verdicts of the newest events,"""
    sampled: int
    """and how many were sampled."""
    effects: int | None = None
    """For a resolve: number of effects to decide. You confirm this number, not that of events."""
    consequence: str | None = None
    """What would follow, if that is not what the action says."""
    fingerprint: str | None = None
    """For a resolve: digest of the effects and their calls. A job planned with it decides no later call."""

    @property
    def agreed(self) -> int:
        """The number to confirm."""
        return self.count if self.effects is None else self.effects


async def look(context: Context, name: BulkAction, where: Filter, resolving: Resolving | None = None) -> JobPreview:
    """Return what a job would act on if it were planned now. Reads only a sample of the events themselves.

    The result may change: planning compares only the count, and the fingerprint if given.
    """
    _check(name, where, resolving)
    store = context.store
    if resolving is not None:
        return await _look_at_effects(store, where, resolving)
    groups = tuple(await store.jobs.breakdown(where))
    states = BY_NAME[name].sources
    allowed = sum(group.count for group in groups if group.state in states)
    if where.lacks_stage is not None:
        for group in groups:
            kind = Kind(group.source, group.type)
            check_stage(context.application, kind, where.lacks_stage, any_version=True)
        return JobPreview(name, sum(group.count for group in groups), groups, allowed, {}, 0, consequence=ADDED)
    verdicts: Counter[str] = Counter()
    if name == "replay":
        newest = await store.search.events(where, limit=SAMPLE)
        for evidence in await store.jobs.evidence([row.id for row in newest]):
            verdicts[preview_replay(evidence, context.application).verdict.value] += 1
    return JobPreview(name, await store.search.count(where), groups, allowed, dict(verdicts), verdicts.total())


async def _look_at_effects(store: Store, where: Filter, resolving: Resolving) -> JobPreview:
    """Count effects; an effect can be decided in any state of its event."""
    groups = tuple(await store.jobs.breakdown(where, resolving.effect))
    found = await store.jobs.unknown_effects(where, resolving.effect)
    allowed, consequence = sum(group.count for group in groups), CONSEQUENCES[resolving.decision]
    return JobPreview("resolve", found.events, groups, allowed, {}, 0, found.effects, consequence, found.fingerprint)


def _check(name: BulkAction, where: Filter, resolving: Resolving | None, fingerprint: str | None = None) -> None:
    if where.lacks_stage is not None and name != "replay":
        raise ConfigError(f"{name} takes no filter lacks_stage: only replay does, and adds the stage")
    if name == "resolve" and resolving is None:
        raise ConfigError("resolve needs the name of the effect and whether it happened")
    if name != "resolve" and resolving is not None:
        raise ConfigError(f"{name} takes no effect: only resolve does")
    if resolving is None and fingerprint is not None:
        raise ConfigError(f"{name} takes no fingerprint: only resolve does")
    if resolving is not None and (where.effect or "").startswith(f"{resolving.effect}:"):
        says = f"{where.effect} chooses its event, of which every unknown {resolving.effect} would be decided"
        raise ConfigError(f"{says}: to decide this one, use `hookledger resolve`")


async def plan(
    context: Context,
    by: Audit,
    name: BulkAction,
    where: Filter,
    *,
    count: int | None = None,
    per_second: float = PER_SECOND,
    resolving: Resolving | None = None,
    fingerprint: str | None = None,
) -> Job:
    """Plan a job: freeze the matching events. A worker acts on each at this rate, as the single action would.

    `count`: the required number; None: any. `resolving`: for `resolve`, which effects and how; then `count` is the
    number of effects, and with the preview's `fingerprint` the job decides no call made after the preview.
    """
    _check(name, where, resolving, fingerprint)
    if not math.isfinite(per_second) or per_second < 0:
        raise ConfigError("per_second must be a finite number of events per second, 0 or more; 0: unlimited")
    try:
        msgspec.json.encode(where)
    except UnicodeEncodeError as error:
        raise ConfigError("the filter contains text that no database can store") from error
    new = NewJob(
        id=new_id(),
        name=name,
        where=where,
        actor=by.actor,
        reason=by.reason,
        per_second=per_second,
        resolving=resolving,
        fingerprint=fingerprint,
    )
    return await context.store.jobs.plan(new, count)

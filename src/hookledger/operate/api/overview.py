"""The inbox as a whole: counts, health, workers, doctor, providers."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ...providers import words
from ...providers.catalogue import contracts, known
from ...store import SCHEMA_RANGE
from ...store.history import Health
from .. import search
from ..doctor.checks import examine
from ..doctor.finding import Finding
from ..errors import NotFound
from ..health import database_health
from ..search import Summary
from ..workers import workers
from .auth import Caller
from .call import Asked, Look, Nothing


class HealthView(Struct, frozen=True):
    health: Health
    schema_range: list[int]
    """Oldest and newest schema version that this release works with."""
    caller: Caller
    """Name and role of the caller's token."""
    unauthenticated: int
    """Requests without a valid token since the start."""


class Handles(Struct, frozen=True):
    source: str
    type: str
    """Exact, or a pattern ending in `*`."""
    version: str
    """Exact, or a pattern ending in `*`; `*` is every event, also without a version."""


class WorkerView(Struct, frozen=True):
    id: str
    handles: list[Handles]
    """What each handler processes."""
    seen_ago: float
    alive: bool


class Workers(Struct, frozen=True):
    workers: list[WorkerView]


class DoctorQuery(Struct, frozen=True, forbid_unknown_fields=True):
    deep: bool = False
    """Have the database check its file too."""
    limit: Annotated[float, Meta(gt=0, le=120)] = 60.0
    """Time limit in seconds of the consistency check and of `deep`."""


class Examined(Struct, frozen=True):
    problems: int
    warnings: int
    findings: list[Finding]


class Provider(Struct, frozen=True):
    name: str
    title: str
    proof: str
    confirmed: dict[str, str]
    facts: dict[str, list[str]]
    example: str
    """Example for hookledger.toml."""


class Providers(Struct, frozen=True):
    providers: list[str]


async def summary(asked: Look) -> Summary:
    """Count events by state, and deliveries by outcome."""
    return await search.summary(asked.context)


async def health(asked: Look) -> HealthView:
    """Show whether the database can be written, and the caller."""
    return HealthView(await database_health(asked.context), list(SCHEMA_RANGE), asked.caller, asked.unauthenticated)


async def list_workers(asked: Look) -> Workers:
    """List workers that are alive, and those that died without stopping."""
    lease = asked.context.lease
    return Workers(
        [
            WorkerView(one.id, [Handles(*pattern) for pattern in one.handles], one.seen_ago, one.alive(lease))
            for one in await workers(asked.context)
        ]
    )


async def doctor(asked: Asked[DoctorQuery, Nothing]) -> Examined:
    """Check consistency, database, clocks, workers, sources and rejections.

    The consistency check reads one snapshot, which takes time with many events.
    """
    query = asked.query
    found = await examine(asked.context, deep=query.deep, limit=query.limit)
    levels = [finding.level for finding in found]
    return Examined(levels.count("problem"), levels.count("warn"), found)


async def list_providers(asked: Look) -> Providers:
    """List the known providers."""
    del asked
    return Providers(sorted(contracts()))


async def show_provider(asked: Look) -> Provider:
    """Describe one provider."""
    contract = known(asked.path["provider"])
    if contract is None:
        raise NotFound(f"unknown provider {asked.path['provider']!r}: GET /api/v1/providers lists the known ones")
    facts: dict[str, list[Any]] = {}
    for fact in words.facts(contract):
        facts.setdefault(fact.name.replace(" ", "_"), []).append(fact.value)
    return Provider(
        name=contract.name,
        title=contract.title,
        proof=words.kind(contract.scheme),
        confirmed={fact.name: fact.value for fact in words.confirmed(contract)},
        facts=facts,
        example=words.example(contract),
    )

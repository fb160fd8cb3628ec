"""The inbox as a whole: counts, health, workers, what the doctor says, the providers that are known."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ...model import Health, Kind, WorkerInfo
from ...providers import words
from ...providers.catalogue import contracts
from ...providers.contract import Contract
from ...store import SCHEMA_RANGE
from ..doctor import examine
from ..finding import Finding
from ..insight import NotFound, Summary
from .auth import Caller
from .call import Asked, Look, Nothing


class HealthView(Struct, frozen=True):
    health: Health
    schema_range: list[int]
    """The oldest and the newest that this release works with."""
    caller: Caller
    """Who asks."""
    refused: int
    """Requests without a valid token, since the start."""


class WorkerView(Struct, frozen=True):
    id: str
    handles: list[Kind]
    """Source and type, or pattern of types, of every handler it has."""
    seen_ago: float
    alive: bool


class Workers(Struct, frozen=True):
    workers: list[WorkerView]


class DoctorQuery(Struct, frozen=True, forbid_unknown_fields=True):
    deep: bool = False
    """Let the database check its own file as well."""
    limit: Annotated[float, Meta(gt=0, le=120)] = 60.0
    """Seconds that the books, or the file, may be looked at."""


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
    """For hookledger.toml."""


class Providers(Struct, frozen=True):
    providers: list[str]


async def summary(asked: Look) -> Summary:
    """How many events there are in each state, and deliveries of each outcome."""
    return await asked.insight.summary()


async def health(asked: Look) -> HealthView:
    """Whether the database can be written, and who asks."""
    return HealthView(await asked.insight.health(), list(SCHEMA_RANGE), asked.caller, asked.refused)


async def list_workers(asked: Look) -> Workers:
    """Every worker seen that has not stopped: those that live, and those that died."""
    lease = asked.services.lease
    seen = await asked.insight.workers()
    return Workers([_worker(one, lease) for one in seen])


def _worker(seen: WorkerInfo, lease: float) -> WorkerView:
    handles = [Kind(source, pattern) for source, pattern in seen.handles]
    return WorkerView(seen.id, handles, seen.seen_ago, seen.alive(lease))


async def doctor(asked: Asked[DoctorQuery, Nothing]) -> Examined:
    """Look at the inbox: whether every event is accounted for, database, clocks, workers, sources, what was refused.

    The books are read in one snapshot, which takes a while on many events."""
    query = asked.query
    found = await examine(asked.insight, lease=asked.services.lease, deep=query.deep, limit=query.limit)
    levels = [finding.level for finding in found]
    return Examined(levels.count("problem"), levels.count("warn"), found)


async def list_providers(asked: Look) -> Providers:
    """The providers that are known."""
    del asked
    return Providers(sorted(contracts()))


async def show_provider(asked: Look) -> Provider:
    """Everything about one provider."""
    contract = contracts().get(asked.path["provider"])
    if contract is None:
        raise NotFound(f"no provider is called {asked.path['provider']!r}")
    return _provider(contract)


def _provider(contract: Contract) -> Provider:
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

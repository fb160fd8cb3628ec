"""Sources: their settings and their keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from ...errors import ConfigError
from ...providers.fields import written
from ...receive.endpoint import Endpoint
from ...store.ops.imported_keys import Imported
from ..errors import NotFound
from ..examine import unprovable
from ..keys import audit, cutover
from ..keys.audit import KeyReport
from ..keys.cutover import Comparison, KeyRule
from .call import Asked, Look, Nothing, Reason

Part = Annotated[str, Meta(max_length=1000)] | Annotated[int, Meta(ge=-(2**53), le=2**53)]


class Source(Struct, frozen=True):
    name: str
    provider: str
    title: str
    key: list[str]
    """Fields of the event key; empty if the content or a function makes the key."""
    key_function: bool
    horizon: float | None
    """Seconds; null: keys are kept forever."""
    unprovable: str | None
    """Why its rejected requests cannot be verified again; null if they can."""
    advice: tuple[str, ...]


class Sources(Struct, frozen=True):
    sources: list[Source]


class KeysQuery(Struct, frozen=True, forbid_unknown_fields=True):
    last: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """Number of newest events to read."""
    sample: Annotated[int, Meta(ge=0, le=1000)] = 200
    """Kept requests to try rules on."""


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    keys: Annotated[list[Annotated[list[Part], Meta(min_length=1, max_length=10)]], Meta(max_length=50_000)]
    """One list per event: the key's fields, in order."""


class KeysToImport(Keys, frozen=True, forbid_unknown_fields=True):
    """Keys of events that another system processed."""

    reason: Reason


async def list_sources(asked: Look) -> Sources:
    """List the configured sources."""
    examiner = asked.context.sources
    return Sources([_source(examiner.endpoint(name), examiner.source(name).advice()) for name in examiner.names])


def _source(endpoint: Endpoint, advice: list[str]) -> Source:
    return Source(
        name=endpoint.name,
        provider=endpoint.contract.name,
        title=endpoint.contract.title,
        key=list(map(written, endpoint.key_fields)),
        key_function=endpoint.key_function is not None,
        horizon=endpoint.settings.horizon,
        unprovable=unprovable(endpoint),
        advice=tuple(advice),
    )


def known_source(asked: Asked[Any, Any]) -> str:
    """Return the source in the path; NotFound if it is not configured."""
    name = asked.path["source"]
    if name not in asked.context.sources.names:
        raise NotFound(f"unknown source {name!r}: GET /api/v1/sources lists the configured ones")
    return name


async def audit_keys(asked: Asked[KeysQuery, Nothing]) -> KeyReport:
    """Audit a source's event keys on its newest events, and propose a rule that fits. Nothing is changed."""
    query = asked.query
    return await audit.audit_keys(asked.context, known_source(asked), last=query.last, sample=query.sample)


def _parts(rule: KeyRule, keys: list[list[str | int]]) -> list[tuple[bytes, ...]]:
    found = []
    for number, key in enumerate(keys, 1):
        parts = rule.parts(key) if len(key) == len(rule.wanted) else None
        if parts is None:
            raise ConfigError(f"entry {number:,} is no key of {rule.source!r}: {' + '.join(rule.wanted)}")
        found.append(parts)
    return found


async def compare_keys(asked: Asked[Nothing, Keys]) -> Comparison:
    """Compare keys of another system with those recorded here. Nothing is imported."""
    rule = KeyRule(asked.context.sources.endpoint(known_source(asked)))
    parts = _parts(rule, asked.body.keys)

    async def batches() -> AsyncIterator[list[tuple[bytes, ...]]]:
        yield parts

    return await cutover.compare(asked.context, rule, batches())


async def import_keys(asked: Asked[Nothing, KeysToImport]) -> Imported:
    """Import keys processed by another system: a delivery with one is then a duplicate. Safe to repeat."""
    source = known_source(asked)
    rule = KeyRule(asked.context.sources.endpoint(source))
    identities = [rule.identity(parts) for parts in _parts(rule, asked.body.keys)]
    return await cutover.import_keys(asked.context, asked.by, source, identities)

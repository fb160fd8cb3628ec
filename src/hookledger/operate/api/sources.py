"""Sources: what they are, verifying their rejected requests again, their keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from ...errors import ConfigError
from ...model import Recorded
from ...providers.fields import written
from ...store.ops.imported_keys import Imported
from ..audit import KeyReport
from ..cutover import Comparison, KeyRule
from ..insight import NotFound
from ..receiving import SourceFacts
from ..recheck import Rechecked
from .call import Asked, Look, Nothing, Reason
from .circuits import Why

Part = Annotated[str, Meta(max_length=1000)] | Annotated[int, Meta(ge=-(2**53), le=2**53)]


class Source(Struct, frozen=True):
    name: str
    provider: str
    title: str
    key: list[str]
    """The fields that make two deliveries one event; none where the content is the key, or a function."""
    key_function: bool
    horizon: float | None
    """Seconds; null: identities are kept for ever."""
    unprovable: str | None
    """Why its rejected requests cannot be verified again; null where they can."""
    advice: tuple[str, ...]


class Sources(Struct, frozen=True):
    sources: list[Source]


class KeysQuery(Struct, frozen=True, forbid_unknown_fields=True):
    last: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """Events to look at, the newest."""
    sample: Annotated[int, Meta(ge=0, le=1000)] = 200
    """Kept requests to try rules on."""


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    keys: Annotated[list[Annotated[list[Part], Meta(min_length=1, max_length=10)]], Meta(max_length=50_000)]
    """One list for each event: the fields of its key, in their order."""


class KeysToImport(Keys, frozen=True, forbid_unknown_fields=True):
    """Keys whose events were processed elsewhere."""

    reason: Reason


class Judged(Struct, frozen=True):
    """One rejected request, verified again."""

    id: UUID
    received_at: datetime
    was: str
    """The reason it was rejected for."""
    authentic: bool
    still: str | None
    """The reason that it would be rejected for now."""
    became: tuple[Recorded, ...]
    """The outcome of each event in it, if it was accepted."""


class Recheck(Struct, frozen=True):
    requests: list[Judged]


async def list_sources(asked: Look) -> Sources:
    """The sources that are configured here."""
    receiving = asked.insight.receiving
    return Sources([_source(receiving.facts(name)) for name in receiving.sources()])


def _source(facts: SourceFacts) -> Source:
    return Source(
        name=facts.name,
        provider=facts.contract.name,
        title=facts.contract.title,
        key=list(map(written, facts.key_fields)),
        key_function=facts.key_function,
        horizon=facts.horizon,
        unprovable=facts.unprovable,
        advice=facts.advice,
    )


def known_source(asked: Asked[Any, Any]) -> str:
    """That of the path, if it is configured here."""
    name = asked.path["source"]
    if name not in asked.insight.receiving.sources():
        raise NotFound(f"there is no source {name!r}")
    return name


async def audit_keys(asked: Asked[KeysQuery, Nothing]) -> KeyReport:
    """What the last events of a source say about its keys, and which rule would fit them. Nothing is changed."""
    source = known_source(asked)
    hint = asked.insight.receiving.facts(source).contract.hint
    return await asked.insight.keys(source, last=asked.query.last, sample=0 if hint else asked.query.sample)


def _parts(rule: KeyRule, keys: list[list[str | int]]) -> list[tuple[bytes, ...]]:
    found = []
    for number, key in enumerate(keys, 1):
        parts = rule.parts(key) if len(key) == len(rule.wanted) else None
        if parts is None:
            raise ConfigError(f"entry {number:,} is no key of {rule.source!r}: {' + '.join(rule.wanted)}")
        found.append(parts)
    return found


async def compare_keys(asked: Asked[Nothing, Keys]) -> Comparison:
    """Keys from elsewhere beside those of this inbox. Nothing is imported."""
    rule = asked.insight.key_rule(known_source(asked))
    parts = _parts(rule, asked.body.keys)

    async def batches() -> AsyncIterator[list[tuple[bytes, ...]]]:
        yield parts

    return await asked.insight.compare_keys(rule, batches())


async def import_keys(asked: Asked[Nothing, KeysToImport]) -> Imported:
    """Make keys known that were processed elsewhere: a delivery of one is then a duplicate. May be repeated."""
    source = known_source(asked)
    rule = asked.insight.key_rule(source)
    identities = [rule.identity(parts) for parts in _parts(rule, asked.body.keys)]
    return await asked.actions.import_keys(source, identities, asked.body.reason)


async def recheck_rejections(asked: Look) -> Recheck:
    """Verify the rejected requests of a source again, with the secrets configured now. Records nothing."""
    return _recheck(await asked.insight.recheck(known_source(asked)))


async def accept_rejections(asked: Asked[Nothing, Why]) -> Recheck:
    """Verify the rejected requests of a source again, and record those that are authentic now. They leave the sample:
    a second call does not find them."""
    return _recheck(await asked.actions.take_in(known_source(asked), asked.body.reason))


def _recheck(found: list[Rechecked]) -> Recheck:
    return Recheck([Judged(o.id, o.received_at, o.was, o.authentic, o.still, o.became) for o in found])

"""Audits a source's keys on live data: the store's figures, and which rule would fit the kept requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from msgspec import Struct

from ...errors import UnreadableError
from ...model import unpack_headers
from ...providers.fields import Constant, Header, Present, written
from ...receive.endpoint import Endpoint
from ...store.ops.filters import Filter
from ...store.ops.key_audit import KeyAudit, KeyGroup
from .. import search
from ..context import Context
from .fit import Fit, Observation, fit, repeated, values_of

PAGE = 200


class KeyReport(Struct, frozen=True, kw_only=True):
    """What live data shows about a source's keys."""

    audit: KeyAudit
    rule: tuple[str, ...]
    """Fields of the current key; empty if there is none."""
    changing: tuple[KeyGroup, ...]
    """Groups of the same content whose provider's ids differ: the id may change on redelivery."""
    looked_at: int
    """Number of kept requests on which rules were tried."""
    repeated: int
    """Contents that arrived more than once among these."""
    fits: tuple[Fit, ...]
    """The result of each rule: the source's own, then the best others."""


async def audit_keys(context: Context, source: str, *, last: int, sample: int) -> KeyReport:
    """Audit a source's keys on its newest `last` events and `sample` kept requests, and propose a rule; no rules
    where the provider's events are only hints, or where callers choose their keys."""
    endpoint = context.sources.endpoint(source)
    figures = await context.store.key_audits.audit_keys(source, last=last)
    has_rule = context.sources.source(source).delivered and not endpoint.contract.hint
    kept = _observations(context, endpoint, sample if has_rule else 0)
    observations = [one async for one in kept]
    rule = tuple(map(written, endpoint.key_fields))
    return KeyReport(
        audit=figures,
        rule=rule,
        changing=tuple([group for group in figures.same_content_groups if await _ids_differ(context, group)]),
        looked_at=len(observations),
        repeated=repeated(observations),
        fits=tuple(fit(observations, _type_fields(endpoint), known=rule)),
    )


def _type_fields(endpoint: Endpoint) -> tuple[str, ...]:
    """Return how settings write the type; empty if they cannot."""
    fields = endpoint.contract.type[:1]
    return () if any(isinstance(field, Present | Constant) for field in fields) else tuple(map(written, fields))


async def _ids_differ(context: Context, group: KeyGroup) -> bool:
    histories = [await context.store.history(ident) for ident in group.sample]
    ids = {history.event.provider_id for history in histories if history is not None}
    return len(ids - {None}) > 1


async def _observations(context: Context, endpoint: Endpoint, most: int) -> AsyncIterator[Observation]:
    """Yield one observation at a time, so that at most one body is in memory."""
    hidden = _proof_headers(endpoint)
    async for request_id, place in _kept(context, endpoint.name, most):
        request = await context.store.quarantine.request(request_id)
        if request is None:
            continue
        try:
            content = context.sources.content(request, place)
            item = context.sources.identify(request)[place]
        except (UnreadableError, IndexError):
            continue
        values = values_of(content, unpack_headers(request.headers), hidden=hidden)
        yield Observation(item.type, item.fingerprint, item.identity, values)


async def webhooks(context: Context, source: str, *, sample: int) -> tuple[str, ...]:
    """Return the ids of the webhooks that fed a source, in at most `sample` kept requests. Duplicates' requests are
    not kept, so a webhook whose deliveries always come second is not seen."""
    named = context.sources.endpoint(source).contract.hook_id
    if not isinstance(named, Header):
        return ()
    found: set[str] = set()
    async for request_id, _ in _kept(context, source, sample):
        request = await context.store.quarantine.request(request_id)
        headers = () if request is None else unpack_headers(request.headers)
        found |= {value for name, value in headers if name.lower().encode() == named.name}
    return tuple(sorted(found))


async def _kept(context: Context, source: str, most: int) -> AsyncIterator[tuple[UUID, int]]:
    """Yield the newest events and quarantined deliveries; the latter are a third at most."""
    quarantined = await context.store.quarantine.quarantined(source=source, limit=most // 3) if most >= 3 else []
    for delivery in quarantined[: most // 3]:
        if delivery.accepted_as is None:
            yield delivery.request_id, delivery.item
    left = most - len(quarantined)
    if left <= 0:
        return
    async for row in search.each(context, Filter(source=source), page=min(PAGE, left)):
        yield row.request_id, row.item
        left -= 1
        if not left:
            return


def _proof_headers(endpoint: Endpoint) -> frozenset[str]:
    """Return the headers of signature and time, without those that make the key or the id."""
    scheme = endpoint.contract.scheme
    names = {getattr(scheme, "header", b""), getattr(getattr(scheme, "timestamp", None), "header", None) or b""}
    kept = {field.name for field in (*endpoint.key_fields, endpoint.contract.id) if isinstance(field, Header)}
    delivery = endpoint.contract.delivery_id
    if isinstance(delivery, Header) and delivery not in endpoint.key_fields:
        names.add(delivery.name)  # differs in every delivery
    return frozenset(name.decode("latin-1") for name in names - kept if name)

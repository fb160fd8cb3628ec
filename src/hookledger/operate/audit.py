"""The audit of one source's keys on live data: the store's figures, and which rule would fit what was kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from msgspec import Struct

from ..filters import Filter
from ..model import EventRow, unpack_headers
from ..providers.fields import Constant, Header, Present, written
from ..providers.tolerant import UnreadableError
from ..store.ops.key_audit import KeyAudit, KeyGroup
from ..store.protocol import Store
from .keys import Fit, Observation, fit, repeated, values_of
from .receiving import Receiving, SourceFacts

PAGE = 200


class KeyReport(Struct, frozen=True, kw_only=True):
    """What live data says about the keys of a source."""

    audit: KeyAudit
    rule: tuple[str, ...]
    """The fields of the key now; empty where there is none."""
    changing: tuple[KeyGroup, ...]
    """Groups of the same content whose provider's ids differ: the id may change on redelivery."""
    looked_at: int
    """Kept requests that the rules were tried on."""
    repeated: int
    """Contents that came more than once among these."""
    fits: tuple[Fit, ...]
    """How each rule would have fared: the source's own, then the best others."""


async def audit_keys(store: Store, receiving: Receiving, source: str, *, last: int, sample: int) -> KeyReport:
    """Reads at most `last` events and `sample` kept requests."""
    facts = receiving.facts(source)
    figures = await store.cases.audit_keys(source, last=last)
    observations = [one async for one in _observations(store, receiving, facts, sample)]
    rule = tuple(map(written, facts.key_fields))
    return KeyReport(
        audit=figures,
        rule=rule,
        changing=tuple([group for group in figures.same_content_groups if await _ids_differ(store, group)]),
        looked_at=len(observations),
        repeated=repeated(observations),
        fits=tuple(fit(observations, _type_fields(facts), known=rule)),
    )


def _type_fields(facts: SourceFacts) -> tuple[str, ...]:
    """How settings write the type; empty where they cannot."""
    fields = facts.contract.type[:1]
    return () if any(isinstance(field, Present | Constant) for field in fields) else tuple(map(written, fields))


async def _ids_differ(store: Store, group: KeyGroup) -> bool:
    histories = [await store.history(ident) for ident in group.sample]
    ids = {history.event.provider_id for history in histories if history is not None}
    return len(ids - {None}) > 1


async def _observations(
    store: Store, receiving: Receiving, facts: SourceFacts, most: int
) -> AsyncIterator[Observation]:
    """One at a time, so that no more than one body is in memory."""
    hidden = _proof_headers(facts)
    async for request_id, place in _kept(store, facts.name, most):
        request = await store.cases.request(request_id)
        if request is None:
            continue
        try:
            content = receiving.content(request, place)
            item = receiving.identify(request)[place]
        except (UnreadableError, IndexError):
            continue
        values = values_of(content, unpack_headers(request.headers), hidden=hidden)
        yield Observation(item.type, item.fingerprint, item.identity, values)


async def webhooks(store: Store, facts: SourceFacts, *, sample: int) -> tuple[str, ...]:
    """The provider's webhooks that fed a source, by their ids, in at most `sample` kept requests. A duplicate's
    request is not kept, so one whose deliveries always come second is not seen."""
    named = facts.contract.hook_id
    if not isinstance(named, Header):
        return ()
    found: set[str] = set()
    async for request_id, _ in _kept(store, facts.name, sample):
        request = await store.cases.request(request_id)
        headers = () if request is None else unpack_headers(request.headers)
        found |= {value for name, value in headers if name.lower().encode() == named.name}
    return tuple(sorted(found))


async def _kept(store: Store, source: str, most: int) -> AsyncIterator[tuple[UUID, int]]:
    """The last events, and the last odd deliveries: a third of the places at most."""
    odd = await store.cases.odd_deliveries(source=source, limit=most // 3) if most >= 3 else []
    for delivery in odd[: most // 3]:
        if delivery.admitted_as is None:
            yield delivery.request_id, delivery.item
    left = most - len(odd)
    before: UUID | None = None
    while left > 0:
        page: list[EventRow] = await store.events(Filter(source=source), before=before, limit=min(PAGE, left))
        if not page:
            return
        before, left = page[-1].id, left - len(page)
        for row in page:
            yield row.request_id, row.item


def _proof_headers(facts: SourceFacts) -> frozenset[str]:
    """The headers of signature and time, less those that the key or the id are made of."""
    scheme = facts.contract.scheme
    names = {getattr(scheme, "header", b""), getattr(getattr(scheme, "timestamp", None), "header", None) or b""}
    kept = {field.name for field in (*facts.key_fields, facts.contract.id) if isinstance(field, Header)}
    delivery = facts.contract.delivery_id
    if isinstance(delivery, Header) and delivery not in facts.key_fields:
        names.add(delivery.name)  # it is another each time
    return frozenset(name.decode("latin-1") for name in names - kept if name)

"""Events, one by one: finding them by a reference, and everything known of one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...ids import body_identity, id_bounds, key_identity
from ...ledger import Effect
from ...states import State
from ..history import AttemptRow, DeliveryRow, EventRow, History, RequestRow
from ..rows import action_of, effect_histories, value_of
from ..session import Operations, Session, reads, searches
from .answers import answer_of
from .entities import holder_of, turn_of
from .guards import answers_of


class Events(Operations):
    """Part of the store itself."""

    @reads
    async def find(self, db: Session, reference: str) -> list[UUID]:
        """Events with this id or beginning of an id, or with this key in a known source; at most ten.

        The key may be as it is shown, such as `CALLER:KEY` of a guarded request, or `KEY~2` of an event accepted from
        quarantine. `EVENT/STAGE` is a stage of an event.
        """
        found = await _find(db, reference)
        event, _, stage = reference.rpartition("/")
        if found or not event or "\0" in stage:
            return found
        events = await _find(db, event)
        return [row["id"] for row in await db("find_stages", events=events, stage=stage)] if events else []

    @reads
    async def last_traceparent(self, db: Session, event_id: UUID) -> str | None:
        """The span of the last attempt that had one."""
        found = await db("last_traceparent", id=event_id)
        return found[0]["traceparent"] if found else None

    @reads
    async def history(self, db: Session, event_id: UUID) -> History | None:
        """Everything known of one event."""
        found = await db("event", id=event_id)
        if not found:
            return None
        event = value_of(EventRow, found[0])
        requests = await db("kept_request", id=event.request_id)
        deliveries = await db("deliveries_of_event", id=event_id, request_id=event.request_id, item=event.item)
        attempts = await db("attempts_of_events", events=[event_id])
        effects = await db("effects_of_events", events=[event_id])
        identities = [row["identity"] for row in effects]
        calls = await db("calls_of_effects", identities=identities) if effects else []
        guards = await answers_of(db, [event_id])
        actions = await db("actions_of_event", id=event_id)
        bodies = await db("known_owners", identities=[body_identity(event.source, found[0]["fingerprint"])])
        return History(
            event,
            value_of(RequestRow, requests[0]) if requests else None,
            tuple(value_of(DeliveryRow, row) for row in deliveries),
            tuple(value_of(AttemptRow, row) for row in attempts),
            effect_histories(effects, calls),
            tuple(map(action_of, actions)),
            next((row["event_id"] for row in bodies if row["event_id"] != event_id), None),
            await turn_of(db, event),
            tuple(guards),
            tuple(value_of(EventRow, row) for row in await db("stages_of_events", events=[event_id])),
            await answer_of(db, event_id),
            await holder_of(db, event),
        )

    @searches
    async def counts(self, db: Session) -> dict[State, int]:
        """How many events are in each state."""
        return {State(row["state"]): row["n"] for row in await db("count_by_state")}

    @searches
    async def delivery_counts(self, db: Session) -> dict[str, int]:
        """How many deliveries had each outcome."""
        return {row["outcome"]: row["n"] for row in await db("count_deliveries")}


async def effects_of(db: Session, events: Sequence[UUID]) -> list[Effect]:
    """What some events brought about, without the calls."""
    return [value_of(Effect, row) for row in await db("effects_of_events", events=list(events))]


async def _find(db: Session, reference: str) -> list[UUID]:
    bounds = id_bounds(reference)
    found = await db("find_events", first=bounds[0], last=bounds[1]) if bounds else []
    if found:  # the ids of an event and of its stages begin alike
        events = {row["id"] for row in found}
        return [row["id"] for row in found if row["parent"] not in events]
    identities = [key_identity(row["name"], reference.encode()) for row in await db("sources")]
    owners = await db("owners_of_keys", identities=identities, nothing=b"", limit=10)
    if not owners and "\0" not in reference:
        return [row["id"] for row in await db("find_shown", key=reference)]
    return [row["event_id"] for row in owners]

"""Every call of the API, one line each. A new one is a function in a module beside, and a line here."""

from __future__ import annotations

from typing import Any

from . import circuits, decide, events, odd, overview, sources
from .auth import Role
from .call import Call, Look
from .schema import describe

VIEWER, OPERATOR, ADMIN = Role


async def openapi(asked: Look) -> dict[str, Any]:
    """This description."""
    del asked
    return describe(CALLS)


CALLS: tuple[Call, ...] = (
    Call("GET", "/summary", VIEWER, overview.summary),
    Call("GET", "/health", VIEWER, overview.health),
    Call("GET", "/workers", VIEWER, overview.list_workers),
    Call("GET", "/doctor", OPERATOR, overview.doctor, seconds=300.0),
    Call("GET", "/events", VIEWER, events.list_events),
    Call("GET", "/events-count", VIEWER, events.count_events),
    Call("GET", "/events/{reference}", VIEWER, events.show_event),
    Call("GET", "/events/{reference}/request", OPERATOR, events.show_request),
    Call("GET", "/events/{reference}/preview", VIEWER, events.preview_replay),
    Call("POST", "/events/{reference}/retry", OPERATOR, decide.retry_event),
    Call("POST", "/events/{reference}/replay", OPERATOR, decide.replay_event),
    Call("POST", "/events/{reference}/discard", OPERATOR, decide.discard_event),
    Call("POST", "/events/{reference}/effects/{effect}/resolve", OPERATOR, decide.resolve_effect),
    Call("GET", "/circuits", VIEWER, circuits.list_circuits),
    Call("POST", "/circuits/{downstream}/trip", OPERATOR, circuits.trip_circuit),
    Call("POST", "/circuits/{downstream}/reset", OPERATOR, circuits.reset_circuit),
    Call("GET", "/deliveries", VIEWER, odd.list_deliveries),
    Call("GET", "/deliveries/{delivery}", OPERATOR, odd.show_delivery),
    Call("POST", "/deliveries/{delivery}/admit", OPERATOR, odd.admit_delivery),
    Call("GET", "/rejections", VIEWER, odd.list_rejections),
    Call("GET", "/rejections-count", VIEWER, odd.count_rejections),
    Call("GET", "/rejections/{rejection}", OPERATOR, odd.show_rejection),
    Call("GET", "/sources", VIEWER, sources.list_sources),
    Call("GET", "/sources/{source}/recheck", OPERATOR, sources.recheck_source),
    Call("POST", "/sources/{source}/recheck", OPERATOR, sources.take_in, seconds=300.0),
    Call("GET", "/sources/{source}/keys", VIEWER, sources.audit_keys),
    Call("POST", "/sources/{source}/keys/compare", VIEWER, sources.compare_keys),
    Call("POST", "/sources/{source}/keys/import", ADMIN, sources.import_keys),
    Call("GET", "/providers", VIEWER, overview.list_providers),
    Call("GET", "/providers/{provider}", VIEWER, overview.show_provider),
    Call("GET", "/openapi.json", VIEWER, openapi),
)

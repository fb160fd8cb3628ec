"""Every API call, one line each. For a new call, add a function in a sibling module and a line here."""

from __future__ import annotations

from typing import Any

from . import (
    actions,
    alerts,
    circuits,
    consistency,
    decide,
    effects,
    events,
    failures,
    jobs,
    overview,
    pauses,
    quarantine,
    rates,
    reconcile,
    rejections,
    retention,
    schemas,
    sources,
)
from .auth import Role
from .call import Call, Look
from .schema import describe

VIEWER, OPERATOR, ADMIN = Role
LONG = 300.0
"""Time limit in seconds of slow calls."""
STAYS = "what was done until then stays; call again to continue"


async def openapi(asked: Look) -> dict[str, Any]:
    """This description."""
    del asked
    return describe(CALLS)


CALLS: tuple[Call, ...] = (
    Call("GET", "/summary", VIEWER, overview.summary),
    Call("GET", "/health", VIEWER, overview.health),
    Call("GET", "/workers", VIEWER, overview.list_workers),
    Call("GET", "/consistency", VIEWER, consistency.show_consistency),
    Call("GET", "/doctor", OPERATOR, overview.doctor, seconds=LONG),
    Call("GET", "/events", VIEWER, events.list_events),
    Call("GET", "/events-count", VIEWER, events.count_events),
    Call("GET", "/events/{reference}", VIEWER, events.show_event),
    Call("GET", "/events/{reference}/request", OPERATOR, events.show_request),
    Call("GET", "/events/{reference}/conflicts", OPERATOR, events.list_conflicts),
    Call("GET", "/events/{reference}/preview", VIEWER, events.preview_replay),
    Call("GET", "/events/{reference}/timeline", VIEWER, events.show_timeline),
    Call("GET", "/events/{reference}/answers", VIEWER, events.show_answers),
    Call("POST", "/events/{reference}/retry", OPERATOR, decide.retry_event),
    Call("POST", "/events/{reference}/replay", OPERATOR, decide.replay_event),
    Call("POST", "/events/{reference}/discard", OPERATOR, decide.discard_event),
    Call("POST", "/events/{reference}/approve", OPERATOR, decide.approve_event),
    Call("POST", "/events/{reference}/reject", OPERATOR, decide.reject_event),
    Call("POST", "/events/{reference}/settle", OPERATOR, decide.settle_event),
    Call("POST", "/events/{reference}/effects/{effect}/resolve", OPERATOR, decide.resolve_effect),
    Call("POST", "/events/{reference}/effects/{effect}/try", OPERATOR, effects.try_effect),
    Call("GET", "/effects", VIEWER, effects.list_effects),
    Call("POST", "/events/{reference}/repair", OPERATOR, reconcile.repair_event),
    Call("POST", "/events/{reference}/erase", ADMIN, retention.erase_event),
    Call("GET", "/actions", VIEWER, actions.list_actions),
    Call("GET", "/alerts", VIEWER, alerts.list_alerts),
    Call("GET", "/failures", VIEWER, failures.list_failures),
    Call("GET", "/lag", VIEWER, failures.list_lag),
    Call("GET", "/rates", VIEWER, rates.list_rates),
    Call("GET", "/jobs-preview", VIEWER, jobs.preview_job, seconds=60.0),
    Call("POST", "/jobs", OPERATOR, jobs.make_job, seconds=LONG, late="a job without `frozen_at` is to be cancelled"),
    Call("GET", "/jobs", VIEWER, jobs.list_jobs),
    Call("GET", "/jobs/{job}", VIEWER, jobs.show_job),
    Call("GET", "/jobs/{job}/items", VIEWER, jobs.list_job_items),
    Call("POST", "/jobs/{job}/cancel", OPERATOR, jobs.cancel_job),
    Call("GET", "/pauses", VIEWER, pauses.list_pauses),
    Call("GET", "/circuits", VIEWER, circuits.list_circuits),
    Call("POST", "/circuits/{downstream}/trip", OPERATOR, circuits.trip_circuit),
    Call("POST", "/circuits/{downstream}/reset", OPERATOR, circuits.reset_circuit),
    Call("GET", "/quarantine", VIEWER, quarantine.list_quarantine),
    Call("GET", "/quarantine/{delivery}", OPERATOR, quarantine.show_quarantined),
    Call("POST", "/quarantine/{delivery}/accept", OPERATOR, quarantine.accept_quarantined),
    Call("GET", "/rejections", VIEWER, rejections.list_rejections),
    Call("GET", "/rejections-count", VIEWER, rejections.count_rejections),
    Call("GET", "/rejections/{rejection}", OPERATOR, rejections.show_rejection),
    Call("GET", "/sources", VIEWER, sources.list_sources),
    Call("GET", "/sources/{source}/rejections/recheck", OPERATOR, rejections.recheck_rejections),
    Call(
        "POST",
        "/sources/{source}/rejections/recheck",
        OPERATOR,
        rejections.accept_rejections,
        seconds=LONG,
        late=STAYS,
    ),
    Call("GET", "/sources/{source}/keys", VIEWER, sources.audit_keys),
    Call("GET", "/sources/{source}/fields", VIEWER, schemas.list_fields),
    Call("POST", "/sources/{source}/keys/compare", VIEWER, sources.compare_keys),
    Call("POST", "/sources/{source}/keys/import", ADMIN, sources.import_keys),
    Call("POST", "/sources/{source}/pause", OPERATOR, pauses.pause_source),
    Call("POST", "/sources/{source}/resume", OPERATOR, pauses.resume_source),
    Call("POST", "/sources/{source}/reconcile", OPERATOR, reconcile.reconcile_source, seconds=LONG, late=STAYS),
    Call("POST", "/sources/{source}/repair", OPERATOR, reconcile.repair_object),
    Call("GET", "/reconciliations", VIEWER, reconcile.list_reconciliations),
    Call("GET", "/prune", OPERATOR, retention.preview_prune, seconds=90.0),
    Call("POST", "/prune", ADMIN, retention.prune, seconds=90.0, late=STAYS),
    Call("POST", "/erase", ADMIN, retention.erase_events, seconds=LONG, late=STAYS),
    Call("GET", "/providers", VIEWER, overview.list_providers),
    Call("GET", "/providers/{provider}", VIEWER, overview.show_provider),
    Call("GET", "/openapi.json", VIEWER, openapi),
)

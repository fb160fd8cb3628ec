"""Sentry: integration platform webhooks."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="sentry",
        title="Sentry",
        scheme=Hmac(header=b"sentry-hook-signature"),
        secret="the integration's client secret",
        id=header("Request-ID"),
        stable="unknown",  # the server creates it with the request; the body identifies a redelivery
        type=(header("Sentry-Hook-Resource"), body("action")),
        object_id=(
            body("data.issue.id"),
            body("data.event.event_id"),
            body("data.error.event_id"),
            body("data.metric_alert.id"),
            body("data.comment_id"),
            body("data.installation.uuid"),
        ),
        occurred_at=header("Sentry-Hook-Timestamp"),
        delivery_id=header("Request-ID"),
        types=frozenset({"comment", "error", "event_alert", "installation", "issue", "metric_alert", "seer"}),
        deadline=1,
        retries=Retries(schedule="not documented"),
        confirmed=Confirmed(
            signature="code",
            event="docs",
            response="docs",
            retry="memory",
            reconcile="memory",
            sources=("getsentry/sentry: sentry_app.py, app_platform_event.py", "Sentry's documentation on webhooks"),
        ),
        notes=(
            "Sentry waits one second for the answer: keep the database close.",
            "Id, resource and time are in unsigned headers: a known body under another id or resource is "
            "quarantined. The time is that of the request.",
            "An issue that is resolved, reopened and resolved again without a new error may send the same body "
            "twice: the second is quarantined as `same body`, for an operator to accept.",
            "Sentry's sample code hashes reserialized JSON; the signature covers the bytes as received.",
        ),
    ),
)

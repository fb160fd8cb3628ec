"""Recurly: JSON webhooks, each a hint to fetch the resource."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="recurly",
        title="Recurly",
        scheme=Hmac(
            header=b"recurly-signature",  # <milliseconds>,<hex>[,<hex>]
            separator=b",",
            timestamp=Timestamp(first=True, unit="ms", tolerance=74 * 3600),
            message="{ts}.{body}",
        ),
        secret="the endpoint's key, as text",
        # It is not documented whether id is the event's or the object's. If it is the object's, all events of a
        # subscription would be one, so the event's type and time are part of the key.
        key=(body("object_type"), body("event_type"), body("id"), body("event_time")),
        type=(body("object_type"), body("event_type")),
        object_id=(body("uuid"), body("id")),
        occurred_at=body("event_time"),
        deadline=5,
        retries=Retries(
            automatic=True,
            hours=72.86,
            schedule="10 retries, 10 + x·2^(x+5) seconds apart",
            why="Recurly does not say; that its client allows 5 minutes suggests it",
        ),
        lister=Lister(list="the resources themselves: there is no list of events"),
        confirmed=Confirmed(
            signature="code",
            event="quoted",  # the meaning of `id` is not documented
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=(
                "recurly-client-ruby: webhooks.rb",
                "docs.recurly.com: automatic retries, signature verification, JSON and XML payloads, notifications",
            ),
        ),
        notes=(
            "The body names the resource and does not contain it: fetch it.",
            "XML payloads are not signed: set the endpoint to JSON.",
            "The signed time is in milliseconds. Recurly calls only ports 80 and 443, and follows no redirect.",
        ),
    ),
)

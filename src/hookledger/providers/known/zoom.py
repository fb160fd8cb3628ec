"""Zoom: event subscriptions of an app."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body
from ..handshake import Handshake
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="zoom",
        title="Zoom",
        scheme=Hmac(
            header=b"x-zm-signature",
            prefix=b"v0=",
            # Zoom documents no limit; the retries end after 85 minutes.
            timestamp=Timestamp(header=b"x-zm-request-timestamp", tolerance=5400),
            message="v0:{ts}:{body}",
        ),
        secret="the app's secret token, as text",
        # No id. The digest is of event, event_ts and the whole object: two people who leave one meeting in the same
        # millisecond differ somewhere in it, in fields that depend on the kind of event.
        type=(body("event"),),
        object_id=(body("payload.object.uuid"), body("payload.object.id")),
        occurred_at=body("event_ts"),
        occurred_unit="ms",
        volatile=(body("download_token"),),
        answer=Answer(status=200),
        deadline=3,
        handshakes=(
            Handshake(
                method="POST",
                when=((body("event"), "endpoint.url_validation"),),
                signed=True,
                value=body("payload.plainToken"),
                mac="sha256",
                json=(("plainToken", "{value}"), ("encryptedToken", "{mac}")),
            ),
        ),
        retries=Retries(automatic=True, hours=1.42, schedule="after 5, 20 and 60 minutes", why="Zoom does not say"),
        confirmed=Confirmed(
            signature="code",
            event="memory",
            handshake="code",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=("zoom/webhook-sample", "Zoom's articles on delays and on URL validation"),
        ),
        notes=(
            "200 and 204 are success, 202 is not documented.",
            "Zoom repeats the validation every 72 hours, and Hookledger answers with the source's first secret: when "
            "you rotate, put the new one first.",
            "Zoom's sample code hashes reserialized JSON; the signature covers the bytes as received.",
        ),
    ),
)

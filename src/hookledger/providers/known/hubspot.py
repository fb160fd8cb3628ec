"""HubSpot: subscriptions of an app (v3, and v1 of old) and workflow webhooks (v2)."""

from __future__ import annotations

import msgspec

from ..contract import Confirmed, Contract, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.keyed_hash import KeyedHash
from ..schemes.times import Timestamp

V3 = Contract(
    name="hubspot",
    title="HubSpot",
    scheme=Hmac(
        header=b"x-hubspot-signature-v3",
        encoding="base64",
        # HubSpot's own client rejects what is older than 5 minutes; its last retry is after a day.
        timestamp=Timestamp(header=b"x-hubspot-request-timestamp", unit="ms", tolerance=90000),
        message="{method}{url}{body}{ts}",
    ),
    secret="the app's client secret",
    # HubSpot does not guarantee that eventId is unique, so all fields that distinguish changes are included. Which of
    # them are present depends on the kind of change.
    immutable=(
        body("subscriptionType"),
        body("portalId"),
        body("subscriptionId"),
        body("eventId"),
        body("occurredAt"),
        body("objectId"),
        body("fromObjectId"),
        body("toObjectId"),
        body("primaryObjectId"),
        body("messageId"),
        body("propertyName"),
        body("propertyValue"),
        body("changeFlag"),
    ),
    type=(body("subscriptionType"),),
    object_id=(body("objectId"), body("fromObjectId"), body("primaryObjectId")),
    occurred_at=body("occurredAt"),
    occurred_unit="ms",
    volatile=(body("attemptNumber"),),
    items=((),),
    deadline=5,
    retries=Retries(
        automatic=True,
        hours=24,
        schedule="up to 10 times over 24 hours, at random intervals",
        why="HubSpot does not say; that its client allows 5 minutes suggests it",
    ),
    confirmed=Confirmed(
        signature="run",
        event="quoted",
        response="quoted",
        retry="quoted",
        reconcile="memory",
        sources=("hubspot-api-client 12.0.0: utils/signature.py", "HubSpot's documentation, quoted by others"),
    ),
    notes=(
        "HubSpot signs the URL that it calls: set public_url.",
        "There is no list of events: after an outage, search the CRM by date of modification.",
    ),
)
WEAK = "The signature is a plain hash with the secret, which can be extended, and signs no time: prefer v3."

CONTRACTS = (
    V3,
    msgspec.structs.replace(
        V3,
        name="hubspot_v2",
        title="HubSpot, signature v2",
        scheme=KeyedHash(
            header=b"x-hubspot-signature",
            message="{method}{url}{body}",
            version_header=b"x-hubspot-signature-version",
            version=b"v2",
        ),
        deadline=30,
        retries=Retries(
            automatic=True,
            hours=72,
            schedule="after a minute, then at growing intervals of up to 8 hours; never after a 4xx but 429",
        ),
        confirmed=msgspec.structs.replace(
            V3.confirmed,
            response="docs",
            retry="docs",
            sources=(*V3.confirmed.sources, "developers.hubspot.com, knowledge.hubspot.com: webhooks in workflows"),
        ),
        notes=(
            WEAK,
            *V3.notes,
            "Deadline and retries are those of workflows. A 4xx is final: a wrong secret loses events immediately.",
            "A workflow posts one record instead of an array of changes, without an id: its whole content identifies "
            "the event. If a workflow may send the same content for two events, add a field that differs, such as a "
            "time.",
        ),
    ),
    msgspec.structs.replace(
        V3,
        name="hubspot_v1",
        title="HubSpot, signature v1",
        scheme=KeyedHash(
            header=b"x-hubspot-signature",
            message="{body}",
            version_header=b"x-hubspot-signature-version",
            version=b"v1",
        ),
        notes=(WEAK, V3.notes[1]),
    ),
)

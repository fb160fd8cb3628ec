"""QuickBooks Online: the old payload, and the one that follows CloudEvents."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

SCHEME = Hmac(header=b"intuit-signature", encoding="base64")
HOLDS = "the app's verifier token, as text"
RETRIES = Retries(
    automatic=True,
    schedule="10s, 20s, 30s, 5m, 20m, 2h, 4h, 6h, then every 6 hours",
    disables="holds later events back until the first is acknowledged",
)
LISTER = Lister(list="GET /v3/company/{realm}/cdc, by entity and time; about 30 days, unconfirmed")
CONFIRMED = Confirmed(
    signature="run",
    event="memory",
    response="docs",
    retry="docs",
    reconcile="docs",
    sources=("Intuit's documentation: best practices, configuration", "python-quickbooks 0.9.12"),
)

CONTRACTS = (
    Contract(
        name="quickbooks",
        title="QuickBooks Online",
        scheme=SCHEME,
        secret=HOLDS,
        # No id. The entity's change at a time is the event; the time is the entity's, so a retry has the same.
        key=(body("realmId"), body("name"), body("id"), body("operation"), body("lastUpdated")),
        type=(body("name"), body("operation")),
        object_id=(body("id"),),
        occurred_at=body("lastUpdated"),
        items=(("eventNotifications", "dataChangeEvent", "entities"),),
        inherit=("realmId",),
        answer=Answer(status=200),
        deadline=3,
        retries=RETRIES,
        lister=LISTER,
        confirmed=CONFIRMED,
        notes=(
            "One failure delays every later event of the app.",
            "Times are in whole seconds, so two changes of one entity within a second are one event: fetch the "
            "entity in the handler, and reconcile by change data capture.",
        ),
    ),
    Contract(
        name="quickbooks_cloudevents",
        title="QuickBooks Online, CloudEvents",
        scheme=SCHEME,
        secret=HOLDS,
        id=body("id"),
        key=(body("source"), body("id")),
        type=(body("type"),),
        object_id=(body("intuitentityid"),),
        occurred_at=body("time"),
        items=((),),
        answer=Answer(status=200),
        deadline=3,
        retries=RETRIES,
        lister=LISTER,
        confirmed=CONFIRMED,
        notes=("One failure delays every later event of the app.",),
    ),
)

"""Auth0: log streams and event streams to a web hook."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.token import Token

CONFIRMED = Confirmed(
    signature="docs",
    event="docs",
    response="docs",
    retry="memory",
    reconcile="memory",
    sources=("Auth0's documentation: events, custom webhook log streams",),
)
RETRIES = Retries(automatic=True, schedule="documented for each product; the steps were not seen")
PROVES_LITTLE = "Auth0 signs nothing: the token proves the sender, not the content."

CONTRACTS = (
    Contract(
        name="auth0_logs",
        title="Auth0 log streams",
        scheme=Token(header=b"authorization"),
        secret="the authorization token of the stream, exactly as entered there",
        id=body("log_id"),
        type=(body("data.type"),),
        object_id=(body("data.user_id"), body("data.client_id")),
        occurred_at=body("data.date"),
        items=((),),  # one entry, or an array of them
        max_body=4 * MIB,
        retries=RETRIES,
        lister=Lister(list="GET /api/v2/logs"),
        confirmed=CONFIRMED,
        notes=(
            PROVES_LITTLE,
            "Choose JSON Array or JSON Object as the stream's format: JSON Lines becomes a dead letter.",
        ),
    ),
    Contract(
        name="auth0_events",
        title="Auth0 event streams",
        scheme=Token(header=b"authorization", prefix=b"Bearer "),
        secret="the bearer token of the stream",
        id=body("id"),
        type=(body("type"),),
        object_id=(body("data.object.user_id"), body("data.object.id")),
        occurred_at=body("time"),
        retries=RETRIES,
        lister=Lister(list="the stream's deliveries", redeliver="the API's redelivery"),
        confirmed=CONFIRMED,
        notes=(
            PROVES_LITTLE,
            "Choose a bearer token for the stream, not Basic.",
            "Events arrive out of order, and more than once.",
        ),
    ),
)

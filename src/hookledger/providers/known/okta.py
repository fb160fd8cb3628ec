"""Okta: event hooks."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.token import Token

CONTRACTS = (
    Contract(
        name="okta",
        title="Okta",
        scheme=Token(header=b"authorization"),
        secret="the authentication secret of the hook, exactly as entered there",
        id=body("uuid"),
        type=(body("eventType"),),
        object_id=(body("actor.id"),),
        occurred_at=body("published"),
        delivery_id=body("eventId"),
        # The request's id: two hooks send one log entry in two requests.
        volatile=(body("eventId"),),
        items=(("data", "events"),),
        inherit=("eventId",),
        answer=Answer(200, b""),
        deadline=3,
        handshakes=(
            Handshake(
                method="GET",
                when=((header("x-okta-verification-challenge"), None),),
                value=header("x-okta-verification-challenge"),
                json=(("verification", "{value}"),),
            ),
        ),
        retries=Retries(automatic=True, hours=0, schedule="once, and never after a 4xx"),
        lister=Lister(list="GET /api/v1/logs, the System Log; about 90 days, unconfirmed"),
        confirmed=Confirmed(
            signature="docs",
            event="docs",
            handshake="docs",
            response="docs",
            retry="docs",
            reconcile="docs",
            sources=("okta/okta-developer-docs: event hooks",),
        ),
        notes=(
            "Okta tries twice at most: fetch missed events from the System Log, by the same uuid.",
            "Nothing is signed: the secret proves the sender, not the content.",
            "The object shown is the actor; the targets are a list.",
        ),
    ),
)

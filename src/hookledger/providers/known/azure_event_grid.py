"""Azure Event Grid: its own schema and CloudEvents, with a secret in the URL or a token of Microsoft Entra."""

from __future__ import annotations

import msgspec

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.jwt import Claim, Jwt
from ..schemes.token import Token

GRID = Contract(
    name="azure_event_grid",
    title="Azure Event Grid",
    scheme=Token(parameter="code"),
    secret="the value of code= in the URL that you subscribed",
    id=body("id"),
    key=(body("topic"), body("id")),  # the publisher chooses the id, so it is unique within a topic at best
    type=(body("eventType"),),
    object_id=(body("subject"),),
    occurred_at=body("eventTime"),
    items=((),),
    deadline=30,
    handshakes=(
        Handshake(
            method="POST",
            when=((header("aeg-event-type"), "SubscriptionValidation"),),
            signed=True,
            value=body("data.validationCode"),
            json=(("validationResponse", "{value}"),),
        ),
    ),
    retries=Retries(
        automatic=True, hours=24, schedule="10s, 30s, 1m, 5m, 10m, 30m, 1h, then hourly; 30 attempts at most"
    ),
    lister=Lister(list="the dead-letter container, if the subscription has one"),
    confirmed=Confirmed(
        signature="docs",
        event="docs",
        handshake="docs",
        response="docs",
        retry="docs",
        reconcile="docs",
        sources=("Microsoft's documentation of Event Grid, of 2020",),
    ),
    notes=(
        "Event Grid signs nothing: the secret in the URL proves the sender, not the content.",
        "Configure a dead-letter container: otherwise Event Grid drops what failed for a day.",
    ),
)

CONTRACTS = (
    GRID,
    msgspec.structs.replace(
        GRID,
        name="azure_event_grid_cloudevents",
        title="Azure Event Grid, CloudEvents",
        key=(body("source"), body("id")),
        type=(body("type"),),
        occurred_at=body("time"),
        handshakes=(
            Handshake(
                method="OPTIONS",
                when=((header("WebHook-Request-Origin"), None),),
                value=header("WebHook-Request-Origin"),
                origins=True,
                headers=(("webhook-allowed-origin", "{value}"), ("webhook-allowed-rate", "*"), ("allow", "POST")),
            ),
        ),
        notes=(*GRID.notes, 'Set origins = ["eventgrid.azure.net"], or the subscription cannot be created.'),
    ),
    msgspec.structs.replace(
        GRID,
        name="azure_event_grid_entra",
        title="Azure Event Grid, Microsoft Entra",
        scheme=Jwt(
            jwks="https://login.microsoftonline.com/common/discovery/v2.0/keys",
            claims=(Claim(("azp", "appid"), "4962773b-9cdb-44cf-a8bf-237846a00ab7"),),  # Event Grid itself
            tolerance=5400,  # a token is valid for up to 90 minutes and used for many requests
        ),
        options=("issuers",),
        retries=msgspec.structs.replace(
            GRID.retries,
            signs_each_attempt="yes",
            why="the token is not the event's: every request has one that has not expired",
        ),
        secret="the application id (URI) that the subscription asks tokens for",
        confirmed=msgspec.structs.replace(GRID.confirmed, signature="memory"),
        notes=(
            "Set issuers to those of your tenant: https://sts.windows.net/TENANT/ and "
            "https://login.microsoftonline.com/TENANT/v2.0.",
            "The token proves the sender, not the events.",
            GRID.notes[1],
        ),
    ),
)

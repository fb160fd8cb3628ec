"""CloudEvents 1.0 over HTTP: the preset for senders that follow the web hook specification."""

from __future__ import annotations

import msgspec

from ..contract import Confirmed, Contract, Retries
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.token import Token

STRUCTURED = Contract(
    name="cloudevents",
    title="CloudEvents, structured or batched",
    scheme=Token(header=b"authorization", prefix=b"Bearer ", parameter="access_token"),
    secret="the token that the sender presents",
    id=body("id"),
    key=(body("source"), body("id")),
    type=(body("type"),),
    object_id=(body("subject"),),
    occurred_at=body("time"),
    items=((),),  # one event, or an array of them
    handshakes=(
        Handshake(
            method="OPTIONS",
            when=((header("WebHook-Request-Origin"), None),),
            value=header("WebHook-Request-Origin"),
            origins=True,
            headers=(("webhook-allowed-origin", "{value}"), ("webhook-allowed-rate", "*"), ("allow", "POST")),
        ),
    ),
    retries=Retries(schedule="the specification leaves it to the sender"),
    confirmed=Confirmed(
        signature="docs",
        event="docs",
        handshake="docs",
        response="docs",
        retry="docs",
        sources=("cloudevents/spec: http-webhook.md",),
    ),
    notes=(
        "The specification signs nothing: the token proves the sender, not the content.",
        "Set origins to the names of the senders that may subscribe this endpoint.",
    ),
)

CONTRACTS = (
    STRUCTURED,
    msgspec.structs.replace(
        STRUCTURED,
        name="cloudevents_binary",
        title="CloudEvents, binary",
        id=header("ce-id"),
        key=(header("ce-source"), header("ce-id")),
        type=(header("ce-type"),),
        object_id=(header("ce-subject"),),
        occurred_at=header("ce-time"),
        items=None,
        notes=(*STRUCTURED.notes, "The data must be JSON: anything else becomes a dead letter."),
    ),
)

"""LINE: Messaging API."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="line",
        title="LINE",
        scheme=Hmac(header=b"x-line-signature", encoding="base64"),
        secret="the channel secret, as text",
        id=body("webhookEventId"),
        type=(body("type"), body("message.type")),
        object_id=(body("source.groupId"), body("source.roomId"), body("source.userId")),
        occurred_at=body("timestamp"),
        occurred_unit="ms",
        volatile=(body("deliveryContext.isRedelivery"),),
        items=(("events",),),
        inherit=("destination",),
        answer=Answer(status=200),
        deadline=2,
        retries=Retries(schedule="only if redelivery is enabled for the channel"),
        confirmed=Confirmed(
            signature="run",
            event="code",
            handshake="memory",
            response="memory",
            retry="memory",
            reconcile="memory",
            sources=("line/line-openapi: webhook.yml", "line-bot-sdk 3.27.0: webhook.py"),
        ),
        notes=(
            "Redelivery is off until you enable it in the console: without it, missed events are lost.",
            "The console's Verify button sends no events, and gets 200.",
            "Reply tokens expire soon after the event: a late run must push instead.",
        ),
    ),
)

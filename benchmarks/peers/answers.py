"""What the peers that give answers share: the work, and how they read a request."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from benchmarks.peers.stripe import verified

SECRET = os.environ["STRIPE_SECRET"].encode()
KIND = "application/json"


@dataclass(frozen=True)
class Delivery:
    """A request whose signature fits."""

    id: str
    body: bytes
    event: dict[str, Any]


async def read(request: Request) -> Delivery | None:
    body = await request.body()
    if not verified(request.headers.get("stripe-signature", ""), body, SECRET):
        return None
    event = json.loads(body)
    return Delivery(event["id"], body, event)


def answer(event: dict[str, Any]) -> bytes:
    """The work: an answer made of the event."""
    invoice = event["data"]["object"]
    return json.dumps({"invoice": invoice["id"], "paid": invoice["amount_paid"], "text": "thank you"}).encode()


def response(body: bytes) -> Response:
    return Response(body, 200, media_type=KIND)


UNSIGNED = 401
BUSY = 409

"""The handler that benchmarks/answers.py measures: the work of benchmarks/peers/answers.py."""

from __future__ import annotations

import os
from typing import Any

from hookledger import Answer, Event, Inbox

inbox = Inbox(os.environ["HOOKLEDGER_DATABASE"])
stripe = inbox.source("stripe", provider="stripe", secrets=["env:STRIPE_SECRET"])


@stripe.answer("*", deadline="10s")
async def thank(event: Event) -> Answer:
    invoice: dict[str, Any] = event.json["data"]["object"]
    return Answer({"invoice": invoice["id"], "paid": invoice["amount_paid"], "text": "thank you"})

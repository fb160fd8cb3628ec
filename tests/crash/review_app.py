"""An application whose handler asks an operator about every event, after it has written its row."""

import os

from hookledger import Event, Inbox, Review
from tests.crash.app import WRITE

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up_for_the_reviews"])


@stripe.on("invoice.paid")
async def provision(event: Event) -> str:
    await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())
    if not event.approved:
        raise Review(f"account of {event.key} is cancelled")
    return f"approved by {event.approved.by}"

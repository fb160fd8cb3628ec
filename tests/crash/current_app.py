"""An application that copies the provider's objects into a table of its own: fetch, and a guard by the ticket."""

import os

from hookledger import CurrentSettings, Event, Inbox, Seconds

SECRET = "whsec_crash_tests_current_secret"
TABLE = "CREATE TABLE projection (entity text PRIMARY KEY, version integer NOT NULL, ticket bigint NOT NULL)"
WRITE = "UPDATE projection SET version = $1, ticket = $2 WHERE entity = $3 AND ticket < $4"

inbox = Inbox()
stripe = inbox.source(
    "stripe",
    provider="stripe",
    secrets=[SECRET],
    current=CurrentSettings(
        token="env:CURRENT_TOKEN", base_url=os.environ.get("CURRENT_URL", "http://127.0.0.1:9"), timeout=Seconds(5)
    ),
)


@stripe.on("*")
async def changed(event: Event) -> None:
    now = await event.current()
    await event.tx.execute(WRITE, now["version"], event.ticket, event.object_id, event.ticket)

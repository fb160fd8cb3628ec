"""An event with a handler of its own and two stages; each writes one row, without a unique constraint."""

from hookledger import Event, Inbox

BUSINESS = "CREATE TABLE business (what text NOT NULL, key text NOT NULL)"
STAGES = ("finance", "provision")

inbox = Inbox()
source = inbox.source("stripe", provider="stripe", secrets=["whsec_crash_tests_stages_secret"])


async def write(event: Event) -> None:
    await event.tx.execute("INSERT INTO business (what, key) VALUES ($1, $2)", event.stage or "event", event.key)


source.on("order")(write)
for name in STAGES:
    source.on("order", stage=name)(write)
    source.on("bare", stage=name)(write)

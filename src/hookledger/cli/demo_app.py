"""An application that gives customers what they paid for: subscription, credit and a receipt by e-mail.

    export STRIPE_WEBHOOK_SECRET=whsec_…
    hookledger serve --dev --app app:inbox

This file is what `hookledger demo` runs. examples/provisioning has one that calls other services, too.
"""

import asyncio

import apsw

from hookledger import Event, Inbox, Source

DATABASE = "provisioning.db"
TABLES = """
    CREATE TABLE IF NOT EXISTS subscriptions (id TEXT PRIMARY KEY, status TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, credit INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS mails (recipient TEXT NOT NULL, subject TEXT NOT NULL);
"""

inbox: Inbox = Inbox(f"sqlite:///{DATABASE}")
stripe: Source = inbox.source("stripe", provider="stripe", secrets=["env:STRIPE_WEBHOOK_SECRET"])


@stripe.on("invoice.paid")
async def provision(event: Event) -> dict[str, str]:
    """Commits together with the event's outcome, or not at all."""
    invoice = event.json["data"]["object"]
    await set_status(event, invoice["subscription"], "active")
    # Once for each invoice, however often its event is replayed, and whichever event tells of it.
    if await event.once("credit", invoice["id"]):
        await event.tx.execute(
            "INSERT INTO accounts VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET credit = credit + ?2",
            invoice["customer"],
            invoice["amount_paid"],
        )
    # Another program sends it: only the row must be written once, and it is in our transaction.
    if await event.once("receipt", invoice["id"]):
        await event.tx.execute("INSERT INTO mails VALUES (?, ?)", invoice["customer"], f"Receipt for {invoice['id']}")
    if event.attempt == 1:
        # Kill the worker here: everything is written, nothing is committed.
        await asyncio.sleep(invoice.get("pause", 0))
    return {"invoice": invoice["id"], "credited": invoice["customer"]}


@stripe.on("customer.subscription.updated")
async def follow(event: Event) -> None:
    subscription = event.json["data"]["object"]
    await set_status(event, subscription["id"], subscription["status"])


async def set_status(event: Event, subscription: str, status: str) -> None:
    """Set the status unless a newer event has: events arrive in any order."""
    if await event.newer("subscription", subscription, event.occurred_at):
        await event.tx.execute(
            "INSERT INTO subscriptions VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET status = ?2",
            subscription,
            status,
        )


def create_tables() -> None:
    """Create the tables at start-up, so that one command runs the example; use migrations in production."""
    connection = apsw.Connection(DATABASE)
    connection.set_busy_timeout(5000)
    connection.execute(TABLES)
    connection.close()


create_tables()

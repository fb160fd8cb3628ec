"""`invoice.paid` gives customers what they paid for: six effects, each with its own policy. A cancelled account gets
nothing more unless an operator approves it.

Run `python show.py` to see it under duplicates, late events, timeouts and a killed worker.
"""

import os
from typing import Any

import httpx2

from hookledger import Event, Happened, Inbox, Op, RetryPolicy, Review, Seconds

inbox = Inbox()  # its database is named in hookledger.toml
stripe = inbox.source("stripe", provider="stripe", secrets=["env:STRIPE_WEBHOOK_SECRET"])

TABLES = """
    CREATE TABLE IF NOT EXISTS subscriptions (id TEXT PRIMARY KEY, status TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS features (
        account TEXT NOT NULL, feature TEXT NOT NULL, uses BIGINT NOT NULL, PRIMARY KEY (account, feature)
    );
"""
PLANS = {"team": {"reports": 100}, "enterprise": {"reports": 1000, "audits": 12}}

# Short, so that the example shows within seconds what takes longer in earnest.
QUICK: dict[str, Any] = {
    "timeout": "1s",
    "grace": "500ms",
    "retry": RetryPolicy(initial_delay=Seconds("100ms"), max_delay=Seconds("1s")),
}


def remote(name: str, port: int) -> httpx2.AsyncClient:
    url = os.environ.get(f"{name}_URL", f"http://127.0.0.1:{port}")
    return httpx2.AsyncClient(base_url=url, trust_env=False)


mail, finance = remote("MAIL", 8801), remote("FINANCE", 8802)
tasks, workspaces = remote("TASKS", 8803), remote("WORKSPACES", 8804)


async def ask(client: httpx2.AsyncClient, method: str, path: str, **request: Any) -> Any:
    answer = await client.request(method, path, **request)
    answer.raise_for_status()
    return answer.json()


# ── effects: what a service can do decides what follows an unknown outcome ──


# A desired state: read it first, and set it if it differs. The version keeps late events from undoing
# newer ones there, too.
@inbox.ensure(**QUICK)
async def upgrade_workspace(op: Op, account: str, plan: str, version: int) -> str:
    wanted = {"plan": plan, "version": version}
    workspace = await ask(workspaces, "PUT", f"/workspaces/{account}", json=wanted, headers={"Operation": op.key})
    return str(workspace["plan"])


@upgrade_workspace.check
async def is_upgraded(op: Op, account: str, plan: str, version: int) -> bool | Happened:
    workspace = await ask(workspaces, "GET", f"/workspaces/{account}")
    return Happened(workspace["plan"]) if workspace["version"] >= version else False


# Deduplicates on our key for a day, so: call again under the same key. One account's entries are booked in order.
@inbox.effect(repeat="keyed", window="24h", serial="account", **QUICK)
async def book_payment(op: Op, account: str, invoice: str, cents: int) -> int:
    entry = {"account": account, "invoice": invoice, "cents": cents}
    return int((await ask(finance, "POST", "/entries", json=entry, headers={"Idempotency-Key": op.key}))["number"])


# Knows no keys, and two receipts are one too many; but it can be searched for our reference, so: look before sending
# again.
@inbox.effect(repeat="never", **QUICK)
async def send_receipt(op: Op, to: str, invoice: str, workspace: str) -> None:
    message = {"to": to, "subject": f"Receipt for {invoice}", "text": f"Enjoy {workspace}", "reference": op.key}
    await ask(mail, "POST", "/mails", json=message)


@send_receipt.check
async def was_sent(op: Op, to: str, invoice: str, workspace: str) -> bool:
    return bool(await ask(mail, "GET", "/mails", params={"reference": op.key}))


# Knows no keys and cannot be searched, and a second welcome is bad: an operator looks, and decides with `hookledger
# resolve`. (Where a second task does no harm, repeat="accept" needs no decision.)
@inbox.effect(repeat="never", **QUICK)
async def open_onboarding_task(op: Op, account: str) -> None:
    await ask(tasks, "POST", "/tasks", json={"title": f"Welcome {account}", "reference": op.key})


# ── handlers ──


@stripe.on("invoice.paid")
async def provision(event: Event) -> dict[str, str]:
    invoice = event.json["data"]["object"]
    ident, account, plan = invoice["id"], invoice["customer"], invoice["metadata"]["plan"]
    paid_at, workspace = invoice["status_transitions"]["paid_at"], f"https://{account}.example.com"

    # Everything commits together with the event's outcome, or not at all.
    status = await lock_status(event, invoice["subscription"])
    await set_status(event, invoice["subscription"], "active", paid_at)

    # Each invoice adds to what may be used, and must not do so twice: neither when the event is replayed, nor when
    # another event tells of the same invoice.
    if await event.once("features", ident):
        # An operator decides, with `hookledger approve` or `reject`. What was provisioned before needs no decision.
        if status == "canceled" and not event.approved:
            raise Review(f"account {account} is cancelled: invoice {ident} would provision it again")
        for feature, uses in PLANS[plan].items():
            await event.tx.execute(
                """
                INSERT INTO features VALUES ($1, $2, $3)
                ON CONFLICT (account, feature) DO UPDATE SET uses = features.uses + excluded.uses
                """,
                account,
                feature,
                uses,
            )

    # Planned here, done after the commit, each when its own service is well. Nothing is called for an account that
    # turns out to be cancelled; no service keeps the customer waiting.
    await event.later(upgrade_workspace, ident, account=account, plan=plan, version=paid_at)
    await event.later(book_payment, ident, account=account, invoice=ident, cents=invoice["amount_paid"])
    await event.later(send_receipt, ident, to=invoice["customer_email"], invoice=ident, workspace=workspace)
    if plan == "enterprise":  # its key is the account: once for each, however many invoices it pays
        await event.later(open_onboarding_task, account, account=account)
    return {"workspace": workspace}


@stripe.on("customer.subscription.deleted")
async def cancel(event: Event) -> None:
    subscription = event.json["data"]["object"]
    await set_status(event, subscription["id"], "canceled", subscription["canceled_at"])


async def lock_status(event: Event, ident: str) -> str:
    """The status, locked until the commit: a cancellation comes before this event or after it, never in between."""
    status: str = await event.tx.fetchval(
        """
        INSERT INTO subscriptions VALUES ($1, 'new')
        ON CONFLICT (id) DO UPDATE SET status = subscriptions.status RETURNING status
        """,
        ident,
    )
    return status


async def set_status(event: Event, ident: str, status: str, version: int) -> None:
    """Events arrive in any order: an older one never overwrites what a newer one said."""
    if await event.newer("subscription", ident, version):
        await event.tx.execute(
            "INSERT INTO subscriptions VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET status = excluded.status",
            ident,
            status,
        )


if __name__ == "__main__":  # makes the tables; yours come from your own migrations
    import apsw

    apsw.Connection("provisioning.db").execute(TABLES)

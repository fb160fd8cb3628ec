"""The handlers of docs/how-to/order.md do what it says, with its settings; and the naive check fails as it says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hookledger import Event, Inbox, State
from hookledger.config import decode
from hookledger.store.connect import connect
from tests.asgi_client import Site, stripe_event

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "order.md").read_text()
CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
[TOML] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
[NAIVE] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
TABLES = (
    "CREATE TABLE subscriptions (id TEXT PRIMARY KEY, status TEXT, updated_at BIGINT)",
    "CREATE TABLE invoices (id TEXT PRIMARY KEY, status TEXT)",
    "CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, invoices BIGINT NOT NULL)",
)


class Payments:
    """The provider: each fetch finds what is next."""

    def __init__(self) -> None:
        self.states: list[str] = []

    async def subscription(self, ident: str) -> dict[str, str]:
        return {"id": ident, "status": self.states.pop(0)}


async def sql(site: Site, *statements: str) -> list[Any]:
    """Execute them in one transaction; returns the rows of the last."""
    store = connect(site.inbox.database or "", clock=site.inbox.clock)
    await store.open(handlers=1)
    try:
        transaction = store.transaction()
        rows: list[Any] = []
        for statement in statements:
            rows = list(await transaction.tx.fetch(statement))
        await transaction.commit([])
        return [tuple(row) for row in rows]
    finally:
        await store.close()


@pytest.fixture
async def site(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """The page's application, its source as in the page's settings."""
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", "whsec_made_up_for_the_docs")
    declared = re.findall(r"^stripe = inbox\.source\(.*\)\n", CODE, re.MULTILINE)
    assert len(declared) == 1
    code = CODE.replace(declared[0], 'stripe = inbox.sources["stripe"]\n')
    code = code.replace("inbox = Inbox()", "inbox = Inbox(database, settings=settings)")
    settings = decode({"work": {"poll": "10ms"}, **tomllib.loads(TOML)})
    names: dict[str, Any] = {"database": database_url, "settings": settings, "payments": Payments()}
    exec(compile(code, "order.md", "exec"), names)
    inbox: Inbox = names["inbox"]
    made = Site(inbox)
    made.payments = names["payments"]  # type: ignore[attr-defined]
    await sql(made, *TABLES)
    yield made
    await inbox.asgi.stop()


def about(ident: str, kind: str, created: int, **content: Any) -> dict[str, Any]:
    return stripe_event(ident, kind, created=1_790_000_000 + created, data={"object": content})


async def test_fetch_and_guard(site: Site) -> None:
    """The last state that was fetched stays, whatever the events say and however late they are."""
    site.payments.states = ["past_due", "active"]  # type: ignore[attr-defined]
    await sql(site, "INSERT INTO subscriptions VALUES ('sub_1', 'new', 0)")
    for ident, created in (("evt_2", 2), ("evt_1", 1)):
        kind = "customer.subscription.updated"
        await site.deliver(about(ident, kind, created, id="sub_1", customer="cus_1", status="trialing"))
        await site.work()
    assert await sql(site, "SELECT id, status FROM subscriptions") == [("sub_1", "active")]


async def test_guard(site: Site) -> None:
    """A late event changes no status, and its effects that add something happen once."""
    await sql(
        site, "INSERT INTO customers VALUES ('cus_1', 'Ada', 0)", "INSERT INTO invoices VALUES ('in_1', 'draft')"
    )
    for ident, created, status in (("evt_9", 31, "paid"), ("evt_8", 20, "open"), ("evt_9", 31, "paid")):
        await site.deliver(about(ident, "invoice.updated", created, id="in_1", customer="cus_1", status=status))
        await site.work()
    assert await sql(site, "SELECT id, status FROM invoices") == [("in_1", "paid")]
    assert await sql(site, "SELECT invoices FROM customers") == [(1,)]
    [stale] = (await site.event("evt_8")).guards
    assert re.fullmatch(
        r"stale for invoice status in_1: version .* by evt_9 was applied, this is .*", stale.answer.words
    )


async def test_order(site: Site) -> None:
    """Events of one customer, whatever they are about, run one after the other, by time."""
    await sql(site, "INSERT INTO customers VALUES ('cus_1', 'Ada', 0)")
    for ident, created, content in (
        ("evt_3", 3, {"id": "in_3", "customer": "cus_1", "status": "open"}),
        ("evt_1", 1, {"id": "in_1", "customer": "cus_1", "status": "open"}),
        ("evt_2", 2, {"id": "in_2", "customer": "cus_1", "status": "open"}),
    ):
        await site.deliver(about(ident, "invoice.updated", created, **content))
    await site.work()
    attempts = [(await site.event(f"evt_{n}")).attempts for n in (1, 2, 3)]
    assert [len(one) for one in attempts] == [1, 1, 1]
    [first], [second], [third] = attempts
    assert first.ended_at <= second.started_at
    assert second.ended_at <= third.started_at


async def test_wait(site: Site) -> None:
    """`updated` before `created`: it converges as soon as the other is processed."""

    @site.inbox.sources["stripe"].on("customer.created")
    async def create(event: Event) -> None:
        await event.tx.execute("INSERT INTO customers VALUES ($1, 'new', 0)", event.object_id)

    await site.deliver(about("evt_2", "customer.updated", 2, id="cus_1", name="Ada"))
    await site.work()
    found = (await site.event("evt_2")).event
    assert (found.state, found.attempts, found.waits_for) == (State.RETRYING, 0, "cus_1")
    await site.deliver(about("evt_1", "customer.created", 1, id="cus_1"))
    await site.work()
    assert await sql(site, "SELECT id, name FROM customers") == [("cus_1", "Ada")]
    assert await site.state("evt_2") is State.PROCESSED


async def test_how_the_naive_check_fails(site: Site) -> None:
    ends = []
    canceled = NAIVE.replace("'active'", "'canceled'")
    for statements in ((NAIVE, canceled), (canceled, NAIVE)):  # the same second: chance decides
        await sql(
            site, "DELETE FROM subscriptions", "INSERT INTO subscriptions VALUES ('sub_1', 'new', 1)", *statements
        )
        ends += await sql(site, "SELECT status FROM subscriptions")
    assert ends == [("active",), ("canceled",)]
    await sql(site, "DELETE FROM subscriptions", NAIVE)  # no row yet: nothing is updated, and nothing is said
    assert await sql(site, "SELECT id FROM subscriptions") == []
    address = NAIVE.replace("status = 'active'", "id = id").replace("1720", "1731")  # one column for the whole row
    await sql(site, "INSERT INTO subscriptions VALUES ('sub_1', 'new', 1)", address, NAIVE)
    assert await sql(site, "SELECT status FROM subscriptions") == [("new",)]

"""Handlers as people write them process the samples of `hookledger send` on the first try: real processes."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from hookledger.cli import exits
from tests.path.test_cli import SOURCE, wait_for
from tests.services import forked
from tests.services.ports import free_port

SENT = {
    ("stripe", "invoice.paid"): "paid",
    ("stripe", "checkout.session.completed"): "checkouts",
    ("stripe", "customer.subscription.updated"): "subscriptions",
    ("github", "push"): "commits",
    ("shopify", "orders/create"): "lines",
}
APP = """
from datetime import UTC, datetime
from decimal import Decimal

from hookledger import Event, Inbox

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])
github = inbox.source("github", provider="github", secrets=["env:SECRET"])
shopify = inbox.source("shopify", provider="shopify", secrets=["env:SECRET"])


@stripe.on("invoice.paid")
async def paid(event: Event) -> None:
    invoice = event.json["data"]["object"]
    details = invoice["parent"]["subscription_details"]
    assert details["subscription"] == invoice["subscription"]
    for line in invoice["lines"]["data"]:
        until = datetime.fromtimestamp(line["period"]["end"], UTC)
        assert until > event.occurred_at
        await event.tx.execute(
            "INSERT INTO paid VALUES ($1, $2, $3, $4)",
            invoice["id"], invoice["customer"], details["subscription"], invoice["amount_paid"],
        )


@stripe.on("checkout.session.completed")
async def bought(event: Event) -> None:
    session = event.json["data"]["object"]
    if session["payment_status"] == "paid" and session["mode"] == "subscription":
        email = session["customer_details"]["email"]
        await event.tx.execute(
            "INSERT INTO checkouts VALUES ($1, $2, $3, $4)",
            session["client_reference_id"], session["customer"], session["subscription"], email,
        )


@stripe.on("customer.subscription.updated")
async def changed(event: Event) -> None:
    subscription = event.json["data"]["object"]
    item = subscription["items"]["data"][0]
    assert "cancel_at_period_end" in event.json["data"]["previous_attributes"]
    assert item["current_period_end"] == subscription["current_period_end"]
    await event.tx.execute(
        "INSERT INTO subscriptions VALUES ($1, $2, $3, $4)",
        subscription["id"], subscription["status"], item["price"]["lookup_key"], item["current_period_end"],
    )


@github.on("push")
async def pushed(event: Event) -> None:
    push = event.json
    if push["ref"] == f"refs/heads/{push['repository']['default_branch']}":
        for commit in push["commits"]:
            await event.tx.execute(
                "INSERT INTO commits VALUES ($1, $2, $3, $4)",
                commit["id"], commit["author"]["email"], push["repository"]["full_name"], push["pusher"]["name"],
            )


@shopify.on("orders/create")
async def ordered(event: Event) -> None:
    order = event.json
    cents = 0
    for line in order["line_items"]:
        cents += int(Decimal(line["price"]) * 100) * line["quantity"]
        await event.tx.execute(
            "INSERT INTO lines VALUES ($1, $2, $3, $4)",
            order["name"], order["customer"]["email"], line["sku"], line["quantity"],
        )
    assert cents == int(Decimal(order["subtotal_price"]) * 100)
    assert order["shipping_address"]["country_code"] == "US"
"""
TABLES = [
    "CREATE TABLE paid (invoice TEXT, customer TEXT, subscription TEXT, cents INTEGER)",
    "CREATE TABLE checkouts (reference TEXT, customer TEXT, subscription TEXT, email TEXT)",
    "CREATE TABLE subscriptions (id TEXT, status TEXT, plan TEXT, until INTEGER)",
    "CREATE TABLE commits (id TEXT, author TEXT, repository TEXT, pusher TEXT)",
    "CREATE TABLE lines (name TEXT, email TEXT, sku TEXT, quantity INTEGER)",
]

Run = Callable[..., subprocess.CompletedProcess[str]]


async def query(url: str, *statements: str) -> list[Any]:
    """The rows of the last statement, in the application's own tables."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            return [file.execute(text).fetchall() for text in statements][-1]
    connection = await asyncpg.connect(url)
    try:
        return [[tuple(row) for row in await connection.fetch(text)] for text in statements][-1]
    finally:
        await connection.close()


@pytest.fixture
def environment(tmp_path: Path, database_url: str) -> dict[str, str]:
    (tmp_path / "shop.py").write_text(APP)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
    more = {"HOOKLEDGER_APP": "shop:inbox", "HOOKLEDGER_DATABASE": database_url, "COLUMNS": "200"}
    return {**mine, **more, "PYTHONPATH": str(SOURCE), "SECRET": "made-up-secret-of-the-samples", "NO_COLOR": "1"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    outputs = tmp_path_factory.mktemp("outputs")
    return lambda *arguments: forked.run("hookledger", arguments, cwd=tmp_path, env=environment, folder=outputs)


@pytest.fixture
def served(tmp_path: Path, environment: dict[str, str], run: Run) -> Iterator[str]:
    """`receive`, in a process; the address of its intake."""
    migrated = run("migrate")
    assert migrated.returncode == exits.OK, migrated.stderr
    port = free_port()
    ports = ["--port", str(port), "--operator-port", str(free_port())]
    command = [sys.executable, "-m", "hookledger", "receive", *ports]
    with (tmp_path / "receive.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log)
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "receive.log").read_text()
        try:
            return httpx2.get(f"{url}/readyz", trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False

    try:
        wait_for(ready)
        yield url
    finally:
        process.terminate()
        process.wait(60)


async def test_realistic_handlers_process_samples_on_the_first_try(served: str, run: Run, database_url: str) -> None:
    await query(database_url, *TABLES)
    for source, kind in SENT:
        sent = run("send", source, "--type", kind, "--url", f"{served}/{source}", "--json")
        assert sent.returncode == exits.OK, sent.stderr
        assert [answer["status"] for answer in json.loads(sent.stdout)] == [202]
        assert sent.stderr == "", "there is a sample"
    worked = run("work", "--drain")
    assert worked.returncode == exits.OK, worked.stderr

    events = json.loads(run("events", "--json").stdout)
    ended = {(event["source"], event["type"]): (event["state"], event["attempts"]) for event in events}
    assert ended == dict.fromkeys(SENT, ("processed", 1))
    for table in SENT.values():
        [row] = await query(database_url, f"SELECT * FROM {table}")
        assert all(row), f"{table}: {row}"


async def test_a_field_an_id_and_a_list(served: str, run: Run, database_url: str) -> None:
    await query(database_url, *TABLES)

    def send(*options: str) -> tuple[list[int], str]:
        sent = run("send", "stripe", "--url", f"{served}/stripe", "--json", *options)
        assert sent.returncode == exits.OK, sent.stderr
        return [answer["status"] for answer in json.loads(sent.stdout)], " ".join(sent.stderr.split())

    edits = ("--set", "data.object.customer=cus_1", "--set", "data.object.amount_paid=1250")
    assert send("--id", "evt_1", *edits) == ([202], "")
    assert send("--id", "evt_1", *edits) == ([200], ""), "the same id is the same event"
    assert send() == ([202], "")
    assert send() == ([202], ""), "without an id each is an event of its own"
    statuses, said = send("--id", "evt_2", "--set", "data.object.metadata.plan=pro", "--set", "data.object.custmer=1")
    assert statuses == [202]
    assert "--set data.object.custmer: the sample has no such field; added it" in said
    statuses, said = send("--type", "invoice.payed")
    assert statuses == [202]
    assert "no sample for type invoice.payed" in said
    assert "the nearest that has one is invoice.paid (hookledger send stripe --list)" in said

    assert run("work", "--drain").returncode == exits.OK
    rows = await query(database_url, "SELECT customer, cents FROM paid")
    assert len(rows) == 4
    assert ("cus_1", 1250) in rows
    body = json.loads(run("show", "evt_2", "--body").stdout)["data"]["object"]
    assert (body["metadata"], body["custmer"]) == ({"plan": "pro"}, 1)

    types = run("send", "stripe", "--list").stdout.split()
    assert types[0] == "invoice.paid"
    assert {kind for source, kind in SENT if source == "stripe"} < set(types)
    assert json.loads(run("send", "github", "--list", "--json").stdout)[0] == "push"
    wrong = run("send", "stripe", "--url", f"{served}/stripe", "--set", "data.objekt.id=1")
    assert wrong.returncode == exits.CONFIG
    assert "--set data.objekt: the sample has no such field; data has object" in " ".join(wrong.stderr.split())

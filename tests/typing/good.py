"""Handlers and effects as they should be written: neither type checker has anything to say. Never run."""

# pyright: strict
import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict, assert_type
from uuid import UUID

from msgspec import Struct

from hookledger import (
    Approval,
    CurrentSettings,
    Effect,
    Event,
    Happened,
    Inbox,
    Op,
    ReconcileSettings,
    Review,
    SecretSettings,
    Statements,
    SyncEvent,
    SyncStatements,
)

inbox = Inbox("sqlite:///never-opened.db")
stripe = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up"])
inbox.source(
    "orders",
    provider="square",
    secrets=["env:SQUARE", SecretSettings("env:OLD", expires=datetime(2027, 1, 31, tzinfo=UTC))],
    types={"order.*"},
    other_types="reject",
    key=lambda content, headers: (headers["x-tenant"], content["id"]),
    tolerance="10m",
    horizon=86400.0,
    public_url="https://hooks.example.com/orders",
    retention={"payloads": "30d", "events": "never"},
    reconcile=ReconcileSettings(at="03:00"),
    current=CurrentSettings(token="env:SQUARE_TOKEN"),
)


class Charge(Struct):
    """Results may be of any type that JSON can keep."""

    id: str
    at: datetime


class Invoice(Struct):
    """Content of an event."""

    id: str
    cents: int


class AsDict(TypedDict):
    id: str


class Session:
    """Stands for the session of an ORM."""

    async def add(self, what: object) -> None: ...


class PlainSession:
    def add(self, what: object) -> None: ...


# ── effects ──


@inbox.effect(repeat="keyed", window="24h", serial="account", volatile=["note"])
async def charge(op: Op, account: str, cents: int, *, note: str = "") -> Charge:
    assert_type(op.key, str)
    assert_type(op.uuid, UUID)
    return Charge(op.key, datetime.now(UTC))


@inbox.effect(repeat="never")
def print_label(op: Op, address: dict[str, str]) -> int:
    return len(address)


@print_label.check
def label_was_printed(op: Op, address: dict[str, str]) -> bool | None:
    return None


@inbox.ensure()
async def upgrade(op: Op, workspace: str, key: str) -> None: ...


@upgrade.check
async def is_upgraded(op: Op, workspace: str, key: str) -> bool | Happened:
    return Happened()


anything: Effect[..., object] = print_label


# ── handlers ──


@stripe.on("invoice.paid")
async def paid(event: Event) -> dict[str, str]:
    if not event.approved:
        raise Review("the account is cancelled")
    assert_type(event.approved, Approval)
    made = await event.call(charge, "in_1", "acct_1", 4900, note="thanks")
    assert_type(made, Charge)
    assert_type(made.at, datetime)
    assert_type(await event.call(print_label, 7, {"city": "Turku"}), int)
    assert_type(await event.call(print_label, UUID(int=7), address={}), int)
    if await event.once("credit", "in_1"):
        await event.tx.execute("UPDATE accounts SET credit = credit + 1")
    if await event.newer("subscription", "sub_1", event.occurred_at):
        await event.tx.execute("UPDATE subscriptions SET status = 'paid'")
    assert_type(await event.newer("subscription", 7, event.json["version"]), bool)
    assert_type(await event.newer("subscription", UUID(int=7), (1, Decimal("1.5"), "2027-01-31")), bool)
    assert_type(await event.newer("subscription", "sub_1", [1.5, datetime.now(UTC)]), bool)
    assert_type(await event.tx.fetch("SELECT 1"), list[Any])
    assert_type(await event.current(), Any)
    assert_type(event.ticket, int)
    await event.later(charge, "in_1", account="acct_1", cents=1)
    await event.later(upgrade, "in_1", "ws_1", key="an effect may have a parameter of any name")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(event.call(charge, "in_2", "acct_1", 1))
        group.create_task(event.later(charge, "in_3", "acct_1", 1))
    assert_type(first.result(), Charge)
    return {"charge": made.id}


@stripe.on("invoice.voided")
def voided(event: SyncEvent) -> str:
    assert_type(event.call(charge, "in_1", "acct_1", 4900), Charge)
    assert_type(event.once("credit", "in_1"), bool)
    assert_type(event.current(), Any)
    assert_type(event.ticket, int)
    assert_type(event.approved, Approval | None)
    assert_type(event.newer("subscription", "sub_1", 1731), bool)
    event.later(print_label, "in_1", address={})
    event.tx.execute("UPDATE accounts SET credit = credit - 1")
    return "voided"


# ── what an adapter hands out as event.tx ──


@stripe.on("customer.created", transaction=True)
async def created(event: Event[Session]) -> None:
    assert_type(event.tx, Session)
    await event.tx.add(await event.call(charge, "in_1", "acct_1", 1))


@stripe.on("customer.deleted", timeout="2m", batch=1, stale="skip")
def deleted(event: SyncEvent[PlainSession]) -> None:
    event.tx.add(event.call(charge, "in_1", "acct_1", 1))


def any_helper(event: Event) -> str:
    """A bare `Event` is one with the default kind of transaction."""
    assert_type(event.occurred_at, datetime | None)
    return event.type


async def other_helper(event: Event[Session]) -> str:
    await event.tx.add(event.type)
    return event.type


# A decorated handler is still the function that it was.
assert_type(voided(SyncEvent.__new__(SyncEvent)), str)


# ── content of a type ──


@stripe.on("typed", body=Invoice)
async def typed(event: Event[Statements, Invoice]) -> str:
    assert_type(event.content, Invoice)
    await event.tx.execute("SELECT 1")
    return event.content.id


@stripe.on("typed.session", body=Invoice)
async def typed_in_a_session(event: Event[Session, Invoice]) -> None:
    await event.tx.add(event.content.cents + 1)


@stripe.on("typed.plainly", body=AsDict, batch=2)
def typed_plainly(event: SyncEvent[SyncStatements, AsDict]) -> None:
    assert_type(event.content, AsDict)
    event.tx.execute("SELECT 1")


@stripe.on("untyped")
async def untyped(event: Event) -> None:
    print(event.content["whatever"])

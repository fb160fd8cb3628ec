"""A partner API whose routes take `Idempotency-Key`: orders in the route's transaction, payouts at a bank.

    uvicorn partner:app

A repeated order gets the answer of the first. A payout whose outcome at the bank is unknown is not made again: the
partner gets 409 until an operator has looked, and decided with `hookledger resolve`.
"""

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from hookledger import Event, Inbox, Op, current_event

TOKENS = {b"Bearer made-up-token-of-acme": "acme", b"Bearer made-up-token-of-globex": "globex"}
TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, partner TEXT NOT NULL, item TEXT NOT NULL, "
    "cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS payouts (id TEXT PRIMARY KEY, partner TEXT NOT NULL, cents BIGINT NOT NULL)",
)


class Bank:
    """A bank that cannot deduplicate. `breaks`: the connection is lost after it has paid."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.breaks = False

    async def pay(self, partner: str, cents: int) -> None:
        self.paid.append((partner, cents))
        if self.breaks:
            raise ConnectionResetError("the bank closed the connection")


BANK = Bank()


def caller(scope: Any) -> str | None:
    """The partner who sent the request."""
    return TOKENS.get(dict(scope["headers"]).get(b"authorization", b""))


inbox = Inbox(os.environ.get("HOOKLEDGER_DATABASE", "sqlite:///partner.db"))
partner_api = inbox.idempotent(
    "partner-api",
    caller=caller,
    routes={"POST /orders": "transaction", "POST /payouts": "never"},
    wait="5s",
)


@inbox.effect(repeat="never")
async def pay(op: Op, partner: str, cents: int) -> None:
    await BANK.pay(partner, cents)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await inbox.migrate()
    async with inbox.opened(handlers=1) as store:
        transaction = store.transaction()
        for table in TABLES:
            await transaction.tx.execute(table)
        await transaction.commit([])
    yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(partner_api)


class Order(BaseModel):
    item: str
    cents: int


class Payout(BaseModel):
    cents: int


def partner_of(request: Request) -> str:
    partner = caller(request.scope)
    if partner is None:
        raise HTTPException(401)
    return partner


@app.post("/orders", status_code=201)
async def order(request: Request, given: Order) -> dict[str, Any]:
    partner = partner_of(request)
    event: Event = current_event(request)
    row = (str(event.id), partner, given.item, given.cents)
    await event.tx.execute("INSERT INTO orders (id, partner, item, cents) VALUES ($1, $2, $3, $4)", *row)
    return {"id": row[0], "item": given.item}


@app.post("/payouts", status_code=201)
async def payout(request: Request, given: Payout) -> dict[str, Any]:
    partner = partner_of(request)
    event: Event = current_event(request)
    await event.call(pay, str(event.id), partner=partner, cents=given.cents)  # before the transaction
    row = (str(event.id), partner, given.cents)
    await event.tx.execute("INSERT INTO payouts (id, partner, cents) VALUES ($1, $2, $3)", *row)
    return {"id": row[0], "paid": given.cents}

"""The handlers that benchmarks/work.py measures, one source each."""

from __future__ import annotations

import os

from hookledger import Config, Event, Inbox, Op
from hookledger.config import MonitorSettings

SECRET = "whsec_benchmark"
INSERT = {
    "postgresql": "INSERT INTO business (event) VALUES ($1)",
    "sqlite": "INSERT INTO business (event) VALUES (?)",
}

monitor = MonitorSettings(rates=os.environ.get("BENCHMARK_RATES") != "off")
inbox = Inbox(
    os.environ["HOOKLEDGER_DATABASE"],
    settings=Config(monitor=monitor),
    schemas=os.environ.get("BENCHMARK_SCHEMAS") or None,
)
statement = INSERT[os.environ["HOOKLEDGER_DATABASE"].partition(":")[0]]
rows = inbox.source("rows", provider="stripe", secrets=[SECRET])
batches = inbox.source("batches", provider="stripe", secrets=[SECRET])
empty = inbox.source("empty", provider="stripe", secrets=[SECRET])
calls = inbox.source("calls", provider="stripe", secrets=[SECRET])
ordered = inbox.source("ordered", provider="stripe", secrets=[SECRET], ordered=["*"])
guarded = inbox.source("guarded", provider="stripe", secrets=[SECRET])
laters = inbox.source("laters", provider="stripe", secrets=[SECRET])


@rows.on("*")
async def one_row(event: Event) -> None:
    await event.tx.execute(statement, event.key)


@ordered.on("*")
async def one_row_in_order(event: Event) -> None:
    await event.tx.execute(statement, event.key)


@guarded.on("*")
async def one_guarded_row(event: Event) -> None:
    if await event.newer("row", event.key, 1):
        await event.tx.execute(statement, event.key)


@batches.on("*", batch=50)
async def one_row_of_many(event: Event) -> None:
    await event.tx.execute(statement, event.key)


@empty.on("*")
async def nothing(event: Event) -> None:
    """Only claimed and settled."""


@inbox.effect(repeat="safe")
async def touch(op: Op, event: str) -> None:
    """Nothing, so that only the ledger is measured."""


@calls.on("*")
async def one_call(event: Event) -> None:
    await event.call(touch, event.key, event.key)


@laters.on("*")
async def one_later(event: Event) -> None:
    await event.later(touch, event.key, event.key)

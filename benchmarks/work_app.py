"""The handlers that benchmarks/work.py measures, one source each."""

from __future__ import annotations

import os

from hookledger import Config, Event, Inbox

SECRET = "whsec_benchmark"
INSERT = {
    "postgresql": "INSERT INTO effects (event) VALUES ($1)",
    "sqlite": "INSERT INTO effects (event) VALUES (?)",
}

inbox = Inbox(os.environ["HOOKLEDGER_DATABASE"], settings=Config())
statement = INSERT[os.environ["HOOKLEDGER_DATABASE"].partition(":")[0]]
rows = inbox.source("rows", provider="stripe", secrets=[SECRET])
batches = inbox.source("batches", provider="stripe", secrets=[SECRET])
empty = inbox.source("empty", provider="stripe", secrets=[SECRET])


@rows.on("*")
async def one_row(event: Event) -> None:
    await event.tx.execute(statement, event.key)


@batches.on("*", batch=50)
async def one_row_of_many(event: Event) -> None:
    await event.tx.execute(statement, event.key)


@empty.on("*")
async def nothing(event: Event) -> None:
    """Only claimed and settled."""

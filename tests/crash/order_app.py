"""Handlers that keep the newest version of each entity, in the ways that ORDER names: see test_order.py."""

import asyncio
import json
import os
import urllib.error
import urllib.request

from hookledger import Event, Inbox, Wait
from tests.crash.app import SECRETS

WAY = os.environ.get("ORDER", "newer")
TABLES = "CREATE TABLE newest (entity text PRIMARY KEY, version bigint NOT NULL, event text NOT NULL)"
PAUSE = 0.02
"""Seconds that a handler takes, so that a kill finds some that run."""
WRITE = """
INSERT INTO newest (entity, version, event) VALUES ($1, $2, $3)
ON CONFLICT (entity) DO UPDATE SET version = excluded.version, event = excluded.event
"""

inbox = Inbox()
ordered = "ordered" in WAY
stripe = inbox.source(
    "stripe",
    provider="stripe",
    secrets=[SECRETS["stripe"]],
    ordered=["change"] if ordered else [],
    entity=["do.entity"] if ordered else [],
)


async def write(event: Event, version: int) -> None:
    await event.tx.execute(WRITE, event.json["do"]["entity"], version, event.key)


@stripe.on("change")
async def change(event: Event) -> None:
    do = event.json["do"]
    await asyncio.sleep(PAUSE)
    if WAY == "current":
        version = await event.current()
        if await event.newer("entity", do["entity"], event.ticket):
            await write(event, version)
    elif WAY == "ordered" or await event.newer("entity", do["entity"], do["version"]):
        await write(event, do["version"])


@stripe.current
async def present(event: Event) -> int:
    """What the provider says now: slowly, and sometimes that it was asked too often."""
    address = f"http://127.0.0.1:{os.environ['ORDER_PROVIDER']}/{event.json['do']['entity']}"

    def ask() -> int:
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                found: int = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            raise Wait("asked too often", after=float(error.headers["Retry-After"])) from None

    return await asyncio.to_thread(ask)

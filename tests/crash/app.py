"""The application under test: every handler writes one row into a business table, in the event's own transaction.

The table has no unique constraint, so that an effect that happens twice is seen twice. What a handler should do
besides stands in the event's body under "do": the types name the behaviour, the body its details.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from hookledger import Event, Inbox, Permanent, SyncEvent

# Made up, and the sender knows them too.
SECRETS = {
    "stripe": "whsec_crash_tests_stripe_secret",
    "github": "crash-tests-github-secret",
    "standard": "whsec_Y3Jhc2gtdGVzdHMtc3RhbmRhcmQtd2ViaG9va3M=",
}
EFFECTS = "CREATE TABLE written (event_key text NOT NULL, attempt integer NOT NULL, pid integer NOT NULL)"
WRITE = "INSERT INTO written (event_key, attempt, pid) VALUES ($1, $2, $3)"

inbox = Inbox()
sources = [
    inbox.source("stripe", provider="stripe", secrets=[SECRETS["stripe"]]),
    inbox.source("github", provider="github", secrets=[SECRETS["github"]]),
    inbox.source("standard", provider="standard_webhooks", secrets=[SECRETS["standard"]]),
]


def wanted(event: Event | SyncEvent) -> dict[str, Any]:
    found: dict[str, Any] = event.json.get("do", {})
    return found


async def write(event: Event) -> None:
    await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())


async def announce(event: Event) -> None:
    """Say that this attempt is running, by a file with our process id in it that appears whole."""
    place = Path(wanted(event)["announce"])
    draft = place.with_suffix(f".{os.getpid()}")
    draft.write_text(str(os.getpid()))
    draft.rename(place)


async def go_ahead(event: Event) -> None:
    """Wait until the test makes the file that it named."""
    while not Path(wanted(event)["go"]).exists():
        await asyncio.sleep(0.02)


async def order(event: Event) -> str:
    await write(event)
    return "ordered"


async def loud(event: Event) -> None:
    """Prints, which is nobody's business."""
    print(f"ordered {event.key}", flush=True)
    await write(event)


def plain(event: SyncEvent) -> None:
    """The same as a plain function, which runs in a thread."""
    event.tx.execute(WRITE, event.key, event.attempt, os.getpid())


async def slow(event: Event) -> None:
    """Takes a moment before the write and one after it; `seconds` lists those before it, one for each attempt."""
    seconds = wanted(event).get("seconds", [])
    await asyncio.sleep(seconds[event.attempt - 1] if event.attempt <= len(seconds) else 0.02)
    await write(event)
    await asyncio.sleep(0.02)


async def hog(event: Event) -> None:
    """Keeps the whole event loop of its worker busy, at its first attempt, until it may go on."""
    if event.attempt == 1:
        await announce(event)
        while not Path(wanted(event)["go"]).exists():
            time.sleep(0.02)
    await write(event)


async def poison(event: Event) -> None:
    """Takes the whole process with it, after a moment in which others could be started beside it."""
    await asyncio.sleep(0.5)
    await write(event)
    os.kill(os.getpid(), signal.SIGKILL)


async def freeze(event: Event) -> None:
    """Stays before the transaction, at its first attempt only."""
    if event.attempt == 1:
        await announce(event)
        await go_ahead(event)
    await write(event)


async def freeze_inside(event: Event) -> None:
    """Stays inside the transaction, at its first attempt only; whoever froze us does not let us go on."""
    await write(event)
    if event.attempt == 1:
        await announce(event)
        await asyncio.sleep(60)


async def block(event: Event) -> None:
    """Keeps the event loop busy inside the transaction, over the limit at its first attempt, then writes again."""
    await write(event)
    if event.attempt == 1:
        time.sleep(wanted(event)["seconds"])
        await write(event)


async def fail_permanent(event: Event) -> None:
    await write(event)
    raise Permanent("this can never work")


async def fail_transient(event: Event) -> None:
    await write(event)
    if event.attempt <= wanted(event).get("failures", 1):
        raise ConnectionError("the remote is not there")


async def fail_until_go(event: Event) -> None:
    await write(event)
    if not Path(wanted(event)["go"]).exists():
        raise ConnectionError("the remote is not there")


async def commit_by_itself(event: Event) -> None:
    await write(event)
    await event.tx.execute("COMMIT")


for source in sources:
    source.on("order")(order)
    source.on("loud")(loud)
    source.on("plain")(plain)
    source.on("slow")(slow)
    source.on("hog")(hog)
    source.on("poison")(poison)
    source.on("freeze")(freeze)
    source.on("freeze.inside")(freeze_inside)
    source.on("block")(block)
    source.on("fail.permanent")(fail_permanent)
    source.on("fail.transient")(fail_transient)
    source.on("fail.until.go")(fail_until_go)
    source.on("commit.by.itself")(commit_by_itself)

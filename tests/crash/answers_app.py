"""The application of the tests of answers: one handler that writes a row and answers, and what may happen to it.

The process that answers dies at a step: before and after each commit, from the first delivery on. DIES names a folder
and a share: each process that runs handlers dies with that probability, somewhere in the handler.
"""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from hookledger import Answer, Event, Inbox
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from tests.crash.app import SECRETS, WRITE, announce, go_ahead, wanted
from tests.crash.killed_at import Counter, count_commits

STEP, SHARE = "HOOKLEDGER_TEST_STEP", "HOOKLEDGER_TEST_SHARE"
LATE = Answer("working on it", status=202)

inbox = Inbox()
source = inbox.source("stripe", provider="stripe", secrets=[SECRETS["stripe"]])


def perhaps_die() -> None:
    if random.random() < float(os.environ.get(SHARE, "0")) / 3:
        os.kill(os.getpid(), signal.SIGKILL)


@source.answer("answer", deadline="50s", timeout="90s")
async def answer(event: Event) -> Answer:
    do = wanted(event)
    if "announce" in do and event.attempt == 1:
        await announce(event)
    if "go" in do and event.attempt == 1:
        await go_ahead(event)
    perhaps_die()
    await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())
    perhaps_die()
    await asyncio.sleep(do.get("seconds", 0.0))
    perhaps_die()
    return Answer({"key": event.key, "unique": uuid4().hex})


@source.answer("late", deadline="1s", late=LATE)
async def late(event: Event) -> Answer:
    """Blocks the event loop, and may die then."""
    do = wanted(event)
    if event.attempt == 1:
        await announce(event)
        while not Path(do["go"]).exists():
            time.sleep(0.02)
        if do.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
    await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())
    return Answer({"key": event.key, "unique": uuid4().hex})


@source.answer("freeze", deadline="50s", timeout="90s")
async def freeze(event: Event) -> Answer:
    """The first attempt stops in its transaction, which holds SQLite's write lock."""
    await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())
    if event.attempt == 1:
        Path(wanted(event)["announce"]).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return Answer({"key": event.key})


@source.on("order")
async def order(event: Event) -> None:
    perhaps_die()
    await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())


def count_from_the_first_delivery(step: int) -> None:
    """Kill this process at a step, counted from its first delivery on."""
    counter = Counter(step)

    class Waiting:
        def step(self) -> None:
            if begun:
                counter.step()

    begun: list[bool] = []
    count_commits(Waiting())  # type: ignore[arg-type]  # it has what is used of it
    for kind in (PostgresStore, SqliteStore):
        _begin_with(kind, begun)


def _begin_with(kind: Any, begun: list[bool]) -> None:
    claim_new = kind.claim_new

    async def recording(self: Store, *given: Any) -> Any:
        begun.append(True)
        return await claim_new(self, *given)

    kind.claim_new = recording


if "answering" in sys.argv and STEP in os.environ:
    marker = Path(f"{os.environ[STEP]}.done")
    if not marker.exists():  # only the first of them dies so
        marker.touch()
        count_from_the_first_delivery(int(Path(os.environ[STEP]).read_text()))

"""Runs the application with effects in real processes, and gathers what the database and the sink say afterwards."""

import asyncio
import copy
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from hookledger import Inbox
from hookledger.operate import decide, effects, search
from hookledger.operate.audit import by
from hookledger.operate.context import Context
from hookledger.store.protocol import Store
from tests.asgi_client import Site, stripe_event
from tests.crash.checker import Row
from tests.crash.effects_app import BUSINESS, SECRET
from tests.crash.processes import PATIENCE, Installation, Process
from tests.services.ports import free_port
from tests.services.postgres import Databases
from tests.services.sink import Request, Sink, running_sink

UNSETTLED = """SELECT
    (SELECT count(*) FROM {h}events WHERE state IN ('pending', 'processing', 'retrying'))
    + (SELECT count(*) FROM {h}effects
       WHERE state = 'started' OR due_at IS NOT NULL OR leased_until IS NOT NULL) AS n"""
NEVER_SENT = ("never sent", "ClaimLost")
"""What the errors say of calls that nobody made after all."""


def until(condition: Callable[[], Any], what: str, every: float = 0.25) -> None:
    """Looks seldom: each look is a connection, and several installations share the machine."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(every)


class Snapshot:
    """What is so at one moment. Effects are found by (name, key)."""

    def __init__(self, shop: "Shop") -> None:
        database = shop.database
        self.events = database.events()
        rows = database.rows("SELECT * FROM {h}effects")
        by_identity = {bytes(row["identity"]): (row["name"], row["key"]) for row in rows}
        self.effects = {(row["name"], row["key"]): row for row in rows}
        assert len(self.effects) == len(rows), "two effects with one name and key"
        self.calls: dict[tuple[str, str], list[Row]] = {place: [] for place in self.effects}
        for row in database.rows("SELECT * FROM {h}effect_calls ORDER BY number"):
            self.calls[by_identity[bytes(row["identity"])]].append(row)
        self.business = Counter((row["what"], row["key"]) for row in database.rows("SELECT * FROM business"))
        self.results = {(row["what"], row["key"]): row["result"] for row in database.rows("SELECT * FROM business")}
        self.requests: list[Request] = copy.deepcopy(shop.sink.requests)

    def received(self, effect: str, key: str) -> list[Request]:
        return [request for request in self.requests if (request.effect, request.key) == (effect, key)]

    def performed(self, effect: str, key: str) -> int:
        return sum(request.performed for request in self.received(effect, key))

    def state(self, effect: str, key: str) -> str | None:
        found = self.effects.get((effect, key))
        return None if found is None else found["state"]

    def outcomes(self, effect: str, key: str) -> list[str | None]:
        """How its calls ended that were sent. A busy machine may begin one too late, or lose its claim before."""
        calls = self.calls.get((effect, key), [])
        return [call["outcome"] for call in calls if not any(word in (call["error"] or "") for word in NEVER_SENT)]


class Shop(Installation):
    """One installation of `tests.crash.effects_app`, and the sink that its effects call."""

    def __init__(self, folder: Path, url: str, sink: Sink, **work: Any) -> None:
        settings = {"circuit": {"failures": 100_000}, "outbox": {"poll": "50ms"}}
        super().__init__(folder, url, **{**settings, **work})
        self.sink = sink
        sink.deduplicates |= {f"{kind}_{policy}" for kind in ("call", "later") for policy in ("keyed", "brief")}
        self.environment |= {
            "HOOKLEDGER_APP": "tests.crash.effects_app:inbox",
            "SINK": sink.url,
            "NO_EVENTS": f"http://127.0.0.1:{free_port()}",
        }

    def prepare(self) -> None:
        asyncio.run(Inbox(self.database.url).migrate())
        self.database.rows(BUSINESS)

    def crash_at(self, point: str, names: Sequence[str]) -> None:
        """The next worker, and no other, kills itself when all of these have reached the point."""
        marker = self.folder / "crashed"
        self.environment |= {"CRASH_AT": point, "CRASH_ALL": " ".join(names), "CRASH_MARKER": str(marker)}

    def deliver(self, *events: tuple[str, str]) -> None:
        """(type, business key) of each; the event's own key is made of both."""

        async def send() -> None:
            inbox = Inbox(self.database.url)
            inbox.source("shop", provider="stripe", secrets=[SECRET])
            site = Site(inbox)
            try:
                for kind, key in events:
                    content = stripe_event(event_key(kind, key), kind, data={"object": {"id": key}})
                    assert (await site.deliver(content, source="shop")).status in (200, 202)
            finally:
                await inbox.asgi.stop()

        asyncio.run(send())

    # ── the end ──

    def settled(self) -> bool:
        """Whether nothing goes on by itself any more."""
        return bool(self.database.rows(UNSETTLED)[0]["n"] == 0)

    def settle(self, worker: Process) -> Snapshot:
        """Once nothing goes on by itself, and what is so then."""

        def settled() -> bool:
            assert worker.running, f"the worker ended: {worker.log[-3000:]}"
            return self.settled()

        until(settled, "every event is final, every effect is over or waits for a person")
        return Snapshot(self)

    def act(self, work: Callable[[Store], Any]) -> Any:
        async def act() -> Any:
            async with Inbox(self.database.url).opened() as store:
                return await work(store)

        return asyncio.run(act())

    def resolve(
        self, event: str, effect: str, decision: Literal["happened", "did_not_happen"], result: Any = None
    ) -> None:
        """A person decides."""

        async def resolve(store: Store) -> None:
            known = await effects.find(Context(store), event, effect)
            await effects.resolve(Context(store), by("ada", "looked it up"), known, decision, result)

        self.act(resolve)

    def retry(self, event: str) -> None:
        async def retry(store: Store) -> None:
            known = await search.find(Context(store), event)
            await decide.retry(Context(store), by("ada", "once more"), known.event)

        self.act(retry)

    def logs_of_all(self) -> str:
        return "\n".join(f"── {process.log_file.name} ──\n{process.log[-4000:]}" for process in self.processes)


def event_key(kind: str, key: str) -> str:
    return f"{kind}/{key}"


@contextmanager
def shop_on(server: Databases | None, folder: Path, **work: Any) -> Iterator[Shop]:
    """An installation on a database of its own, in SQLite without a server; its logs are in whatever fails."""
    folder.mkdir()
    name = f"hookledger_effects_{uuid.uuid4().hex}"
    with ExitStack() as stack:
        url = f"sqlite:///{folder}/inbox.db"
        if server is not None:
            url = server.create_database(name)
            stack.callback(server.drop_database, name)
        shop = Shop(folder, url, stack.enter_context(running_sink()), **work)
        stack.callback(shop.end)
        try:
            shop.prepare()
            yield shop
        except BaseException as error:
            raise AssertionError(f"{error}\n{shop.logs_of_all()}") from error

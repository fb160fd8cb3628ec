"""Reconcile as its users meet it: handlers that ask what is true now, repairs, the command line, and kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import hookledger
from hookledger import CallInTransaction, Event, Inbox, Permanent, SyncEvent
from hookledger.cli import exits
from hookledger.config import load
from hookledger.model import REPAIR
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.reconcile import reconcile as operate
from hookledger.operate.reconcile.repair import repair_event
from hookledger.providers.listing.base import ReconcileSettings
from hookledger.providers.listing.stripe import StripeLister
from hookledger.states import State
from hookledger.store.ops.filters import EVERYTHING
from hookledger.work.loop import Worker
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done
from tests.services import apis as service
from tests.services import forked
from tests.services.apis import HANG, TOKEN, Apis

WHY = "support asked"


@pytest.fixture
def apis() -> Iterator[Apis]:
    with service.running() as running:
        yield running


@pytest.fixture
async def shop(site_on: MakeSite, database_url: str) -> Site:
    """A site on either store, with a source `stripe`."""
    made = await site_on(database_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


async def write(event: Event, what: str) -> None:
    await event.tx.execute(f"INSERT INTO done VALUES ('{what}')")


async def repair(site: Site, reference: str) -> Any:
    async with site.inbox.opened() as store:
        about = (await search.find(site.inbox.context(store), reference)).event
        return await repair_event(site.inbox.context(store), by("ada", WHY), about)


# ── what is true now ─────────────────────────────────────────────────────────


async def test_a_handler_asks_what_is_current(shop: Site) -> None:
    stripe = shop.inbox.sources["stripe"]

    @stripe.current
    async def invoice(event: Any) -> dict[str, str]:
        return {"id": event.object_id, "status": "paid since"}

    @stripe.on("invoice.*")
    async def handle(event: Event) -> None:
        await write(event, (await event.current())["status"])

    await shop.deliver(stripe_event())
    await shop.work()
    assert await done(shop) == ["paid since"]


async def test_plain_functions_ask_too(shop: Site) -> None:
    stripe = shop.inbox.sources["stripe"]

    @stripe.current
    def invoice(event: Any) -> str:
        return f"now {event.object_id}"

    @stripe.on("invoice.*")
    def handle(event: SyncEvent) -> str:
        found: str = event.current()
        return found

    await shop.deliver(stripe_event())
    await shop.work()
    assert (await shop.event("evt_1")).event.result == "now in_1"


async def test_asking_while_sqlite_is_locked_is_refused(site: Site) -> None:
    """Whoever is slow there would stop every ack here."""
    raised = []
    stripe = site.inbox.sources["stripe"]

    @stripe.current
    async def invoice(event: Any) -> None: ...

    @stripe.on("invoice.*")
    async def handle(event: Event) -> None:
        await write(event, "x")
        try:
            await event.current()
        except CallInTransaction as error:
            raised.append(error)

    await site.deliver(stripe_event())
    await site.work()
    assert len(raised) == 1


async def test_a_forgotten_await_is_found(site: Site) -> None:
    stripe = site.inbox.sources["stripe"]

    @stripe.current
    async def invoice(event: Any) -> None: ...

    @stripe.on("invoice.*")
    async def handle(event: Event) -> None:
        event.current()  # type: ignore[unused-coroutine]

    await site.deliver(stripe_event())
    await site.work()
    assert "event.current()" in ((await site.event("evt_1")).event.reason or "")


async def test_nothing_says_what_is_current(site: Site) -> None:
    @site.inbox.sources["stripe"].on("invoice.*")
    async def handle(event: Event) -> None:
        await event.current()

    await site.deliver(stripe_event())
    await site.work()
    assert "@source.current" in ((await site.event("evt_1")).event.reason or "")


# ── repair ───────────────────────────────────────────────────────────────────


async def test_a_repair_runs_as_any_handler(shop: Site) -> None:
    """In a transaction of its own, under effects that the event's own handler shares; a retry does not repeat it."""
    stripe = shop.inbox.sources["stripe"]
    tries: list[int] = []

    @stripe.current
    async def invoice(event: Any) -> str:
        return f"true of {event.object_id}"

    @stripe.on("*")
    async def handle(event: Event) -> None:
        assert event.type != REPAIR, "no pattern takes what is not the provider's"
        raise Permanent("it was wrong")

    @stripe.repair
    async def repaired(event: Event) -> str:
        tries.append(event.attempt)
        truth = await event.current()
        if await event.once("repaired", event.object_id or ""):
            await write(event, truth)
        if len(tries) == 1:
            raise ConnectionError("later")
        return str(event.json["event"])

    await shop.deliver(stripe_event())
    await shop.work()
    made = await repair(shop, "evt_1")
    await shop.work()
    await shop.work(later=3600)
    assert tries == [1, 2]
    assert await done(shop) == ["true of in_1"]
    after = await shop.event(made.event.id)
    original = await shop.event("evt_1")
    assert (after.event.state, after.event.result) == (State.PROCESSED, str(original.event.id))
    assert original.event.state is State.FAILED, "a repair decides nothing about the event"
    assert [action.subject for action in original.actions] == [f"repair {made.event.id}"]
    async with shop.inbox.opened() as store:
        assert (await store.consistency.report()).imbalances == ()


async def test_no_outside_request_can_ask_for_a_repair(site: Site) -> None:
    """GitHub signs no type: whoever captured a body could call it one of ours."""
    ran = []

    @site.inbox.sources["github"].repair
    async def repaired(event: Event) -> None:
        ran.append(event)

    await site.deliver({"object": "1"}, source="github", ident="g-1", headers=[("X-GitHub-Event", REPAIR)])
    assert (await site.event("g-1")).event.type == REPAIR
    await site.work()
    assert ran == []
    assert (await site.event("g-1")).event.state is State.SKIPPED


async def test_what_was_reconciled_is_handled(shop: Site, apis: Apis) -> None:
    """Through to the handler's writes; the delivery that comes at last changes nothing."""
    stripe = shop.inbox.sources["stripe"]
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url)
    stripe.reconcile_with(StripeLister(settings, lambda: TOKEN))

    @stripe.on("invoice.paid")
    async def handle(event: Event) -> None:
        await write(event, event.json["id"])

    sent = [apis.sent_by_stripe(f"evt_{n}") for n in range(3)]
    await shop.deliver(sent[0])
    async with shop.inbox.opened() as store:
        report = await operate.reconcile(shop.inbox.context(store), by("ada", WHY), "stripe", None)
    assert (report.counts.matched, report.counts.imported) == (1, 2)
    await shop.work()
    for event in sent:
        assert (await shop.deliver(event)).status == 200
    await shop.work()
    assert await done(shop) == ["evt_0", "evt_1", "evt_2"]
    assert await shop.deliveries() == {"accepted": 1, "reconciled": 2, "duplicate": 3}


# proves R48
async def test_a_worker_reconciles_on_schedule(shop: Site, apis: Apis) -> None:
    """Beside its work, at the time it missed; two workers ask the provider once."""
    stripe, workers = shop.inbox.sources["stripe"], list[Worker]()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url)
    an_hour_ago = time.strftime("%H:%M", time.gmtime(time.time() - 3600))  # no other day's begins while they work
    stripe.reconcile_with(StripeLister(settings, lambda: TOKEN), at=an_hour_ago)
    apis.sent_by_stripe("evt_1", at=time.time() - 30 * 3600)

    @stripe.on("invoice.paid")
    async def handle(event: Event) -> None:
        await write(event, event.json["id"])

    running = [asyncio.create_task(shop.inbox.work(started=workers.append)) for _ in range(2)]
    async with asyncio.timeout(60):
        while await done(shop) == []:
            await asyncio.sleep(0.1)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert apis.asked == ["GET /v1/events"]
    assert await done(shop) == ["evt_1"]


# ── the command line ─────────────────────────────────────────────────────────

APP = """
from hookledger import Inbox

inbox = Inbox()
stripe = inbox.source("other", provider="stripe", secrets=["made_up_secret_of_the_tests"])


@stripe.repair
async def repaired(event):
    return event.object_id
"""


class Ended(Struct, frozen=True):
    code: int
    out: str
    err: str


class Shell:
    """An operator's shell: every command is a process of its own."""

    def __init__(self, folder: Path, database: str, apis: Apis) -> None:
        self.folder = folder
        self.settings = folder / "hookledger.toml"
        self.settings.write_text(
            f"""
            database = "{database}"
            app = "shop:inbox"
            [sources.stripe]
            provider = "stripe"
            secrets = ["{SECRET}"]
            reconcile = {{ token = "env:STRIPE_API_KEY", base_url = "{apis.url}", at = "03:00" }}
            """
        )
        (folder / "shop.py").write_text(APP)
        more = {"STRIPE_API_KEY": TOKEN, "HOOKLEDGER_ACTOR": "ada", "COLUMNS": "200"}
        self.environment = {**os.environ, **more, "PYTHONPATH": str(Path(hookledger.__file__).parents[1])}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hookledger", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    def run(self, *words: str) -> Ended:
        ended = forked.run("hookledger", words, cwd=self.folder, env=self.environment, folder=self.folder)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    async def looked(self) -> tuple[int, tuple[Any, ...]]:
        """How many events there are, and what is the matter with the books."""
        async with Inbox(settings=load(self.settings)).opened() as store:
            return await store.search.count(EVERYTHING), (await store.consistency.report()).imbalances


@pytest.fixture
def shell(tmp_path: Path, database_url: str, apis: Apis) -> Shell:
    made = Shell(tmp_path, database_url, apis)
    assert made.run("migrate").code == 0
    return made


def test_the_command(shell: Shell, apis: Apis) -> None:
    for n in range(3):
        apis.sent_by_stripe(f"evt_{n}")
    dry = shell.run("reconcile", "stripe", "--since", "24h", "--dry-run")
    assert dry.code == exits.DIFFERENCES, dry.err
    assert "evt_2" in dry.out and "would be imported" in dry.out
    assert shell.run("reconcile", "stripe").code == exits.USAGE, "an action says why"
    real = shell.run("reconcile", "stripe", "--reason", WHY, "--json")
    assert real.code == exits.DIFFERENCES
    assert json.loads(real.out)["counts"]["imported"] == 3
    again = shell.run("reconcile", "stripe", "--reason", WHY, "--json")
    assert again.code == exits.OK
    assert json.loads(again.out)["counts"] | {"listed": 3, "matched": 3} == json.loads(again.out)["counts"]
    looked = shell.run("doctor", "--json")
    lines = [line["says"] for line in json.loads(looked.out) if line["about"] == "source stripe"]
    assert any("compared with its provider's log" in line for line in lines), lines


def test_the_providers_fault(shell: Shell, apis: Apis) -> None:
    apis.trouble.append(400)
    failed = shell.run("reconcile", "stripe", "--reason", WHY)
    assert failed.code == exits.PROVIDER
    assert "400" in failed.err
    looked = shell.run("doctor", "--json")
    assert looked.code == exits.PROBLEM
    assert any("failed" in line["says"] for line in json.loads(looked.out) if line["about"] == "source stripe")


def test_a_token_that_is_not_set(shell: Shell, apis: Apis) -> None:
    del shell.environment["STRIPE_API_KEY"]
    failed = shell.run("reconcile", "stripe", "--reason", WHY)
    assert "STRIPE_API_KEY" in failed.err
    assert failed.code != exits.OK
    assert apis.asked == []


def test_a_repair_is_asked_for(shell: Shell) -> None:
    made = shell.run("reconcile", "other", "--object", "cus_1", "--reason", WHY, "--json")
    assert made.code == 0, made.err
    assert json.loads(made.out)["state"] == "pending"
    second = shell.run("reconcile", "other", "--object", "cus_1", "--reason", WHY)
    assert second.code == exits.NOT_ALLOWED
    assert "has a repair that is pending" in second.err
    assert shell.run("work", "--drain").code == 0
    shown = shell.run("show", json.loads(made.out)["id"], "--json")
    assert json.loads(shown.out)["event"]["state"] == "processed"
    assert shell.run("reconcile", "stripe", "--object", "x", "--reason", WHY).code == exits.CONFIG
    assert shell.run("reconcile", "other", "--event", "evt_none", "--reason", WHY).code == exits.NOT_FOUND


# proves R48
@pytest.mark.parametrize("before", [0, 1, 2])
def test_killed_in_the_middle(shell: Shell, apis: Apis, before: int) -> None:
    """Whatever was taken in until then is known to the second run; nothing is there twice, nothing is lost."""
    apis.page = 50
    for n in range(150):
        apis.sent_by_stripe(f"evt_{n}")
    apis.trouble.extend([*[None] * before, HANG])
    process = shell.start("reconcile", "stripe", "--reason", WHY)
    try:
        deadline = time.monotonic() + 60
        while len(apis.asked) <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(apis.asked) == before + 1
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    apis.gate.set()
    second = shell.run("reconcile", "stripe", "--reason", "once more", "--json")
    counts = json.loads(second.out)["counts"]
    assert counts["listed"] == 150
    assert counts["matched"] + counts["imported"] == 150
    assert asyncio.run(shell.looked()) == (150, ())

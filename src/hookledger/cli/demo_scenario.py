"""Sends the demo's deliveries, injects its faults, and counts the effects."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import httpx2
import msgspec
from msgspec import Struct

from ..errors import Unavailable
from ..operate import audit, search
from ..operate.context import Context
from ..operate.errors import NotFound
from ..operate.replay.replay import replay
from ..providers.catalogue import find
from ..providers.sign import sign
from ..states import WAITING, AttemptOutcome, DeliveryOutcome, State
from .demo_project import Project

CUSTOMERS = 12
CONCURRENT = 20
PAUSE = 1.5
"""Seconds between the writes and the commit of the handler to be killed."""
PATIENCE = 60.0
CRASHED = "evt_demo_crash"

Event = dict[str, Any]


class Sent(Struct, frozen=True):
    """Deliveries of one kind, and their answers."""

    kind: str
    answers: dict[int, int]
    expected: dict[int, int]

    @property
    def right(self) -> bool:
        return self.answers == self.expected


class Effect(Struct, frozen=True):
    """One expected effect, and what was found."""

    name: str
    expected: int | str
    found: int | str
    right: bool


class Report(Struct, frozen=True):
    deliveries: list[Sent]
    effects: list[Effect]
    exactly_once: bool


def invoice(name: str, amount: int, created: int, *, customer: str | None = None, pause: float = 0) -> Event:
    """Return an `invoice.paid` event as the provider would send it."""
    customer = customer or name
    content: Event = {"id": f"in_{name}", "customer": f"cus_{customer}", "subscription": f"sub_{customer}"}
    content["amount_paid"] = amount
    if pause:
        content["pause"] = pause
    return {"id": f"evt_demo_{name}", "type": "invoice.paid", "created": created, "data": {"object": content}}


def update(name: str, customer: str, status: str, created: int) -> Event:
    """Return a `customer.subscription.updated` event."""
    content = {"id": f"sub_{customer}", "status": status}
    kind = "customer.subscription.updated"
    return {"id": f"evt_demo_{name}", "type": kind, "created": created, "data": {"object": content}}


class Scenario:
    """Runs the demo; `say` prints each step."""

    def __init__(self, project: Project, context: Context, say: Callable[[str], None]) -> None:
        self._project = project
        self._context = context
        self._say = say
        self._now = int(time.time())
        self._sent: list[Sent] = []
        self._events: list[Event] = []
        """The authentic events, from which the expected effects are counted."""
        self._replayed = 0
        """The run of the event that was replayed."""
        self._stale = 0
        """Writes that a guard stopped."""

    async def play(self) -> Report:
        limits = httpx2.Limits(max_connections=CONCURRENT)
        async with httpx2.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:
            self._client = client
            new = await self._new_and_again()
            await self._at_the_same_moment()
            await self._forged()
            await self._out_of_order(new[0])
            await self._replay(new[1])
            await self._crash()
        self._say("Waiting until the dead worker's lease expires and all events are processed")
        await self._until(self._nothing_waits, "all events are processed")
        return await self._count()

    # ── what is sent ──

    async def _new_and_again(self) -> list[Event]:
        ago = self._now - 1000
        new = [invoice(f"{number:02}", number * 1000, ago + number) for number in range(1, CUSTOMERS + 1)]
        self._say(f"Sending {len(new)} new events, and each of them a second time")
        await self._send("new events", new, {202: len(new)})
        await self._send("the same events again", new, {200: len(new)}, known=True)
        return new

    async def _at_the_same_moment(self) -> None:
        self._say(f"Sending one event {CONCURRENT} times concurrently")
        same = [invoice("twenty", 4900, self._now - 900)] * CONCURRENT
        await self._send(
            f"one event {CONCURRENT} times concurrently", same, {202: 1, 200: CONCURRENT - 1}, concurrently=True
        )

    async def _forged(self) -> None:
        self._say("Sending a well-formed event with a forged signature")
        fake = [invoice("forged", 1_000_000, self._now)]
        await self._send("forged", fake, {401: 1}, secret="whsec_of_somebody_else", known=True)  # noqa: S106

    async def _out_of_order(self, first: Event) -> None:
        self._say("Cancelling a subscription, then sending two older events about it")
        customer = first["data"]["object"]["customer"].removeprefix("cus_")
        newest = update("cancel", customer, "canceled", self._now)
        await self._send("new events", [newest], {202: 1})
        await self._until(lambda: self._is(newest["id"], State.PROCESSED), "the cancellation is processed")
        late = [
            update("late_update", customer, "past_due", self._now - 50),
            invoice("late_invoice", 700, self._now - 60, customer=customer),
        ]
        await self._send("older events, too late", late, {202: len(late)})
        await self._until(self._nothing_waits, "the late events are processed")
        histories = [await search.find(self._context, event["id"]) for event in late]
        self._stale = sum(not asked.answer.applied for history in histories for asked in history.guards)

    async def _replay(self, event: Event) -> None:
        self._say("Replaying an event that was processed")
        known = (await search.find(self._context, event["id"])).event
        await replay(self._context, audit.by("demo", "the demo replays it"), known)
        await self._until(self._nothing_waits, "the replay is processed")
        self._replayed = (await search.find(self._context, event["id"])).event.run

    async def _crash(self) -> None:
        victim = invoice("crash", 1500, self._now, pause=PAUSE)
        assert victim["id"] == CRASHED
        self._say("Killing the worker (SIGKILL) inside a handler: rows written, not committed")
        await self._send("new events", [victim], {202: 1})
        await self._until(lambda: self._is(CRASHED, State.PROCESSING), "the handler runs")
        await asyncio.sleep(0.3)
        worker = (await search.find(self._context, CRASHED)).event.worker or ""
        os.kill(int(worker.split(":")[-2]), signal.SIGKILL)  # host:pid:token
        self._say("Sending its event again while no worker has it")
        await self._send("again, while its worker is dead", [victim] * 3, {200: 3}, known=True)

    async def _send(
        self,
        kind: str,
        events: Sequence[Event],
        expected: dict[int, int],
        *,
        known: bool = False,
        concurrently: bool = False,
        secret: str | None = None,
    ) -> None:
        """Send signed requests. `known`: they add no event."""

        async def post(event: Event) -> int:
            body = msgspec.json.encode(event)
            headers = sign(find("stripe"), secret or self._project.secret, body, now=time.time())
            return (await self._client.post(self._project.url, content=body, headers=headers)).status_code

        if concurrently:
            answers = await asyncio.gather(*map(post, events))
        else:
            answers = [await post(event) for event in events]
        if not known:
            self._events += {event["id"]: event for event in events}.values()
        self._sent.append(Sent(kind, dict(Counter(answers)), expected))

    # ── waiting ──

    async def _until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            if time.monotonic() > deadline:
                raise Unavailable(f"the demo stopped: not within {PATIENCE:g} s: {what}; see {self._project.log}")
            await asyncio.sleep(0.05)

    async def _is(self, key: str, state: State) -> bool:
        try:
            return (await search.find(self._context, key)).event.state is state
        except NotFound:
            return False

    async def _nothing_waits(self) -> bool:
        counts = (await search.summary(self._context)).events
        return not any(counts[state] for state in (*WAITING, State.PROCESSING))

    # ── counting ──

    async def _count(self) -> Report:
        summary = await search.summary(self._context)
        crashed = (await search.find(self._context, CRASHED)).attempts
        lost = sum(attempt.outcome is AttemptOutcome.CRASHED for attempt in crashed)
        answered = sum(count for sent in self._sent for code, count in sent.answers.items() if code < 300)
        found = self._read()
        ours = self._due()
        wrong = sum(found.credit.get(name) != amount for name, amount in ours.credit.items())
        again = found.mails.total() - len(found.mails)
        forged = sum("forged" in name for names in (found.credit, found.status, found.mails) for name in names)
        effects = [
            _same("events recorded", len(self._events), sum(summary.events.values())),
            _same("events processed", len(self._events), summary.events[State.PROCESSED]),
            _same("deliveries kept as evidence", answered, sum(summary.deliveries.values())),
            _same("of them duplicates", answered - len(self._events), summary.deliveries[DeliveryOutcome.DUPLICATE]),
            _same("subscriptions active", _active(ours), _active(found)),
            _same("status after the late events", "canceled", found.status.get("sub_01", "missing")),
            _same("late writes that event.newer stopped", 2, self._stale),
            _same("credit on all accounts", sum(ours.credit.values()), sum(found.credit.values())),
            _same("accounts with a wrong credit", 0, wrong),
            _same("receipts queued", len(ours.mails), found.mails.total()),
            _same("receipts queued twice", 0, again),
            _same("run of the event that was replayed", 2, self._replayed),
            _same("effects of the forged event", 0, forged),
            Effect("attempts killed, then reclaimed", "1 or more", lost, lost >= 1),
        ]
        right = all(sent.right for sent in self._sent) and all(effect.right for effect in effects) and found == ours
        return Report(_joined(self._sent), effects, right)

    def _due(self) -> _Business:
        """Return what the application's tables must hold after these events."""
        due = _Business({}, {}, Counter())
        version: dict[str, int] = {}
        for event in self._events:
            content, created = event["data"]["object"], event["created"]
            paid = event["type"] == "invoice.paid"
            subscription = content["subscription" if paid else "id"]
            if created > version.get(subscription, 0):
                version[subscription] = created
                due.status[subscription] = "active" if paid else content["status"]
            if paid:
                due.credit[content["customer"]] = due.credit.get(content["customer"], 0) + content["amount_paid"]
                due.mails[f"Receipt for {content['id']}"] += 1
        return due

    def _read(self) -> _Business:
        """Return what the application's tables hold."""
        connection = apsw.Connection(str(self._project.database), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(5000)
        try:
            return _Business(
                dict(connection.execute("SELECT id, status FROM subscriptions")),
                dict(connection.execute("SELECT id, credit FROM accounts")),
                Counter(subject for (subject,) in connection.execute("SELECT subject FROM mails")),
            )
        finally:
            connection.close()


class _Business(Struct):
    status: dict[str, str]
    credit: dict[str, int]
    mails: Counter[str]


def _same(name: str, expected: int | str, found: int | str) -> Effect:
    return Effect(name, expected, found, expected == found)


def _active(business: _Business) -> int:
    return list(business.status.values()).count("active")


def _joined(sent: Sequence[Sent]) -> list[Sent]:
    """Return one line per kind."""
    lines: dict[str, tuple[Counter[int], Counter[int]]] = {}
    for one in sent:
        answers, expected = lines.setdefault(one.kind, (Counter(), Counter()))
        answers.update(one.answers)
        expected.update(one.expected)
    return [Sent(kind, dict(answers), dict(expected)) for kind, (answers, expected) in lines.items()]

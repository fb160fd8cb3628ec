"""What log lines say of an event, how much of it strangers can cause, and what they never say."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from hookledger import Answer as InlineAnswer
from hookledger import Event, Op, Permanent, Refused, Skip, State
from hookledger.cli import cli, common
from hookledger.observe import lines
from hookledger.observe.lines import FIELDS, LINES
from hookledger.observe.logs import AddFacts, Limit
from hookledger.receive import told
from tests.asgi_client import Answer, Site, ask, stripe_event
from tests.builders import claimed, settle
from tests.operators import desk_on
from tests.path.conftest import SECRET

USUAL = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class Told:
    """The lines of events that a test caused."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def records(self) -> list[logging.LogRecord]:
        return [record for record in self._caplog.records if record.name == "hookledger.events"]

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def fields(self, message: str) -> list[dict[str, Any]]:
        """The fields of each line with this message."""
        return [fields_of(record) for record in self.records if record.getMessage() == message]


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in USUAL}


@pytest.fixture
def told_lines(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.DEBUG, "hookledger.events")
    return Told(caplog)


# proves R76
async def test_each_delivery_has_one_line(site: Site, told_lines: Told) -> None:
    await site.deliver(stripe_event(), headers=[("X-Request-Id", "req-1")])
    await site.deliver(stripe_event())
    await site.deliver(stripe_event(amount=1))
    await site.deliver(stripe_event("evt_2"), secret="whsec_of_somebody_else")
    await ask(site.inbox.asgi, "POST", "/stirpe", b"{}")
    event = (await site.event("evt_1")).event
    shared = {"source": "stripe", "event_id": str(event.id), "event_key": "evt_1", "event_type": "invoice.paid"}
    shared |= {"object_id": "in_1"}
    again = {**shared, "correlation_id": str(event.id), "state": "pending"}
    assert [(record.levelname, record.getMessage(), fields_of(record)) for record in told_lines.records] == [
        ("DEBUG", "delivery accepted", {**shared, "correlation_id": "req-1", "status": 202, "outcome": "accepted"}),
        ("DEBUG", "delivery duplicate", {**again, "status": 200}),
        ("WARNING", "delivery quarantined", {**again, "status": 202, "outcome": "conflict"}),
        ("WARNING", "request rejected", {"source": "stripe", "reason": "signature_mismatch", "status": 401}),
        ("INFO", "request rejected", {"reason": "unknown_source", "status": 404, "path": "/stirpe"}),
    ]


async def test_nothing_is_made_for_a_delivery_unless_asked_for(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a value was made for a line that is off")

    monkeypatch.setattr(told, "origin_of", never)
    monkeypatch.setattr(lines.log, "log", never)
    caplog.set_level(logging.INFO)
    assert [(await site.deliver(stripe_event())).status for _ in range(2)] == [202, 200]


def declare_every_end(site: Site) -> None:
    """Handlers that end in every way and use effects in every way."""
    stripe, inbox = site.inbox.sources["stripe"], site.inbox

    @inbox.effect(repeat="never")
    async def post(op: Op, cents: int) -> str:
        return "posted"

    @inbox.effect(repeat="never")
    async def refused(op: Op, cents: int) -> None:
        raise Refused("no such account")

    @inbox.effect(repeat="never")
    async def lost(op: Op, cents: int) -> None:
        raise TimeoutError("no answer")

    @stripe.on("all.effects", transaction=False)
    async def use(event: Event) -> None:
        await event.call(post, "k", cents=5)
        await event.call(post, "k", cents=5)
        await event.later(post, "l", cents=5)

    @stripe.on("once")
    async def once(event: Event) -> None:
        assert await event.once("credit", "k")
        assert not await event.once("credit", "k")

    @stripe.on("call.refused", transaction=False)
    async def call_refused(event: Event) -> None:
        await event.call(refused, event.key, cents=5)

    @stripe.on("call.lost", transaction=False)
    async def call_lost(event: Event) -> None:
        await event.call(lost, event.key, cents=5)

    @stripe.on("later.lost")
    async def later_lost(event: Event) -> None:
        await event.later(lost, "later", cents=5)

    @stripe.on("later.refused")
    async def later_refused(event: Event) -> None:
        await event.later(refused, "later", cents=5)

    @stripe.on("skip")
    async def skip(event: Event) -> None:
        raise Skip("nothing to do")

    @stripe.on("permanent")
    async def permanent(event: Event) -> None:
        raise Permanent("unknown plan")

    @stripe.on("bug")
    async def bug(event: Event) -> None:
        raise KeyError("plan")

    @stripe.on("outage")
    async def outage(event: Event) -> None:
        raise ConnectionError("refused")

    @stripe.answer("answered", deadline=20)
    async def answered(event: Event) -> InlineAnswer:
        return InlineAnswer("done")


ENDS = {
    "all.effects": ["effect made", "effect reused", "effect planned", "attempt ended", "effect made"],
    "once": ["effect made", "effect reused", "attempt ended"],
    "call.refused": ["effect failed", "attempt ended"],
    "call.lost": ["effect unknown", "attempt ended"],
    "later.lost": ["effect planned", "attempt ended", "effect unknown"],
    "later.refused": ["effect planned", "attempt ended", "effect failed"],
    "skip": ["attempt ended"],
    "permanent": ["attempt ended"],
    "bug": ["handler failed"],
    "outage": ["attempt ended"],
}
LOST = "effect lost 'evt_1' may have happened: TimeoutError: no answer"
STATES = {
    "skip": ("INFO", "skipped", "skipped", "nothing to do"),
    "permanent": ("WARNING", "failed", "failed", "unknown plan"),
    "outage": ("WARNING", "retrying", "retrying", "ConnectionError: refused"),
    "once": ("DEBUG", "processed", "processed", None),
    "call.lost": ("WARNING", "needs_review", "needs_review", LOST),
}


@pytest.mark.parametrize("kind", ENDS)
async def test_each_step_of_an_attempt_has_one_line(site: Site, told_lines: Told, kind: str) -> None:
    declare_every_end(site)
    await site.deliver(stripe_event("evt_1", kind))
    await site.work()
    assert told_lines.messages == ["delivery accepted", "event claimed", *ENDS[kind]]
    event = (await site.event("evt_1")).event
    for record in told_lines.records[1:]:
        fields = fields_of(record)
        assert (fields["event_id"], fields["source"]) == (str(event.id), "stripe")
        assert (fields["correlation_id"], fields["claim"]) == (str(event.id), 1)
        assert fields["event_key"] == "evt_1", "also where the outbox performs an effect"
    [ended] = [one for one in told_lines.records if one.getMessage() in ("attempt ended", "handler failed")]
    fields = fields_of(ended)
    assert (fields["attempt"], fields["run"], fields["event_key"]) == (1, 1, "evt_1")
    assert fields["handler"].startswith("declare_every_end.")
    if kind in STATES:
        found = (ended.levelname, fields["outcome"], fields["state"], fields.get("reason"))
        assert found == STATES[kind]
        assert fields["state"] == event.state


def scenario(site: Site) -> Callable[[], Any]:
    """Every line of the table, by real deliveries, attempts and API calls."""

    async def act() -> None:
        declare_every_end(site)
        for kind in ENDS:
            await site.deliver(stripe_event(f"evt_{kind}", kind))
        await site.deliver(stripe_event("evt_skip", "skip"))
        await site.deliver(stripe_event("evt_skip", "skip", amount=1))
        for _ in range(2):
            await site.deliver(stripe_event("evt_answered", "answered"))
        await site.deliver(b"[1")
        await site.deliver(stripe_event("evt_2"), secret="whsec_of_somebody_else")
        await site.work()
        await site.work(later=3600)

    return act


async def test_every_line_and_field_is_in_the_table(site: Site, told_lines: Told) -> None:
    await scenario(site)()
    known = {line.message: line for line in LINES}
    for record in told_lines.records:
        line = known[record.getMessage()]
        assert set(fields_of(record)) <= set(line.fields)
        assert record.levelno in {line.level, *line.levels.values(), logging.ERROR, logging.INFO}
    assert set(told_lines.messages) == set(known) - {"operator acted"}, "of which there is a test below"
    assert {field for line in LINES for field in line.fields} == set(FIELDS)


# ── strangers ────────────────────────────────────────────────────────────────


async def test_a_flood_of_strangers_is_a_few_lines_that_count_the_rest(
    site: Site, told_lines: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("hookledger.observe.logs.time.monotonic", lambda: now)
    for number in range(500):
        await ask(site.inbox.asgi, "POST", f"/nowhere/{number}", b"{}")
        await site.deliver(stripe_event("evt_1"), secret="whsec_of_somebody_else")
    assert told_lines.messages == ["request rejected"] * 20, "ten of each kind"
    now = 1.0
    await site.deliver(stripe_event("evt_1"), secret="whsec_of_somebody_else")
    assert told_lines.fields("request rejected")[-1]["left_out"] == 490


def test_a_limit_lets_a_burst_pass_then_one_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("hookledger.observe.logs.time.monotonic", lambda: now)
    limit = Limit(burst=2, every=1.0)
    assert [limit.left_out() for _ in range(4)] == [0, 0, None, None]
    now = 1.0
    assert [limit.left_out() for _ in range(2)] == [2, None]
    now = 100.0
    assert [limit.left_out() for _ in range(4)] == [1, 0, None, None], "no more than the burst is saved up"


HOSTILE = "a\n2026-11-18 [error] forged\r\x1b[2Jb\u2028c\u202ed\x85e\tf"
BAD = ("\r", "\x1b[2J", "\u2028", "\u202e", "\x85")


@contextmanager
def printed(monkeypatch: pytest.MonkeyPatch, **how: Any) -> Iterator[io.StringIO]:
    """What the command line's logging prints."""
    screen, before = io.StringIO(), (logging.root.handlers[:], logging.root.level, lines.log.level, sys.excepthook)
    monkeypatch.setattr(sys, "stderr", screen)
    try:
        common.set_up_logging(**how)
        yield screen
    finally:
        logging.captureWarnings(False)
        common.status.as_json = False
        logging.root.handlers[:], sys.excepthook = before[0], before[3]
        logging.root.setLevel(before[1])
        lines.log.setLevel(before[2])


FORMS: dict[str, dict[str, Any]] = {
    "console": {"level": "DEBUG"},
    "json": {"level": "DEBUG", "as_json": True},
    "dev": {"dev": True},
}


# proves R54
@pytest.mark.parametrize("form", FORMS)
async def test_what_strangers_choose_forges_no_line(site: Site, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        logging.getLogger("shop").warning("no customer %s", event.json["id"])
        raise ValueError(event.json["id"])

    with printed(monkeypatch, **FORMS[form]) as screen:
        await site.deliver(stripe_event(HOSTILE, HOSTILE), headers=[("X-Request-Id", "a b\x1b[2J")])
        await site.deliver(stripe_event(HOSTILE, HOSTILE))
        await ask(site.inbox.asgi, "POST", f"/{HOSTILE}", b"{}")
        await site.work()
    shown = screen.getvalue()
    assert shown.count("forged") >= 4
    assert not [bad for bad in BAD if bad in shown]
    own = [line for line in shown.splitlines() if not line.startswith("    ")]
    assert not [line for line in own if line.startswith("2026-11-18 [error] forged")]
    if form == "json":
        assert all(json.loads(line)["event"] for line in shown.splitlines())


async def test_a_stored_answer_is_told_apart_in_development(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_every_end(site)
    with printed(monkeypatch, dev=True) as screen:
        for _ in range(2):
            await site.deliver(stripe_event("evt_1", "answered"))
    happened = [line.split("evt_1", 1)[1].split() for line in screen.getvalue().splitlines()]
    assert [words[0] for words in happened] == ["claimed", "processed", "accepted", "duplicate", "answered"]
    assert happened[-1] == ["answered", "from", "the", "ledger"]


# ── secrets ──────────────────────────────────────────────────────────────────

CANARIES = {
    "secret": "whsec_canarysecret0000000000000000000000",
    "credential": "canary-credential-hunter2",
    "signature": "canary-signature",
    "body": "canary-body-of-the-customer",
    "argument": "canary-argument",
    "result": "canary-result",
}


async def plant(site: Site) -> list[Answer]:
    """Deliveries good and bad, handlers that fail and effects of every end, with a canary in each secret place."""
    inbox = site.inbox
    shop = inbox.source("shop", provider="stripe", secrets=[CANARIES["secret"]])
    argument = CANARIES["argument"]

    @inbox.effect(repeat="never")
    async def post(op: Op, note: str) -> str:
        return CANARIES["result"]

    @inbox.effect(repeat="never")
    async def lose(op: Op, note: str) -> str:
        raise TimeoutError("no answer")

    @inbox.effect(repeat="never")
    async def unfit(op: Op, note: int) -> int:
        return CANARIES["result"]  # type: ignore[return-value]

    @shop.on("good", transaction=False)
    async def good(event: Event) -> None:
        await event.call(post, "k", note=argument)
        await event.later(lose, "k", note=argument)

    @shop.on("bug")
    async def bug(event: Event) -> None:
        raise KeyError("plan" if event.json["note"] else "")

    @shop.on("mistake", transaction=False)
    async def mistake(event: Event) -> None:
        await event.call(unfit, "k", note=argument)  # type: ignore[arg-type]

    @shop.on("other", transaction=False)
    async def other(event: Event) -> None:
        await event.call(post, "k", note=argument + " changed")

    @shop.on("unfit", transaction=False)
    async def returns(event: Event) -> None:
        await event.call(unfit, "l", note=5)

    note, credential = CANARIES["body"], CANARIES["credential"]
    headers = [("Authorization", f"Bearer {credential}"), ("Cookie", credential)]
    answers = []
    for kind in (*("good", "bug", "mistake", "other", "unfit", "unhandled"), "good", "bug"):
        event = stripe_event(f"evt_{kind}", kind, note=note)
        answers.append(await site.deliver(event, source="shop", headers=headers))
    answers.append(await site.deliver(stripe_event("evt_good", "good", note=note + "2"), source="shop"))
    forged = stripe_event("evt_forged", note=note)
    answers.append(await site.deliver(forged, source="shop", secret=f"whsec_{credential}", headers=headers))
    answers.append(await site.deliver(f'{{"id": "{note}'.encode(), source="shop", headers=headers))
    signature = [("Stripe-Signature", f"t=1,v1={CANARIES['signature']}")]
    answers.append(await ask(inbox.asgi, "POST", "/shop", note.encode(), [*signature, *headers]))
    answers.append(
        await ask(inbox.asgi, "POST", "/shop", note.encode(), headers, query=f"token={credential}".encode())
    )
    await site.work()
    await site.work(later=3600)
    return answers


def canaries_in(text: str, *names: str) -> list[str]:
    return [name for name in names or CANARIES if CANARIES[name] in text]


# proves R26
@pytest.mark.parametrize("form", FORMS)
async def test_no_line_and_no_answer_holds_a_secret_a_payload_or_an_argument(
    site: Site, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with printed(monkeypatch, **FORMS[form]) as screen:
        answers = await plant(site)
    shown = screen.getvalue()
    assert {answer.status for answer in answers} == {200, 202, 400, 401}
    assert all(word in shown for word in ("evt_good", "KeyError", "effect", "rejected"))
    assert canaries_in(shown + "".join(str(answer) for answer in answers)) == []


HIDDEN = ("secret", "credential", "signature")
LISTINGS = ("events", "failures", "lag", "doctor", "rejections", "quarantine", "effects", "audit")


async def test_no_command_prints_a_secret_and_no_listing_a_payload(site: Site) -> None:
    await plant(site)
    await site.inbox.asgi.stop()  # writes the sample of rejected requests
    database = ("--database", str(site.inbox.database))

    async def run(*arguments: str) -> str:
        ended = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, *database])
        assert ended.output, arguments
        return ended.output

    for name in LISTINGS:
        assert canaries_in(await run(name)) == [], name
        found = canaries_in(await run(name, "--json"))
        assert found == (["signature"] if name == "rejections" else []), "the evidence of what was rejected has it"
    for event in ("evt_good", "evt_bug", "evt_mistake", "evt_other"):
        assert canaries_in(await run("show", event), *HIDDEN) == []
        assert canaries_in(await run("show", event, "--json"), *HIDDEN) == []


async def test_no_error_of_the_api_holds_a_token_or_a_payload(sqlite_url: str) -> None:
    async with desk_on(sqlite_url, past=False) as desk:
        owner = await claimed(desk.store, "evt_1", body=CANARIES["body"].encode())
        await settle(desk.store, owner, "fail")
        token = {"authorization": f"Bearer {CANARIES['credential']}"}
        answers = [
            await desk.ask("GET", f"/events/{owner.id}", role=None, headers=token),
            await desk.ask("GET", f"/events/{owner.id}/request", role="viewer"),
            await desk.ask("GET", "/events/no-such-event"),
            await desk.ask("POST", f"/events/{owner.id}/retry", {"reason": "x", "state": "pending", "claim": 1}),
            await desk.ask("POST", f"/events/{owner.id}/retry", b"{"),
        ]
    assert [answer.status >= 400 for answer in answers] == [True] * 5
    assert canaries_in("".join(str(answer) for answer in answers)) == []


async def test_what_an_operator_does_is_a_line(sqlite_url: str, told_lines: Told) -> None:
    async with desk_on(sqlite_url, past=False) as desk:
        assert (await desk.ask("POST", "/sources/stripe/pause", {"reason": "an incident"})).status == 200
    assert [(record.levelname, record.getMessage(), fields_of(record)) for record in told_lines.records] == [
        (
            *("INFO", "operator acted"),
            {"actor": "operator-ada", "action": "POST /sources/{source}/pause", "subject": "stripe"},
        )
    ]


async def test_the_handlers_own_lines_have_the_facts_of_the_event(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def handle(event: Event) -> None:
        logging.getLogger("shop").warning("crediting")

    caplog.handler.addFilter(AddFacts())
    await site.deliver(stripe_event(), headers=[("X-Request-Id", "req-7")])
    await site.work()
    row = (await site.event("evt_1")).event
    assert row.state is State.PROCESSED
    [record] = [record for record in caplog.records if record.name == "shop"]
    assert fields_of(record) == {
        "source": "stripe",
        "event_id": str(row.id),
        "event_key": "evt_1",
        "event_type": "invoice.paid",
        "object_id": "in_1",
        "handler": handle.__qualname__,
        "attempt": 1,
        "run": 1,
        "claim": 1,
        "correlation_id": "req-7",
    }
    assert SECRET not in caplog.text

"""Listings on terminals of 80, 100 and 120 columns: numbers, states, keys and commands are there, and uncut."""

import asyncio
import json
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from rich.cells import cell_len

from hookledger.cli import exits
from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.ops.audit import Action
from tests.builders import arrival, delivered, item, record
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.services import terminal
from tests.soak import amount

SOURCE = "stripe-of-the-subsidiary-in-the-north"
TYPE = "customer.subscription.pending_update_applied_by_the_billing_department"
KEY = f"evt_{'0123456789abcdef' * 8}"
OTHER_KEY = "[bold red]order 17[/] 漢字 (it's one)"
LONG_REASON = "no plan is called " + " ".join(f"enterprise-{n}-yearly-with-support" for n in range(9))
APP = f"""
from msgspec import Struct
from hookledger import Event, Inbox, Op, Permanent

inbox = Inbox()
stripe = inbox.source("{SOURCE}", provider="stripe", secrets=["env:SECRET"])

class Charge(Struct):
    id: str
    cents: int
    note: str | None = None

@inbox.effect(repeat="never", downstream="the-bank-of-the-subsidiary-in-the-north")
async def charge_the_customer(op: Op, cents: int) -> Charge:
    raise TimeoutError("{LONG_REASON}")

@stripe.on("{TYPE}")
async def update(event: Event) -> None:
    raise Permanent("{LONG_REASON}")

@stripe.on("invoice.paid")
async def paid(event: Event) -> str:
    return (await event.call(charge_the_customer, event.key, cents=5)).id
"""
WIDTHS = (80, 100, 120)
Show = Callable[..., list[str]]


@pytest.fixture
def screen(tmp_path: Path, environment: dict[str, str], shop: Run) -> Show:  # noqa: F811
    """Two failed events, a call that is unknown, a conflict, a pause, a job of many: and a terminal to see them."""
    (tmp_path / "shop.py").write_text(APP)
    environment.pop("COLUMNS", None)  # the test runner's own
    asyncio.run(_deliver(f"sqlite:///{tmp_path}/shop.db"))
    assert shop("work", "--drain").returncode == exits.OK
    why = ("--reason", LONG_REASON)
    retried = shop("bulk", "retry", "--type", TYPE, "--yes", *why, "--json")
    assert retried.returncode == exits.OK, retried.stderr
    assert shop("work", "--drain").returncode == exits.OK
    assert shop("pause", SOURCE, "invoice.*", *why).returncode == exits.OK
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE jobs SET total = 358023, done = 234567, not_allowed = 123456")
    return terminal_of(tmp_path, environment)


def terminal_of(folder: Path, environment: dict[str, str]) -> Show:  # noqa: F811
    def show(*arguments: str, columns: int) -> list[str]:
        variables = {**environment, "TERM": "xterm"}
        ended, screen = terminal.show("hookledger", arguments, columns=columns, cwd=folder, env=variables)
        assert ended in (exits.OK, exits.PROBLEM), screen
        return terminal.plain(screen)

    return show


async def _deliver(url: str) -> None:
    store = connect(url, clock=Clock())
    await store.open()
    await store.know_sources([SOURCE])
    body, other = b'{"id": "evt", "amount": 100}', b'{"id": "evt", "amount": 200}'
    await record(store, delivered(KEY, body, source=SOURCE, type=TYPE))
    await record(store, delivered(OTHER_KEY, body, source=SOURCE, type=TYPE))
    await record(store, delivered(KEY, other, source=SOURCE, type=TYPE))
    await record(store, delivered("evt_9", body, source=SOURCE, type="invoice.paid"))
    await store.close()


def fits(lines: list[str], columns: int) -> bool:
    """Whether no line is wider, but one word that is wider by itself."""
    wide = [line for line in lines if cell_len(line) > columns]
    return all(len(line.removesuffix(" \\").split()) == 1 and len(line.strip()) > columns for line in wide)


def ids(shop: Run) -> dict[str, str]:  # noqa: F811
    return {event["key"]: event["id"] for event in json.loads(shop("events", "--json").stdout)}


@pytest.mark.parametrize("columns", WIDTHS)
def test_lists(screen: Show, shop: Run, columns: int) -> None:  # noqa: F811
    found = ids(shop)
    [job] = [job["id"] for job in json.loads(shop("jobs", "--json").stdout)]
    kind = {SOURCE, TYPE}
    expected: dict[tuple[str, ...], set[str]] = {
        ("events",): {*kind, KEY, OTHER_KEY, "failed", "needs_review !", found[KEY], LONG_REASON},
        ("failures",): {*kind, "2 failed", "1 review", f"hookledger show {found[OTHER_KEY]}", "hookledger events"},
        ("effects",): {"charge_the_customer:evt_9", "unknown", SOURCE, f"hookledger show {found['evt_9']}"},
        ("jobs",): {job, "358,023", "234,567", "123,456", "done", "retry", LONG_REASON},
        ("jobs", "show", job): {job, "358,023", "234,567 done", "123,456 not allowed", LONG_REASON},
        ("jobs", "items", job): {found[KEY], found[OTHER_KEY], "failed", "done"},
        ("quarantine",): {SOURCE, "conflict", KEY, "amount: 100 → 200", "hookledger quarantine accept"},
        ("audit",): {"pause", "bulk retry", found[KEY], "failed → pending", LONG_REASON},
        ("lag",): set(),
        ("pause", "--list"): {SOURCE, "invoice.*", LONG_REASON},
        ("bulk", "retry", "--state", "failed", "--dry-run"): {*kind, "2 events match", "failed"},
        ("providers",): {"slack_interactions", "signed", "HMAC"},
        ("providers", "shopify"): {"subscription_billing_cycle_edits/create", "shopify.dev:"},
    }
    for arguments, words in expected.items():
        lines = screen(*arguments, columns=columns)
        assert fits(lines, columns), "\n".join(lines)
        shown = terminal.copied(lines)
        assert not [word for word in words if " ".join(word.split()) not in shown], "\n".join(lines)


def test_the_audit_log_escapes_control_characters(screen: Show, shop: Run) -> None:  # noqa: F811
    assert shop("circuits", "trip", "bank", "--reason", "a \x1b[31mred\u202e bank", "--actor", "eve").returncode == 0
    shown = terminal.copied(screen("audit", "--no-event", "--by", "eve", columns=80))
    assert r"a \u001b[31mred\u202e bank" in shown
    assert "trip eve" in shown
    [action] = json.loads(shop("audit", "--name", "trip", "--json").stdout)
    assert list(action) == list(Action.__struct_fields__), "the fields of the API"
    assert (action["actor"], action["event_id"], action["to_state"]) == ("eve", None, "open")
    assert shop("audit", "--by", "x" * 10_000).returncode == exits.CONFIG
    assert shop("audit", "--event", "no such key").returncode == exits.NOT_FOUND
    assert "No actions." in shop("audit", "--by", "nobody-else").stderr


@pytest.mark.parametrize("columns", WIDTHS)
def test_doctor_and_circuits(screen: Show, columns: int) -> None:
    lines = screen("doctor", columns=columns)
    assert fits(lines, columns), "\n".join(lines)
    assert f"source {SOURCE}" in terminal.copied(lines)
    assert any("`hookledger quarantine`" in line for line in lines), "a command is not broken"
    assert fits(screen("circuits", columns=columns), columns)


@pytest.mark.parametrize("columns", WIDTHS)
def test_one_event(screen: Show, shop: Run, columns: int) -> None:  # noqa: F811
    found = ids(shop)
    lines = screen("show", KEY, columns=columns)
    assert fits(lines, columns), "\n".join(lines)
    shown = terminal.copied(lines)
    for word in (KEY, found[KEY], SOURCE, TYPE, f"failed: {LONG_REASON}", "amount: 100 → 200"):
        assert word in shown, "\n".join(lines)
    lines = screen("show", OTHER_KEY, columns=columns)
    assert OTHER_KEY in terminal.copied(lines), "a key is no markup"
    lines = screen("show", "--timeline", KEY, columns=columns)
    assert fits(lines, columns), "\n".join(lines)
    assert KEY in lines

    lines = screen("show", "evt_9", columns=columns)
    assert fits(lines, columns), "\n".join(lines)
    shown = terminal.copied(lines)
    assert "charge_the_customer" in shown
    assert "unknown" in shown
    shown = shown[: shown.index("Last failed attempt")]
    happened, did_not = (shown[shown.index(label) + len(label) :] for label in ("If it did: ", "If not: "))
    decide = ["hookledger", "resolve", found["evt_9"], "charge_the_customer:evt_9"]
    assert shlex.split(happened)[:9] == [*decide, "--happened", "--result", "RESULT", "--reason", "WHY"]
    assert shlex.split(did_not)[:7] == [*decide, "--did-not-happen", "--reason", "WHY"]
    assert 'as JSON of this form: {"id": "text", "cents": 0}' in shown
    assert "find out from the-bank-of-the-subsidiary-in-the-north" in shown


def copy(database: sqlite3.Connection, table: str, where: str, count: int, **changed: str) -> None:
    """So many copies of a row, but for what is changed, in SQL; `n` counts them."""
    columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(name, f"o.{name}") for name in columns)
    database.execute(
        f"""WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count})
            INSERT INTO {table} ({", ".join(columns)}) SELECT {values} FROM c, {table} AS o WHERE o.rowid = (
                SELECT rowid FROM {table} WHERE {where} LIMIT 1)"""
    )


@pytest.mark.soak
def test_six_digit_counts(screen: Show, shop: Run, tmp_path: Path) -> None:  # noqa: F811
    """As after a week of failures."""
    found = ids(shop)
    with sqlite3.connect(tmp_path / "shop.db") as database:
        redelivered = f"outcome = 'conflict' AND event_id = x'{UUID(found[KEY]).hex}'"
        database.execute(
            f"""WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 123454)
                INSERT INTO deliveries (request_id, item, event_id, source, received_at, outcome, fingerprint)
                SELECT randomblob(16), 0, event_id, source, received_at, 'duplicate', fingerprint
                FROM c, (SELECT * FROM deliveries WHERE {redelivered}) AS d"""
        )
        copy(database, "events", "state = 'failed'", 100_000, id="randomblob(16)", key="o.key || n")
        other = {"identity": "randomblob(32)", "event_id": "randomblob(16)", "key": "o.key || n"}
        copy(database, "effects", "state = 'unknown'", 100_000, **other)
        database.execute("UPDATE events SET attempts = 345678 WHERE key = ?", (KEY,))
        database.execute("UPDATE effects SET number = 456789, tries = 456789")
    database.close()
    expected: dict[tuple[str, ...], set[str]] = {
        ("failures",): {SOURCE, TYPE, "20,000 failed", "20,000 events", "1 review"},
        ("doctor",): {"100,002 failed", "100,001 with an unknown outcome", "quarantined within the last day"},
        ("events", "--key", KEY): {found[KEY], "345,678", "123,456", "failed", LONG_REASON},
        ("events", "--counts"): {"100,002", "failed", "123,454", "duplicate"},
        ("effects", "--limit", "2"): {"charge_the_customer:evt_9", "unknown", "456,789", "There are more"},
        ("show", KEY): {KEY, "delivered 123,456 times", "345,678 towards the limit"},
        ("show", "evt_9"): {"456,789", "charge_the_customer"},
    }
    for columns in WIDTHS[: amount(1, 3, 3)]:
        for arguments, words in expected.items():
            lines = screen(*arguments, columns=columns)
            assert fits(lines, columns), "\n".join(lines[:100])
            shown = terminal.copied(lines)
            assert not [word for word in words if word not in shown], "\n".join(lines[:100])
            assert "1 events " not in shown


def test_ids_of_one_request_can_be_copied(tmp_path: Path, environment: dict[str, str], shop: Run) -> None:  # noqa: F811
    async def deliver() -> list[str]:
        store = connect(f"sqlite:///{tmp_path}/shop.db", clock=Clock())
        await store.open()
        items = [item(f"hubspot_{n}", b"%d" % n, type="contact.creation") for n in range(4)]
        verdicts = await record(store, arrival(*items, body=b"[0, 1, 2, 3]"))
        await store.close()
        return [str(verdict.event_id) for verdict in verdicts]

    found = asyncio.run(deliver())
    assert len({ident[:18] for ident in found}) < 4, "made together, they begin alike"
    show = terminal_of(tmp_path, environment)
    lines = show("events", columns=80)
    assert fits(lines, 80), "\n".join(lines)
    words = {word for line in lines for word in line.split()}
    assert words.issuperset(found), "\n".join(lines)
    for n, ident in enumerate(found):
        assert f"hubspot_{n}" in terminal.copied(show("show", ident, columns=80))


def test_other_screens(screen: Show, shop: Run, environment: dict[str, str]) -> None:  # noqa: F811
    narrow = screen("events", columns=40)
    assert fits(narrow, 40), "\n".join(narrow)
    assert KEY in narrow, "on a line of its own"
    wide = screen("events", columns=1000)
    assert len(wide) == 4, "a table, where there is room"
    assert KEY in wide[3]
    environment["COLUMNS"] = "60"
    assert fits(screen("events", columns=400), 60)
    assert screen("events", "--source", "other", columns=80) == ["No events."]
    piped = shop("events").stdout.splitlines()
    assert len(piped) == 4, "a line each, however long"
    assert f"{KEY} " in piped[3]
    assert piped[3].endswith(LONG_REASON)
    assert "\x1b" not in "".join(piped)

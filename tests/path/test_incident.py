"""An incident, from the command line alone, on a terminal of 80 columns: what is wrong, since when, why, what to do.

Three hundred events of two types fail by one bug, two payments may have been made, one delivery contradicts an
earlier one, strangers forge deliveries, a downstream is given a rest, and for a while no worker runs.
"""

import hashlib
import hmac
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from hookledger.cli import exits
from tests.crash.processes import eventually
from tests.path.test_cli import SECRET, Run, environment, run, shop  # noqa: F401 - fixtures
from tests.services import terminal
from tests.services.forked import Forked
from tests.services.ports import free_port

Screen = Callable[..., str]
BILLING = """
def plan_of(event):
    return event.json["data"]["object"]["plan_v2"]
"""
APP = """
from pathlib import Path
from billing import plan_of
from hookledger import Event, Inbox, Op

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])

@inbox.effect(repeat="never", downstream="bank")
async def charge(op: Op, cents: int) -> str:
    if Path("bank is down").exists():
        raise TimeoutError("the bank did not answer")
    return "ch_1"

@inbox.effect(repeat="safe", downstream="mail")
async def tell(op: Op, to: str) -> None:
    if Path("mail is down").exists():
        raise TimeoutError("the mail server is busy")

@stripe.on("invoice.paid")
async def paid(event: Event) -> None:
    plan_of(event)

@stripe.on("invoice.updated")
async def updated(event: Event) -> None:
    plan_of(event)

@stripe.on("charge.wanted")
async def wanted(event: Event) -> str:
    return await event.call(charge, event.key, cents=500)

@stripe.on("customer.created")
async def created(event: Event) -> None:
    await event.later(tell, event.key, to="ada@example.test")
"""

SETTINGS = """
[work]
poll = "20ms"
[work.retry]
initial_delay = "10ms"
max_delay = "10ms"
[work.circuit]
failures = 3
cooldown = "1h"
"""


class Provider:
    """Stripe, and strangers who would like to be."""

    def __init__(self, port: int) -> None:
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)

    def ready(self) -> bool:
        try:
            return self._client.get("/readyz").status_code < 300
        except httpx2.TransportError:
            return False

    def send(self, key: str, kind: str, secret: str = SECRET, **fields: object) -> int:
        content = {"id": key, "type": kind, "created": int(time.time()), "data": {"object": {"id": "in_1", **fields}}}
        body = json.dumps(content).encode()
        at = int(time.time())
        proof = hmac.new(secret.encode(), b"%d.%s" % (at, body), hashlib.sha256).hexdigest()
        headers = {"stripe-signature": f"t={at},v1={proof}", "content-type": "application/json"}
        return self._client.post("/stripe", content=body, headers=headers).status_code


@pytest.fixture
def began() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def incident(began: datetime, shop: Run, tmp_path: Path, environment: dict[str, str]) -> Iterator[Run]:  # noqa: F811
    del began  # before any of it
    (tmp_path / "billing.py").write_text(BILLING)
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "hookledger.toml").write_text(SETTINGS)
    for down in ("bank is down", "mail is down"):
        (tmp_path / down).touch()
    port = free_port()
    receiver = Forked("hookledger", ["receive", "--port", str(port)], cwd=tmp_path, env=environment)
    try:
        provider = Provider(port)
        eventually(provider.ready, "the receiver is ready")
        for n in range(300):
            assert provider.send(f"evt_{n:04}", "invoice.paid" if n % 2 else "invoice.updated") < 300
        for n in range(2):
            assert provider.send(f"evt_charge_{n}", "charge.wanted") < 300
        for n in range(4):
            assert provider.send(f"evt_mail_{n}", "customer.created") < 300
        assert provider.send("evt_0001", "invoice.paid", plan_v2="gold") < 300, "another content under a known id"
        for n in range(7):
            assert provider.send(f"evt_forged_{n}", "invoice.paid", secret="whsec_guessed_by_a_stranger") == 401
        eventually(lambda: shop("rejections", "--json").stdout.count("signature_mismatch") >= 7, "all are counted")
        assert shop("work", "--drain").returncode == exits.OK
        assert provider.send("evt_waits", "customer.created") < 300, "and nobody works any more"
        yield shop
    finally:
        receiver.terminate()
        receiver.wait()


@pytest.fixture
def screen(incident: Run, tmp_path: Path, environment: dict[str, str]) -> Screen:  # noqa: F811
    del incident
    environment.pop("COLUMNS", None)

    def show(*command: str) -> str:
        """What a person sees of both streams on 80 columns, with every run of blanks as one."""
        variables = {**environment, "TERM": "xterm"}
        code, screen = terminal.show("hookledger", command, columns=80, cwd=tmp_path, env=variables)
        assert code in (exits.OK, exits.PROBLEM), screen
        lines = terminal.plain(screen)
        assert not [line for line in lines if len(line) > 80 and len(line.split()) > 1], "wider than the terminal"
        print(f"$ hookledger {shlex.join(command)}", *lines, sep="\n")
        return terminal.copied(lines)

    return show


def test_each_fact_takes_two_commands_at_most(began: datetime, screen: Screen) -> None:
    doctor = screen("doctor")
    failures = screen("failures")
    days = "|".join(f"{day:%Y-%m-%d}" for day in (began, datetime.now(UTC)))  # midnight may come in between

    # What fails, and since when.
    assert re.search(f"300 failed, the oldest since ({days})", doctor)
    assert "`hookledger failures`" in doctor
    assert "150 failed" in failures
    for handler in ("paid", "updated"):
        assert f"KeyError: 'plan_v2' in shop.{handler} at billing.py:3" in failures
    # Why, with the line of code.
    shown = screen("show", "evt_0001")
    assert "a bug in billing.py:3: KeyError: 'plan_v2'" in shown
    assert 'billing.py", line 3, in plan_of return event.json["data"]["object"]["plan_v2"]' in shown

    # What nobody knows, and what to do.
    assert re.search(f"6 with an unknown outcome, the oldest since ({days})", doctor)
    assert "2 wait for a decision, others are tried again" in doctor
    unknown = screen("effects", "--state", "unknown")
    assert all(f"charge:evt_charge_{n} unknown" in unknown for n in range(2))
    assert "TimeoutError: the bank did not answer" in unknown
    decide = screen("show", "evt_charge_0")
    assert "charge:evt_charge_0 --happened --result RESULT --reason WHY" in decide
    assert "charge:evt_charge_0 --did-not-happen --reason WHY" in decide

    # What was refused, what contradicts, what rests, and that nobody works.
    assert "7 rejected since" in doctor
    assert "no configured secret matches the signature" in doctor
    assert screen("rejections").count("signature_mismatch") > 7
    conflict = screen("quarantine")
    assert "conflict" in conflict
    assert 'data.object.plan_v2: added "gold"' in conflict
    assert re.search(f"circuit mail: open since ({days})", doctor)
    assert "the mail server is busy" in screen("circuits")
    assert "workers: none is alive, and events are due" in doctor
    assert "customer.created pending 1" in screen("lag")

    attention = screen("events", "--attention", "--limit", "1000")
    assert all(f"evt_{n:04}" in attention for n in range(300))
    assert all(f"evt_charge_{n}" in attention for n in range(2))


def settled(run: Run) -> bool:  # noqa: F811
    """Effects may be due a moment later than the queue is empty."""
    assert run("work", "--drain").returncode == exits.OK
    return not json.loads(run("effects", "--json").stdout)


def test_the_way_out(screen: Screen, shop: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "billing.py").write_text(BILLING.replace('["plan_v2"]', '.get("plan_v2")'))
    for down in ("bank is down", "mail is down"):
        (tmp_path / down).unlink()
    why = ("--reason", "a bug in billing.py was mended")
    for key, *decision in (
        ("evt_charge_0", "--happened", "--result", '"ch_7"', "--reason", "the bank has it"),
        ("evt_charge_1", "--did-not-happen", "--reason", "the bank does not have it"),
    ):
        assert shop("resolve", key, f"charge:{key}", *decision).returncode == exits.OK
    assert shop("circuits", "reset", "mail", *why).returncode == exits.OK
    assert shop("bulk", "retry", "--state", "failed", "--per-second", "0", "--yes", *why).returncode == exits.OK
    eventually(lambda: settled(shop), "every effect is done")

    counts = json.loads(shop("events", "--counts", "--json").stdout)["events"]
    assert (counts["processed"], sum(counts.values())) == (307, 307)
    doctor = shop("doctor")
    assert doctor.returncode == exits.OK, doctor.stdout
    assert "300 failed" not in doctor.stdout

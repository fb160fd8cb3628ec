"""What the command line says when the user's code fails: at start, in the log, in `show` and in `failures`."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from hookledger import Event, Inbox, Op
from hookledger.cli import cli, exits
from hookledger.config import decode
from hookledger.operate.api.views import event_view, row_view
from hookledger.operate.audit import by
from hookledger.operate.effects import resolve
from hookledger.operate.replay import replay
from hookledger.operate.timeline import timeline
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET
from tests.path.test_cli import Run, environment, free_port, get, run, shop, wait_for  # noqa: F401 - fixtures

# ── --app ──

BROKEN = {
    "syntax": ("x = 1\ndef broken(:\n    pass\n", "SyntaxError", "line 2"),
    "module": ("import os\n\nimport none_such\n", "ModuleNotFoundError: No module named 'none_such'", "shop.py:3"),
    "name": ("from json import no_such_name\n", "ImportError", "shop.py:1"),
    "raises": ("import os\nKEY = os.environ['NO_SUCH_KEY']\n", "KeyError: 'NO_SUCH_KEY'", "shop.py:2"),
    "exits": ("import sys\n\n\nsys.exit(3)\n", "SystemExit: 3", "shop.py:4"),
    "ours": (
        "from hookledger import Inbox\ninbox = Inbox()\ninbox.source('a', provider='stirpe', secrets=['x'])\n",
        "did you mean 'stripe'?",
        "shop.py:3",
    ),
    "nothing": ("from hookledger import Inbox\nmine = Inbox()\n", "has no 'inbox'; --app shop:mine", "shop.py"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_application_that_cannot_be_imported(run: Run, tmp_path: Path, case: str) -> None:  # noqa: F811
    text, said, where = BROKEN[case]
    (tmp_path / "shop.py").write_text(text)
    ended = run("serve", "--app", "shop:inbox", "--dev")
    assert ended.returncode == exits.CONFIG, ended.stderr
    assert said in ended.stderr
    assert where in ended.stderr
    shows_code = case not in ("ours", "nothing")
    assert (f'File "{tmp_path}/shop.py", line ' in ended.stderr) == shows_code
    assert "importlib" not in ended.stderr


def test_a_module_that_is_not_there(run: Run) -> None:  # noqa: F811
    ended = run("events", "--app", "nowhere.at.all:inbox")
    assert ended.returncode == exits.CONFIG
    assert "no module 'nowhere'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_a_failure_inside_a_package(run: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text("from . import plans\n")
    (tmp_path / "store" / "plans.py").write_text("\nPLANS = {}['gold']\n")
    ended = run("work", "--app", "store:inbox", "--log-json", "--database", "sqlite:///x.db")
    [line] = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (ended.returncode, line["level"]) == (exits.CONFIG, "error")
    assert "store/plans.py:2: KeyError: 'gold'" in line["event"]


# ── the log ──


def test_json_and_nothing_else(shop: Run) -> None:  # noqa: F811
    for options in (["--drain"], ["--drain", "--log-level", "error"]):
        ended = shop("work", "--log-json", *options)
        assert ended.returncode == exits.OK
        [first, *_] = lines = [json.loads(line) for line in ended.stderr.splitlines()]
        assert first["event"].startswith("Working on stripe")
        assert all(line["level"] for line in lines)
    ended = shop("receive", "--log-json", "--operator-port", "1", "--port", "1")
    assert [json.loads(line)["level"] for line in ended.stderr.splitlines()] == ["error"]


class Served:
    def __init__(self, folder: Path, environment: dict[str, str], *options: str) -> None:  # noqa: F811
        self.port, self.operator = free_port(), free_port()
        self.file = folder / "served.log"
        command = [sys.executable, "-m", "hookledger", "serve", "--dev", "--app", "shop:inbox", *options]
        command += ["--port", str(self.port), "--operator-port", str(self.operator)]
        with self.file.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=log)
        wait_for(lambda: get(self.operator, "/readyz") == get(self.port, "/readyz") == 200)

    @property
    def log(self) -> str:
        return self.file.read_text()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture(params=[[], ["--log-json"]], ids=["text", "json"])
def served(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> Iterator[Served]:
    started = Served(tmp_path, environment, *request.param)
    try:
        yield started
    finally:
        started.stop()


def test_development_shows_what_comes(served: Served, run: Run) -> None:  # noqa: F811
    def send(*options: str, path: str = "stripe") -> None:
        where = ("--app", "shop:inbox", "--url", f"http://127.0.0.1:{served.port}/{path}")
        run("send", "stripe", *where, *options)

    send("--type", "invoice.paid", "--id", "evt_1", "--twice")
    send("--type", "invoice.bad", "--id", "evt_2")
    send("--type", "invoice.paid", "--id", "evt_3", "--forge")
    send("--type", "invoice.paid", path="stirpe")
    for _ in range(3):
        assert get(served.operator, "/readyz") == 200

    def said(*words: str) -> bool:
        return any(all(word in line for word in words) for line in served.log.splitlines())

    in_json = served.log.startswith("{")
    forged, nowhere = (
        ("signature_mismatch", "unknown_source")
        if in_json
        else ("rejected 401: no configured secret matches the signature", "rejected 404: no source has this path")
    )
    expected = [
        ("stripe", "invoice.paid", "evt_1", "accepted"),
        ("stripe", "invoice.paid", "evt_1", "duplicate"),
        ("stripe", "invoice.paid", "evt_1", "processed"),
        ("evt_2", "failed", "unknown plan"),
        ("stripe", forged),
        (nowhere, "/stirpe"),
    ]
    wait_for(lambda: all(said(*words) for words in expected))
    assert "HTTP Request" not in served.log
    assert "readyz" not in re.sub(r"Health at \S+", "", served.log)
    served.stop()
    if served.log.startswith("{"):
        assert [json.loads(line) for line in served.log.splitlines()][-1]["event"]


def test_nothing_for_each_delivery_unless_asked_for(shop: Run, environment: dict[str, str]) -> None:  # noqa: F811
    text = "from hookledger.observe import lines; print(lines.wanted())"
    said = subprocess.run(
        [sys.executable, "-c", "import logging; logging.basicConfig(level='INFO'); " + text],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.strip() == "False"


# ── show and failures ──


def plan_of(body: dict[str, Any]) -> Any:
    return body["plan_v2"]


def through_many(depth: int, body: dict[str, Any]) -> Any:
    if depth:
        return through_many(depth - 1, body)
    return plan_of(body)


async def failed(url: str) -> Site:
    """Two events of one bug, and one that fails otherwise, each tried once."""
    inbox = Inbox(url, settings=decode({"work": {"poll": "10ms", "retry": {"attempts": 1}}}))
    site = Site(inbox)
    await inbox.migrate()
    stripe = inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @stripe.on("invoice.paid")
    async def handle(event: Event) -> None:
        plan_of(event.json)

    @stripe.on("invoice.void")
    async def other(event: Event) -> None:
        through_many(40, event.json)

    for key, kind in (("evt_1", "invoice.paid"), ("evt_2", "invoice.paid"), ("evt_3", "invoice.void")):
        await site.deliver(stripe_event(key, kind))
    await site.work()
    await inbox.asgi.stop()
    return site


def ask(url: str, *words: str) -> Result:
    result = CliRunner().invoke(cli, [*words, "--database", url])
    assert result.exit_code == exits.OK, result.output
    return result


def test_show_has_the_traceback(database_url: str) -> None:
    asyncio.run(failed(database_url))
    shown = ask(database_url, "show", "evt_1").stdout
    place = f"tests/path/test_cli_failures.py:{plan_of.__code__.co_firstlineno + 1}"
    assert f"a bug in {place}: KeyError: 'plan_v2'" in " ".join(shown.split())
    assert 'return body["plan_v2"]' in shown
    assert shown.rstrip().endswith("KeyError: 'plan_v2'")
    whole = ask(database_url, "show", "evt_1", "--traceback").stdout
    assert whole.startswith("Traceback (most recent call last):")
    assert whole.rstrip().endswith("KeyError: 'plan_v2'")
    told = json.loads(ask(database_url, "show", "evt_1", "--traceback", "--json").stdout)
    assert told["traceback"].strip() == whole.strip()


def test_a_long_traceback_is_cut_in_the_middle(database_url: str) -> None:
    asyncio.run(failed(database_url))
    shown = ask(database_url, "show", "evt_3").stdout
    found = re.search(r"… \d+ lines; all of it: hookledger (show --traceback \S+)", shown)
    assert found
    whole = ask(database_url, *found[1].split()).stdout
    assert "in other" in shown
    assert 'return body["plan_v2"]' in shown
    assert len(whole.splitlines()) > 24


def test_what_failures_print_can_be_typed(database_url: str) -> None:
    asyncio.run(failed(database_url))
    groups = json.loads(ask(database_url, "failures", "--json").stdout)
    assert [group["count"] for group in groups] == [2, 1]
    said = ask(database_url, "failures").stderr
    found = re.search(r"hookledger (events .*)", said)
    assert found
    listed = json.loads(ask(database_url, *shlex.split(found[1]), "--json").stdout)
    assert [event["key"] for event in listed] == ["evt_2", "evt_1"]


def test_viewers_see_where_but_no_words(database_url: str) -> None:
    async def look() -> None:
        site = await failed(database_url)
        history = await site.event("evt_1")
        async with site.inbox.opened() as store:
            preview = replay.preview(site.inbox.context(store), history)
        told = msgspec.json.encode(event_view(history, preview, complete=False)).decode()
        assert "plan_v2" not in told
        assert "Traceback" not in told
        row = row_view(history.event, complete=False)
        assert row.error is None
        assert re.fullmatch(r"KeyError: … in \S+ at tests/path/test_cli_failures.py:\d+", row.cause or "")

    asyncio.run(look())


def test_show_agrees_with_itself_after_a_decision(database_url: str) -> None:
    """One number of attempts, and one row for the end of a call, whose key is as it was given."""

    async def act() -> Site:
        inbox = Inbox(database_url, settings=decode({"work": {"poll": "10ms"}}))
        site = Site(inbox)
        await inbox.migrate()
        stripe = inbox.source("stripe", provider="stripe", secrets=[SECRET])

        @inbox.effect(repeat="never")
        async def charge_card(op: Op) -> str:
            if op.effect_key == "in_doubt":
                raise TimeoutError
            return "done"

        @stripe.on("*", transaction=False)
        async def handle(event: Event) -> None:
            await event.call(charge_card, "in_order")
            await event.call(charge_card, "in_doubt")

        await site.deliver(stripe_event())
        await site.work()
        history = await site.event("evt_1")
        [unknown] = [known.effect for known in history.effects if known.effect.key == "in_doubt"]
        async with inbox.opened() as store:
            await resolve(inbox.context(store), by("ada", "looked it up"), unknown, "happened", "found")
        await site.work()
        await inbox.asgi.stop()
        return site

    site = asyncio.run(act())
    history = asyncio.run(site.event("evt_1"))
    ends = [entry.words for entry in timeline(history) if entry.kind == "effect" and entry.what == "done"]
    assert len(ends) == 2
    assert re.match(r"charge_card:in_order: call 1, ", ends[0])
    assert ends[1] == "charge_card:in_doubt: happened"
    shown = " ".join(ask(database_url, "show", "evt_1").stdout.split())
    assert "attempts? 2, in 1 run" in shown
    assert "run, attempts 1, 2 (1 towards the limit)" in shown

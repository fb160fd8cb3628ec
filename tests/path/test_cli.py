"""The command line, as a person or a script uses it: real processes."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from hookledger.cli import cli, exits
from hookledger.clock import Clock
from hookledger.store import SCHEMA_RANGE
from hookledger.store.connect import connect
from tests.builders import recorded
from tests.services import forked

SOURCE = Path(__file__).parents[2] / "src"
SECRET = "whsec_of_the_cli_tests"
APP = """
import logging
from hookledger import Inbox, Permanent

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])

@stripe.on("invoice.*")
async def handle(event):
    logging.getLogger("shop").warning("crediting")
    if event.type == "invoice.bad":
        raise Permanent("unknown plan")
    return {"attempt": event.attempt}
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A folder with an application, and nothing of the developer's own settings."""
    (tmp_path / "shop.py").write_text(APP)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
    proxy = "http://127.0.0.1:1"  # nobody there: this machine is reached directly
    return {**mine, "PYTHONPATH": str(SOURCE), "SECRET": SECRET, "NO_COLOR": "1", "HTTP_PROXY": proxy}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    outputs = tmp_path_factory.mktemp("outputs")

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return forked.run("hookledger", arguments, cwd=tmp_path, env={**environment, **variables}, folder=outputs)

    return run


@pytest.fixture
def shop(environment: dict[str, str], run: Run) -> Run:
    """The same, with the application and its migrated database named by variables."""
    environment |= {"HOOKLEDGER_APP": "shop:inbox", "HOOKLEDGER_DATABASE": "sqlite:///shop.db"}
    migrated = run("migrate", "--json")
    assert migrated.returncode == exits.OK, migrated.stderr
    assert json.loads(migrated.stdout)["applied"]
    return run


# ── every command ──


def test_help_and_version(run: Run) -> None:
    shown = run("--help")
    assert shown.returncode == exits.OK
    assert all(command.hidden != (f"  {name} " in shown.stdout) for name, command in cli.commands.items())
    assert "0.1.0" in run("--version").stdout


def test_exit_codes_have_names() -> None:
    codes = {name: value for name, value in vars(exits).items() if name.isupper()}
    assert len(set(codes.values())) == len(codes)
    assert codes["OK"] == 0


# ── what goes wrong ──


def test_no_database(run: Run) -> None:
    for command in (["migrate"], ["work"], ["serve", "--app", "shop:inbox"]):
        ended = run(*command)
        assert (ended.returncode, ended.stdout) == (exits.CONFIG, "")
        assert "error: no database" in ended.stderr
        assert "HOOKLEDGER_DATABASE" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_no_source(run: Run) -> None:
    ended = run("receive", "--database", "sqlite:///x.db")
    assert ended.returncode == exits.CONFIG
    assert "no source is configured" in ended.stderr


def test_no_such_app(run: Run) -> None:
    for app in ("nowhere:inbox", "shop:nothing", "shop", "shop:stripe"):
        ended = run("events", "--app", app)
        assert ended.returncode == exits.CONFIG, app
        assert "--app" in ended.stderr


def test_missing_secret(run: Run, environment: dict[str, str]) -> None:
    del environment["SECRET"]
    for command in (["receive"], ["send", "stripe"], ["rejections", "recheck", "stripe"]):
        ended = run(*command, "--app", "shop:inbox")
        assert ended.returncode == exits.CONFIG
        assert "environment variable SECRET is not set" in " ".join(ended.stderr.split())


def test_who_only_looks_needs_no_secret(run: Run, environment: dict[str, str]) -> None:
    del environment["SECRET"]
    where = ("--app", "shop:inbox", "--database", "sqlite:///shop.db")
    for command in (["migrate"], ["events"], ["quarantine"], ["rejections"], ["keys", "stripe"]):
        assert run(*command, *where).returncode == 0, command
    told = run("doctor", *where)
    assert "environment variable SECRET is not set in this environment" in " ".join(told.stdout.split())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('databse = "x"', "unknown key databse: did you mean database?"),
        ("[work]\nconcurency = 3", "unknown key work.concurency: did you mean work.concurrency?"),
        ('[sources.a]\nprovider = "stripe"\nsecret = "x"', "source 'a': unknown key secret: did you mean secrets?"),
        ("[work]\nretry = { atempts = 3 }", "did you mean work.retry.attempts?"),
        ('[work]\nlease = "soon"', "is not a duration"),
        ('[sources.a]\nprovider = "stirpe"\nsecrets = ["x"]', "did you mean 'stripe'?"),
        ("[", "hookledger.toml"),
    ],
)
def test_settings_that_are_wrong(run: Run, tmp_path: Path, text: str, hint: str) -> None:
    (tmp_path / "hookledger.toml").write_text(text)
    ended = run("events")
    assert ended.returncode == exits.CONFIG
    assert hint in " ".join(ended.stderr.split())


def test_schema_that_is_missing(run: Run) -> None:
    ended = run("events", "--database", "sqlite:///new.db")
    assert ended.returncode == exits.SCHEMA
    assert "hookledger migrate" in ended.stderr


def test_database_out_of_reach(run: Run) -> None:
    for url in ("sqlite:////nowhere/at/all.db", "postgresql://nobody@127.0.0.1:1/nothing"):
        ended = run("events", "--database", url)
        assert ended.returncode == exits.UNAVAILABLE, ended.stderr


@pytest.mark.parametrize("url", ["sqlite:///x.db", "postgresql://nobody@127.0.0.1:1/nothing"])
def test_show_sql_needs_no_database(run: Run, url: str, tmp_path: Path) -> None:
    shown = run("migrate", "--show-sql", "--database", url)
    assert shown.returncode == exits.OK
    assert "-- 0001_initial" in shown.stdout
    assert "CREATE TABLE" in shown.stdout
    assert not (tmp_path / "x.db").exists()
    steps = json.loads(run("migrate", "--show-sql", "--json", "--database", url).stdout)
    assert [step["name"] for step in steps][-1].startswith(f"{SCHEMA_RANGE[1]:04}")


# ── the whole path ──


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def served(shop: Run, environment: dict[str, str], tmp_path: Path) -> Iterator[int]:
    """`serve`, with everything given by options as a person would; the intake's port."""
    port, operator = free_port(), free_port()
    variables = {name: value for name, value in environment.items() if not name.startswith("HOOKLEDGER_")}
    command = [sys.executable, "-m", "hookledger", "serve", "--app", "shop:inbox", "--database", "sqlite:///shop.db"]
    command += ["--port", str(port), "--operator-port", str(operator), "--log-json"]
    with (tmp_path / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=log)
    try:
        wait_for(lambda: get(operator, "/readyz") == get(port, "/readyz") == 200)
        assert get(operator, "/stripe") == 404  # providers have no business here
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == exits.OK, (tmp_path / "serve.log").read_text()


def get(port: int, path: str) -> int:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}{path}", trust_env=False).status_code
    except httpx2.HTTPError:
        return 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_send_look_and_retry(served: int, shop: Run, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{served}/stripe"

    def send(*options: str) -> list[int]:
        sent = shop("send", "stripe", "--url", url, "--json", *options)
        assert sent.returncode == exits.OK, sent.stderr
        return sorted(answer["status"] for answer in json.loads(sent.stdout))

    assert send("--type", "invoice.paid", "--id", "evt_1", "--twice") == [200, 202]
    assert send("--type", "invoice.bad", "--id", "evt_2", "--concurrently", "20") == [200] * 19 + [202]
    assert send("--type", "invoice.paid", "--id", "evt_3", "--forge") == [401]
    (tmp_path / "body.json").write_text('{"id": "evt_4", "type": "invoice.paid"}')
    assert send("--body", "body.json") == [202]

    def counts() -> dict[str, int]:
        found: dict[str, int] = json.loads(shop("events", "--counts", "--json").stdout)["events"]
        return {state: count for state, count in found.items() if count}

    wait_for(lambda: counts() == {"processed": 2, "failed": 1})

    events = json.loads(shop("events", "--json").stdout)
    assert [event["key"] for event in events] == ["evt_4", "evt_2", "evt_1"]
    assert "evt_4" in shop("events").stdout
    failed = json.loads(shop("events", "--state", "failed", "--json").stdout)
    assert [(event["key"], event["reason"]) for event in failed] == [("evt_2", "unknown plan")]

    shown = json.loads(shop("show", "evt_1", "--json").stdout)
    assert shown["event"]["result"] == '{"attempt":1}'
    assert ["content-type", "application/json"] in shown["request"]["headers"]
    assert shop("show", "evt_1", "--body").stdout.startswith("{")
    text = shop("show", "evt_2").stdout
    assert "unknown plan" in text
    assert text.count("delivery: duplicate") == 19

    assert shop("show", "evt_nothing").returncode == exits.NOT_FOUND
    assert shop("retry", "evt_1", "--reason", "try").returncode == exits.NOT_ALLOWED
    assert shop("retry", "evt_2").returncode == exits.USAGE
    assert shop("retry", "evt_2", "--reason", "fixed", "--actor", "ada").returncode == exits.OK
    wait_for(lambda: counts() == {"processed": 2, "failed": 1})
    shown_again = json.loads(shop("show", "evt_2", "--json").stdout)
    assert [(a["name"], a["actor"], a["reason"]) for a in shown_again["actions"]] == [("retry", "ada", "fixed")]
    assert [a["outcome"] for a in shown_again["attempts"]] == ["failed", "failed"]

    lines = [json.loads(line) for line in (tmp_path / "serve.log").read_text().splitlines()]
    [line] = [line for line in lines if line.get("event_key") == "evt_1"]
    assert (line["logger"], line["event"]) == ("shop", "crediting")  # the handler's own line, its text untouched
    assert (line["event_id"], line["event_type"]) == (shown["event"]["id"], "invoice.paid")


def test_send_without_a_listener(shop: Run) -> None:
    ended = shop("send", "stripe", "--url", f"http://127.0.0.1:{free_port()}/stripe")
    assert ended.returncode == exits.UNAVAILABLE
    assert shop("send", "nobody").returncode == exits.CONFIG


def test_send_tells_an_unexpected_answer(shop: Run, served: int) -> None:
    ended = shop("send", "stripe", "--url", f"http://127.0.0.1:{served}/nobody")
    assert ended.returncode == exits.UNEXPECTED_ANSWER


def test_work_drain_ends_when_nothing_is_due(shop: Run) -> None:
    assert shop("work", "--drain").returncode == exits.OK


def test_a_port_that_is_taken_is_said(run: Run) -> None:
    """Two receivers on one port would share its deliveries between them."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        app = ("--app", "shop:inbox", "--database", "sqlite:///inbox.db")
        assert run("migrate", *app).returncode == exits.OK
        ended = run("receive", *app, "--port", port, "--host", "localhost")
        assert (ended.returncode, port in ended.stderr) == (exits.CONFIG, True), ended.stderr


def test_a_mistyped_file_does_not_become_a_database(run: Run, tmp_path: Path) -> None:
    ended = run("events", "--database", "sqlite:///no-such.db")
    assert ended.returncode == exits.SCHEMA, ended.stderr
    assert not list(tmp_path.glob("no-such*"))


def test_errors_are_shown_as_they_are(run: Run) -> None:
    assert run("migrate", "--database", "sqlite:///inbox.db").returncode == exits.OK
    ended = run("show", "[/x]", "--database", "sqlite:///inbox.db")
    assert (ended.returncode, "[/x]" in ended.stderr) == (exits.NOT_FOUND, True), ended.stderr
    ended = run("receive", "--database", "sqlite:///inbox.db")
    assert "[sources.NAME]" in ended.stderr
    ended = run("events", "--database", "postgres:/ada:made-up-password@host/db")
    assert (ended.returncode, "made-up" in ended.stderr) == (exits.CONFIG, False), ended.stderr


@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_gets_everything(
    shop: Run, environment: dict[str, str], tmp_path: Path, unbuffered: str, blocking: bool
) -> None:
    """Through a pipe, which takes 64 KiB at a time, and where somebody left it so, refuses the rest."""
    del shop
    environment["PYTHONUNBUFFERED"] = unbuffered

    async def fill() -> None:
        store = connect(f"sqlite:///{tmp_path}/shop.db", clock=Clock())
        await store.open()
        await store.know_sources(["stripe"])
        await recorded(store, "evt_large", b"x" * 300_000)
        await store.close()

    asyncio.run(fill())
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    command = [sys.executable, "-m", "hookledger", "show", "evt_large", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=writing) as process:
        os.close(writing)
        wait_for(lambda: process.poll() is not None or _waiting(reading) >= 65_536)
        with open(reading, "rb") as pipe:
            shown = json.loads(pipe.read())
    assert (process.returncode, len(shown["request"]["body"])) == (exits.OK, 400_000)


def _waiting(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)

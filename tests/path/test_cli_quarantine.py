"""What operators do with what did not plainly become an event: each command on both stores, each on live data.

Deliveries go through the intake and handlers run, in this process; each command starts from its settings alone, as in
a shell.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import pytest
from msgspec import Struct

from hookledger import Event, Inbox, Permanent
from hookledger.cli import cli, exits, main
from hookledger.config import load
from hookledger.providers.sign import sign
from tests.asgi_client import Answer, Site, ask, stripe_event

T = TypeVar("T")
RIGHT, WRONG = "whsec_right_secret_of_the_tests", "whsec_wrong_secret_of_the_tests"
WHY = ("--reason", "the secret was corrected", "--actor", "ada")
SETTINGS = """
database = "{database}"
work = {{ poll = "10ms" }}

[sources.stripe]
provider = "stripe"
secrets = ["env:STRIPE_SECRET"]
mode = "{mode}"

[sources.github]
provider = "github"
secrets = ["env:GITHUB_SECRET"]
reconciled = true

[sources.gitlab]
provider = "gitlab"
secrets = ["env:GITHUB_SECRET"]

[sources.shopify]
provider = "shopify"
secrets = ["env:GITHUB_SECRET"]

[sources.hints]
provider = "dropbox"
secrets = ["env:GITHUB_SECRET"]
"""


class Ended(Struct, frozen=True):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Desk:
    """One inbox: its provider, its worker and its operator."""

    def __init__(self, database: str, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]) -> None:
        self._monkeypatch = monkeypatch
        self._capture = capture
        self._database = database
        self.handled: list[str] = []
        self.secret(RIGHT)
        self.configure()
        assert self.run("migrate").code == exits.OK

    def secret(self, text: str) -> None:
        """What the receiver has for a secret from now on."""
        self._monkeypatch.setenv("STRIPE_SECRET", text)

    def configure(self, mode: str = "run") -> None:
        Path("hookledger.toml").write_text(SETTINGS.format(database=self._database, mode=mode))

    def run(self, *arguments: str) -> Ended:
        """`hookledger …`"""
        self._monkeypatch.setattr(sys, "argv", ["hookledger", *arguments])
        self._capture.readouterr()
        code: Any = exits.OK
        try:
            main()
        except SystemExit as end:
            code = end.code or exits.OK
        out, err = self._capture.readouterr()
        return Ended(code, out, " ".join(err.decode().split()))

    def live(self, work: Callable[[Site], Awaitable[T]]) -> T:
        """In an application that serves this inbox."""

        async def alive() -> T:
            inbox = Inbox(settings=load(Path("hookledger.toml")))
            inbox.read_secrets()

            @inbox.sources["stripe"].on("*")
            async def stripe(event: Event) -> None:
                if event.type == "invoice.bad":
                    raise Permanent("unknown plan")
                self.handled.append(event.key)

            @inbox.sources["github"].on("*")
            async def github(event: Event) -> None:
                self.handled.append(event.key)

            try:
                return await work(Site(inbox))
            finally:
                await inbox.asgi.stop()

        return asyncio.run(alive())

    def deliver(self, content: Any, **rest: Any) -> Answer:
        return self.live(lambda site: site.deliver(content, **rest))

    def work(self) -> None:
        self.live(lambda site: site.work())


@pytest.fixture
def desk(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Iterator[Desk]:
    for name in [name for name in os.environ if name.startswith("HOOKLEDGER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GITHUB_SECRET", "secret-of-the-github-tests")
    yield Desk(database_url, monkeypatch, capfdbinary)


def push(number: int) -> dict[str, Any]:
    return {"ref": "main", "head": {"id": f"commit-{number}"}}


# ── rejections and recheck ───────────────────────────────────────────────────


def test_a_wrong_secret_is_found_and_what_it_rejected_is_accepted(desk: Desk) -> None:
    desk.secret(WRONG)
    assert desk.deliver(stripe_event("evt_1"), secret=RIGHT).status == 401
    assert desk.deliver(stripe_event("evt_2"), secret=RIGHT).status == 401
    assert desk.deliver(stripe_event("evt_3"), secret="whsec_of_somebody_else").status == 401

    listed = desk.run("rejections")
    assert listed.text.count("signature_mismatch") == 3
    assert "no configured secret matches the signature" in listed.err
    rows = desk.run("rejections", "--source", "stripe", "--json").json
    assert [row["reason"] for row in rows] == ["signature_mismatch"] * 3
    assert all("stripe-signature" in dict(row["headers"]) for row in rows)
    assert b"evt_3" in desk.run("rejections", "--body", rows[0]["id"]).out
    [count] = desk.run("rejections", "--counts", "--json").json
    assert (count["count"], count["kept"], count["source"]) == (3, 3, "stripe")
    assert len(desk.run("rejections", "--limit", "1", "--json").json) == 1
    older = desk.run("rejections", "--before", rows[0]["id"], "--json").json
    assert [row["id"] for row in older] == [row["id"] for row in rows[1:]]

    still = desk.run("rejections", "recheck", "stripe")
    assert (still.code, still.text.count("still rejected: signature_mismatch")) == (exits.NOT_ALLOWED, 3)

    desk.secret(RIGHT)
    told = desk.run("rejections", "recheck", "stripe", "--json")
    assert [one["authentic"] for one in told.json] == [True, True, False], "the oldest first"
    assert desk.run("events", "--json").json == [], "nothing is taken in by looking"
    assert desk.run("rejections", "recheck", "stripe", "--accept").code == exits.USAGE

    # One of them was delivered again meanwhile, as providers do.
    assert desk.deliver(stripe_event("evt_2")).status == 202
    taken = desk.run("rejections", "recheck", "stripe", "--accept", "--json", *WHY)
    assert taken.code == exits.OK, taken.err
    became = [[each["outcome"] for each in one["recorded"]] for one in taken.json]
    assert became == [["accepted"], ["duplicate"], []]
    desk.work()
    assert desk.deliver(stripe_event("evt_1")).json["status"] == "duplicate", "the provider's own retry"
    desk.work()
    assert sorted(desk.handled) == ["evt_1", "evt_2"], "each once"

    left = desk.run("rejections", "--json").json
    assert [row["id"] for row in left] == [rows[0]["id"]], "what is forged stays where it is"
    again = desk.run("rejections", "recheck", "stripe", "--accept", *WHY)
    assert again.code == exits.NOT_ALLOWED
    assert {event["key"] for event in desk.run("events", "--json").json} == {"evt_1", "evt_2"}


def test_what_cannot_be_rechecked_is_said(desk: Desk) -> None:
    assert desk.deliver({"object_kind": "push"}, source="gitlab", secret="another-token").status == 401
    [row] = desk.run("rejections", "--source", "gitlab", "--json").json
    assert "another-token" not in json.dumps(row), "a presented secret is never kept"
    ended = desk.run("rejections", "recheck", "gitlab", "--accept", *WHY)
    assert ended.code == exits.CONFIG
    assert "presented secrets are never stored" in ended.err
    assert desk.run("events", "--json").json == []

    unknown = desk.run("rejections", "recheck", "nobody")
    assert (unknown.code, "unknown source 'nobody'" in unknown.err) == (exits.CONFIG, True)
    assert desk.run("rejections", "--body", "0123456789ab").code == exits.NOT_FOUND
    assert desk.run("rejections", "--body", "not an id").code == exits.NOT_FOUND
    nothing = desk.run("rejections", "--source", "nobody")
    assert (nothing.code, "No source nobody is configured here" in nothing.err) == (exits.OK, True)
    assert "holds no rejected request" in desk.run("rejections", "recheck", "stripe").err


def test_a_recheck_judges_the_time_at_which_it_came(desk: Desk) -> None:
    desk.secret(WRONG)

    async def an_hour_ago(site: Site) -> None:
        site.inbox.clock.offset = -3600
        assert (await site.deliver(stripe_event("evt_1"), secret=RIGHT)).status == 401

    desk.live(an_hour_ago)
    desk.secret(RIGHT)
    assert [one["reason_now"] for one in desk.run("rejections", "recheck", "stripe", "--json").json] == [None]


# ── quarantine ───────────────────────────────────────────────────────────────


# proves R14
def test_quarantined_deliveries_become_separate_events(desk: Desk) -> None:
    assert desk.deliver(push(1), source="github", ident="d1", kind="push").status == 202
    assert desk.deliver(push(1), source="github", ident="d2", kind="push").json["status"] == "same_body"
    assert desk.deliver(push(2), source="github", ident="d1", kind="push").json["status"] == "conflict"
    desk.work()
    assert desk.handled == ["d1"]

    listed = desk.run("quarantine")
    assert "conflict" in listed.text
    assert "same_body" in listed.text
    assert "hookledger quarantine accept" in listed.err
    assert desk.run("quarantine", "--source", "stripe").code == exits.OK
    changed = 'head.id: "commit-1" → "commit-2"'
    assert changed in listed.text
    assert changed in desk.run("show", "d1").text
    [conflict] = desk.run("quarantine", "--outcome", "conflict", "--json").json
    assert [change["path"] for change in conflict["difference"]["changes"]] == ["head.id"]
    [same] = desk.run("quarantine", "--outcome", "same_body", "--json").json
    assert json.loads(desk.run("quarantine", "--body", conflict["delivery"]).out) == push(2)

    assert desk.run("quarantine", "accept", conflict["delivery"]).code == exits.USAGE
    admitted = desk.run("quarantine", "accept", conflict["delivery"], "--reason", "two pushes", "--actor", "ada")
    assert admitted.code == exits.OK, admitted.err
    event_id = admitted.text.strip()
    also = desk.run("quarantine", "accept", same["request_id"], "--reason", "sent on purpose", "--json")
    assert also.json["state"] == "pending"
    desk.work()
    assert sorted(desk.handled) == ["d1", "d1~2", "d2~2"]

    shown = desk.run("show", event_id)
    assert f"by an operator, from delivery {conflict['delivery']}" in shown.text
    assert "two pushes" in shown.text
    twice = desk.run("quarantine", "accept", conflict["delivery"], "--reason", "again")
    assert (twice.code, event_id in twice.err) == (exits.NOT_ALLOWED, True)
    assert desk.run("quarantine", "accept", "01234567-89ab", "--reason", "x").code == exits.NOT_FOUND
    assert desk.run("quarantine", "accept", "nonsense", "--reason", "x").code == exits.NOT_FOUND
    assert "now accepted" in desk.run("quarantine").text


def test_a_conflict_that_cannot_be_compared_says_so(desk: Desk) -> None:
    for ident in ("d1", "d2"):
        assert desk.deliver(push(1) | {"n": ident}, source="github", ident=ident, kind="push").status == 202
        changed = push(2) | {"n": ident}
        assert desk.deliver(changed, source="github", ident=ident, kind="push").json["status"] == "conflict"
    desk.work()
    assert desk.run("erase", "d1", *WHY).code == exits.OK
    assert "the body of the event is not kept: pruned or erased" in desk.run("show", "d1").text
    listed = desk.run("quarantine", "--outcome", "conflict").text
    assert "not kept" in listed
    assert 'head.id: "commit-1" → "commit-2"' in listed
    settings = Path("hookledger.toml").read_text()
    Path("hookledger.toml").write_text(settings.replace("[sources.github]", "[sources.other]"))
    assert "unknown source 'github'" in desk.run("show", "d2").text, "it is shown all the same"


def test_an_alert_is_shown(desk: Desk) -> None:
    for _ in range(6):
        desk.live(bounce)
    marked = desk.run("show", "evt_1")
    assert "alert" in marked.text
    assert "still fails" in marked.text
    assert "failed !" in desk.run("events").text
    ended = desk.run("doctor")
    assert (ended.code, "still fails" in ended.text) == (exits.PROBLEM, True)


async def bounce(site: Site) -> None:
    await site.deliver(stripe_event("evt_1", "invoice.bad"))
    await site.work()
    await asyncio.sleep(0.1)


# ── keys ─────────────────────────────────────────────────────────────────────


# proves R16
def test_keys_are_audited_on_live_data(desk: Desk) -> None:
    assert "No events of this source yet" in desk.run("keys", "github").text

    async def traffic(site: Site) -> None:
        for number in range(6):
            await site.deliver(push(number), source="github", ident=f"d{number}", kind="push")
            await site.deliver(push(number), source="github", ident=f"e{number}", kind="push")
        await site.deliver(push(0), source="github", ident="d0", kind="push")

    desk.live(traffic)
    said = desk.run("keys", "github")
    assert "6 events from 13 deliveries: 6 by unsigned id" in said.text
    assert "Plain duplicates: 1 delivery." in said.text
    assert "so the id may change: 6 deliveries" in said.text
    assert 'this would: key = ["body:head.id"]' in said.text
    report = desk.run("keys", "github", "--json").json
    own, best = report["fits"][:2]
    assert (own["own"], own["fits"], own["narrow"]) == (True, False, 6)
    assert (best["rule"], best["fits"]) == (["body:head.id"], True)
    assert report["audit"]["same_bodies"] == 6
    few = desk.run("keys", "github", "--last", "2", "--sample", "0", "--json").json
    assert (few["audit"]["events"], few["fits"]) == (2, [])
    assert desk.run("keys", "nobody").code == exits.CONFIG


# ── import-keys ──────────────────────────────────────────────────────────────


# proves R67
def test_known_keys_are_imported_and_their_deliveries_are_duplicates(desk: Desk) -> None:
    Path("ids.txt").write_text("evt_1\nevt_2\r\n\nevt_1\n")
    done = desk.run("import-keys", "stripe", "ids.txt", "--json", *WHY)
    assert (done.code, done.json) == (exits.OK, {"given": 2, "new": 2, "known": 0})
    assert "0 new here, 2 known before" in desk.run("import-keys", "stripe", "ids.txt", *WHY).text
    Path("ids.csv").write_text('when,id\n2026,"evt_3"\n2026,evt_4\n')
    assert desk.run("import-keys", "stripe", "ids.csv", "--column", "id", "--json", *WHY).json["new"] == 2
    Path("rows.csv").write_text("2026,evt_5\n")
    assert desk.run("import-keys", "stripe", "rows.csv", "--column", "2", "--json", *WHY).json["new"] == 1
    Path("ids.jsonl").write_text('{"event": {"id": "evt_6"}}\n{"event": {"id": 7}}\n')
    assert desk.run("import-keys", "stripe", "ids.jsonl", "--field", "event.id", "--json", *WHY).json["new"] == 2

    for ident in ("evt_1", "evt_3", "evt_5", "evt_6", "7"):
        assert desk.deliver(stripe_event(ident)).json["status"] == "duplicate", ident
    assert desk.deliver(stripe_event("evt_9")).json["status"] == "accepted"
    desk.work()
    assert desk.handled == ["evt_9"]


def test_a_key_of_several_fields(desk: Desk) -> None:
    Path("ids.csv").write_text("evt_1,orders/paid\n")
    one = desk.run("import-keys", "shopify", "ids.csv", "--column", "1", *WHY)
    assert one.code == exits.CONFIG
    assert "header:x-shopify-event-id + header:x-shopify-topic" in one.err
    both = desk.run("import-keys", "shopify", "ids.csv", "--column", "1", "--column", "2", "--json", *WHY)
    assert both.json["new"] == 1

    async def deliver(site: Site) -> list[Any]:
        endpoint, found = site.inbox.sources["shopify"].endpoint, []
        for ident in ("evt_1", "evt_2"):
            body = json.dumps({"order": ident}).encode()
            signed = dict(sign(endpoint.contract, endpoint.secrets[0].key, body, now=site.inbox.clock.time()))
            signed |= {"x-shopify-event-id": ident, "x-shopify-topic": "orders/paid"}
            found.append((await ask(site.inbox.asgi, "POST", "/shopify", body, list(signed.items()))).json)
        return found

    assert [answer["status"] for answer in desk.live(deliver)] == ["duplicate", "accepted"]


def test_keys_from_a_table_beside_the_inbox(desk: Desk) -> None:
    async def old_table(site: Site) -> None:
        async with site.inbox.opened(handlers=1) as store:
            transaction = store.transaction()
            await transaction.tx.execute("CREATE TABLE seen (n INTEGER, event_id TEXT)")
            for number in range(2500):
                await transaction.tx.execute(f"INSERT INTO seen VALUES ({number}, 'evt_{number}')")
            await transaction.commit([])

    desk.live(old_table)
    done = desk.run("import-keys", "stripe", "--query", "SELECT event_id FROM seen", "--json", *WHY)
    assert (done.code, done.json) == (exits.OK, {"given": 2500, "new": 2500, "known": 0}), done.err
    by_column = ("--query", "SELECT n, event_id FROM seen WHERE n < 3", "--column", "2", "--json")
    assert desk.run("import-keys", "stripe", *by_column, *WHY).json == {"given": 3, "new": 0, "known": 3}
    assert desk.deliver(stripe_event("evt_2499")).json["status"] == "duplicate"
    for sql in (
        "DELETE FROM seen",
        "UPDATE seen SET n = 1 RETURNING event_id",
        "SELECT event_id FROM seen; DELETE FROM seen",
        "COMMIT",
        "SELECT x FROM seen",
        "SELECT",
    ):
        refused = desk.run("import-keys", "stripe", "--query", sql, *WHY)
        assert (refused.code, refused.out) == (exits.CONFIG, b""), (sql, refused.err)
    assert desk.run("import-keys", "stripe", "--query", " ", *WHY).code == exits.USAGE
    others = "SELECT event_id FROM seen WHERE n <> 1"
    left = desk.run("import-keys", "stripe", "--query", others, "--dry-run", "--json")
    assert left.json["given"] == 2499, "nothing was deleted or changed"
    missing = desk.run("import-keys", "stripe", "--query", "SELECT event_id FROM seen", "--column", "4", *WHY)
    assert (missing.code, "no column 4" in missing.err) == (exits.CONFIG, True)


# proves R67
def test_a_source_that_observes_is_compared_before_the_cut_over(desk: Desk) -> None:
    desk.configure(mode="observe")
    for ident in ("evt_1", "evt_2", "evt_3"):
        assert desk.deliver(stripe_event(ident)).status == 202
    desk.work()
    assert desk.handled == []
    assert {event["state"] for event in desk.run("events", "--json").json} == {"skipped"}

    Path("theirs.txt").write_text("evt_2\nevt_3\nevt_4\n")
    compared = desk.run("import-keys", "stripe", "theirs.txt", "--dry-run", "--json").json
    assert (compared["given"], compared["known"], compared["missing"]) == (3, 2, 1)
    assert (compared["events"], compared["extra"]) == (3, 1)
    assert (compared["missing_sample"], compared["extra_sample"]) == (["evt_4"], ["evt_1"])
    text = desk.run("import-keys", "stripe", "theirs.txt", "--dry-run")
    assert "not here: evt_4" in text.text
    assert "only here: evt_1" in text.text

    desk.run("import-keys", "stripe", "theirs.txt", *WHY)
    desk.configure(mode="run")
    assert desk.deliver(stripe_event("evt_4")).json["status"] == "duplicate"
    assert desk.deliver(stripe_event("evt_5")).json["status"] == "accepted"
    desk.work()
    assert desk.handled == ["evt_5"]


def test_imports_that_cannot_be(desk: Desk) -> None:
    Path("ids.txt").write_text("evt_1\n")
    hint = desk.run("import-keys", "hints", "ids.txt", *WHY)
    assert (hint.code, "no keys" in hint.err) == (exits.CONFIG, True)
    assert desk.run("import-keys", "nobody", "ids.txt", *WHY).code == exits.CONFIG
    assert desk.run("import-keys", "stripe", "ids.txt").code == exits.USAGE, "a reason is needed"
    assert desk.run("import-keys", "stripe", *WHY).code == exits.USAGE, "from where?"
    assert desk.run("import-keys", "stripe", "nowhere.txt", *WHY).code == exits.USAGE
    assert desk.run("import-keys", "stripe", "ids.txt", "--query", "SELECT 1", *WHY).code == exits.USAGE
    Path("bad.jsonl").write_text('{"id": "evt_1"}\n{"id": \n')
    bad = desk.run("import-keys", "stripe", "bad.jsonl", "--field", "id", *WHY)
    assert (bad.code, "entry 2" in bad.err) == (exits.CONFIG, True)
    Path("bad.jsonl").write_text('{"id": "evt_1"}\n{"other": 1}\n')
    bad = desk.run("import-keys", "stripe", "bad.jsonl", "--field", "id", *WHY)
    assert (bad.code, "entry 2 has no key" in bad.err) == (exits.CONFIG, True)
    Path("latin.txt").write_bytes(b"evt_1\nevt_\xff\n")
    bad = desk.run("import-keys", "stripe", "latin.txt", *WHY)
    assert (bad.code, "not UTF-8" in bad.err) == (exits.CONFIG, True)
    Path("ids.csv").write_text("a,b\n1,2\n")
    bad = desk.run("import-keys", "stripe", "ids.csv", "--column", "c", *WHY)
    assert (bad.code, "a, b" in bad.err) == (exits.CONFIG, True)
    assert desk.run("events", "--json").json == []


# ── doctor and providers ─────────────────────────────────────────────────────


def test_the_doctor_looks_at_a_sound_inbox(desk: Desk) -> None:
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.OK, ended.text
    found = {(finding["about"], finding["level"]) for finding in ended.json}
    assert {("database", "ok"), ("clock", "ok"), ("alerts", "ok"), ("rejections", "ok")} <= found
    said = " ".join(desk.run("doctor").text.split())
    assert "retries for 72 h, manual redelivery for 30 days" in said
    assert "the signature does not cover the body" in said

    desk.deliver(stripe_event(), secret=WRONG)
    desk.deliver({"a": 1}, source="gitlab", secret="another-token")
    said = " ".join(desk.run("doctor").text.split())
    assert "hookledger rejections recheck stripe" in said
    assert "hookledger rejections recheck gitlab" not in said, "that could not be"


def test_the_doctor_finds_what_is_broken(desk: Desk) -> None:
    for database in ("sqlite:////nowhere/at/all.db", "postgresql://nobody@127.0.0.1:1/nothing", "sqlite:///new.db"):
        ended = desk.run("doctor", "--database", database, "--json")
        assert ended.code == exits.PROBLEM, database
        assert [finding["about"] for finding in ended.json] == ["database"]
    settings = Path("hookledger.toml").read_text()
    old = '[{ secret = "env:STRIPE_SECRET", expires = 2026-01-01T00:00:00Z }]'
    Path("hookledger.toml").write_text(settings.replace('["env:STRIPE_SECRET"]', old))
    ended = desk.run("doctor")
    assert (ended.code, "every secret has expired" in ended.text) == (exits.PROBLEM, True)


def test_what_may_surprise_is_said_at_the_start(desk: Desk) -> None:
    source = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-m", "hookledger", "work", "--drain"]
    environment = {**os.environ, "PYTHONPATH": source}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == exits.OK, ended.stderr
    assert ended.stderr.count("source 'gitlab': the signature does not cover the body") == 1


def test_providers_need_neither_database_nor_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "hookledger.toml").write_text("broken = ")

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["hookledger", "providers", *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    code, out, _ = run()
    assert code == exits.OK
    assert "stripe" in out
    listed = json.loads(run("--json")[1])
    assert {"stripe", "github"} <= {each["name"] for each in listed}
    code, out, _ = run("stripe")
    assert "unconfirmed" in out
    assert "[sources.stripe]" in out
    assert json.loads(run("github", "--json")[1])["facts"]["event_key"] == [
        "header:x-github-delivery (not signed); the signed body also identifies the event"
    ]
    code, _, err = run("strype")
    assert (code, "did you mean 'stripe'" in err) == (exits.CONFIG, True)
    assert run("discord_interactions", "--new-test-key", "k.pem")[0] == exits.OK
    assert (tmp_path / "k.pem").read_text().startswith("-----BEGIN PRIVATE KEY")
    assert (tmp_path / "k.pem").stat().st_mode & 0o77 == 0
    assert run("discord_interactions", "--new-test-key", "k.pem")[0] == exits.CONFIG, "never overwritten"
    assert run("stripe", "--new-test-key", "k2.pem")[0] == exits.CONFIG
    assert run("--new-test-key", "k2.pem")[0] == exits.USAGE


def test_every_command_about_cases_prints_json() -> None:
    commands = {name: cli.commands[name] for name in ("providers", "keys", "import-keys", "doctor")}
    for group in (cli.commands["rejections"], cli.commands["quarantine"]):
        assert isinstance(group, click.Group)
        commands |= {f"{group.name} {name}": command for name, command in group.commands.items()}
    for name, command in commands.items():
        assert any("--json" in option.opts for option in command.params), name

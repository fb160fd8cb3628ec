"""Secrets are read when the inbox starts: an application can be imported, migrated and looked at without them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hookledger import ConfigError, Inbox
from hookledger.cli import exits
from hookledger.config import decode
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.receive.endpoint import with_secrets
from hookledger.receive.request import Message
from tests.asgi_client import Answer, Site, ask, stripe_event
from tests.endpoints import configure
from tests.services import forked

SECRET, NEXT = "whsec_made_up_for_the_start", "whsec_made_up_for_the_next_start"
VARIABLE = "HOOKLEDGER_TESTS_START_SECRET"
MISSING = f"source 'stripe': the secret in environment variable {VARIABLE} is not set: set it and start again"
APP = f"""
from hookledger import Inbox

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:{VARIABLE}"])

@stripe.on("invoice.paid")
async def paid(event):
    return "paid"
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Commands in a folder with an application, without its secret."""
    (tmp_path / "shop_without.py").write_text(APP)
    outputs = tmp_path_factory.mktemp("outputs")
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
    named = {"HOOKLEDGER_APP": "shop_without:inbox", "HOOKLEDGER_DATABASE": "sqlite:///shop.db", "NO_COLOR": "1"}

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return forked.run("hookledger", arguments, cwd=tmp_path, env={**mine, **named, **variables}, folder=outputs)

    return run


def test_which_commands_need_the_secret(run: Run) -> None:
    for command in (("migrate",), ("work", "--drain"), ("events",), ("lag",), ("doctor",), ("work", "--help")):
        done = run(*command)
        assert done.returncode == exits.OK, (command, done.stderr)
    assert f"{VARIABLE} is not set in this environment" in run("doctor").stdout
    short = run("doctor", **{VARIABLE: "whsec_x"}).stdout
    assert f"{VARIABLE} is shorter than 8 bytes in this environment" in short
    for refused in (("receive", "--port", "0"), ("serve", "--port", "0"), ("send", "stripe")):
        done = run(*refused)
        assert done.returncode == exits.CONFIG, (refused, done.stderr)
        assert MISSING in " ".join(done.stderr.split())
    assert "shorter than" in run("receive", "--port", "0", **{VARIABLE: "short"}).stderr


def test_the_module_is_imported_without_it(tmp_path: Path) -> None:
    (tmp_path / "shop_without.py").write_text(APP)
    code = "import shop_without; print(shop_without.inbox.sources['stripe'].endpoint.secrets)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "not read" in done.stdout


async def deliver(inbox: Inbox, secret: str, ident: str) -> Answer:
    body = json.dumps(stripe_event(ident)).encode()
    signed = sign(find("stripe"), secret, body, now=inbox.clock.time())
    return await ask(inbox.asgi, "POST", "/stripe", body, signed)


async def test_at_the_first_request(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mounted where nobody tells of the start: nothing is recorded until the secret is there, then all is well."""
    monkeypatch.delenv(VARIABLE, raising=False)
    inbox = Inbox(database_url)
    inbox.source("stripe", provider="stripe", secrets=[f"env:{VARIABLE}"])
    await inbox.migrate()
    assert (await deliver(inbox, SECRET, "evt_1")).status == 503
    assert f"the intake cannot start: {MISSING}" in caplog.text
    assert (await ask(inbox.asgi, "GET", "/healthz")).status == 200
    assert (await ask(inbox.asgi, "GET", "/readyz")).status == 503
    site = Site(inbox)
    assert await site.events() == []
    monkeypatch.setenv(VARIABLE, SECRET)
    assert (await deliver(inbox, SECRET, "evt_1")).status == 202
    assert (await deliver(inbox, NEXT, "evt_2")).status == 401
    await inbox.asgi.stop()
    monkeypatch.setenv(VARIABLE, NEXT)  # rotated: the next start reads it anew
    assert (await deliver(inbox, NEXT, "evt_2")).status == 202
    assert (await deliver(inbox, SECRET, "evt_3")).status == 401
    assert {row.key for row in await site.events()} == {"evt_1", "evt_2"}
    await inbox.asgi.stop()


async def test_at_the_servers_start(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    inbox = Inbox(sqlite_url)
    inbox.source("stripe", provider="stripe", secrets=[f"env:{VARIABLE}"])
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    await inbox.asgi({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "lifespan.startup.failed", "message": MISSING}]


def test_files_and_verify_tokens_too(tmp_path: Path) -> None:
    secret, token = tmp_path / "secret", tmp_path / "token"
    source = {"provider": "meta", "secrets": [f"file:{secret}"], "verify_token": f"file:{token}"}
    inbox = Inbox("sqlite:///never-opened.db", settings=decode({"sources": {"meta": source}}))
    with pytest.raises(ConfigError, match=f"source 'meta': the secret in file {secret}"):
        inbox.read_secrets()
    secret.write_text("a-made-up-app-secret")
    with pytest.raises(ConfigError, match=f"source 'meta': the verify token in file {token}"):
        inbox.read_secrets()
    before = inbox.sources["meta"].endpoint.verify_token
    assert before is not None and len(before) == 32
    inbox.read_secrets(required=False)
    assert inbox.sources["meta"].endpoint.secrets[0].key == b"a-made-up-app-secret"
    token.write_text("a-made-up-token")
    inbox.read_secrets()
    assert inbox.sources["meta"].endpoint.verify_token == "a-made-up-token"
    secret.unlink()
    inbox.read_secrets(required=False)  # what was read stays, for those who only look
    assert inbox.sources["meta"].endpoint.secrets[0].key == b"a-made-up-app-secret"


def test_what_was_not_read_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    unread = configure("stripe", find("stripe"), [f"env:{VARIABLE}"])
    assert all(secret.expires_at == 0.0 and secret.key != SECRET.encode() for secret in unread.secrets)
    read = with_secrets(unread)
    assert [secret.key for secret in read.secrets] == [SECRET.encode()]
    assert SECRET not in f"{read!r} {read.secrets} {[secret.place for secret in read.secrets]}"


def test_a_mistyped_literal_is_found_at_start() -> None:
    with pytest.raises(ConfigError, match="is empty"):
        Inbox("sqlite:///never-opened.db").source("stripe", provider="stripe", secrets=[" "])


async def test_what_reconciles_daily_needs_it(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    """GitHub's log holds the signatures, and what is imported is verified as a delivery is."""
    monkeypatch.delenv(VARIABLE, raising=False)
    reconcile = {"token": "a-made-up-token", "at": "03:00", "repository": "acme/shop", "hook": 1}
    source = {"provider": "github", "secrets": [f"env:{VARIABLE}"], "reconcile": reconcile}
    inbox = Inbox(sqlite_url, settings=decode({"sources": {"github": source}}))
    await inbox.migrate()
    with pytest.raises(ConfigError, match=f"source 'github': .* {VARIABLE} is not set"):
        await inbox.work()

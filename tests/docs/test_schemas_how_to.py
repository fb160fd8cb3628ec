"""What docs/how-to/schemas.md shows is what happens."""

import asyncio
import json
import re
import tomllib
from pathlib import Path

from hookledger import Config, Inbox
from hookledger.cli import exits
from hookledger.config import decode
from hookledger.providers.catalogue import contracts
from hookledger.providers.sample import sample
from hookledger.schemas.compiled import Schema
from tests.asgi_client import Site, stripe_event
from tests.path.test_cli import SECRET, Run, environment, run, shop  # noqa: F401 - fixtures

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "schemas.md").read_text()
[TOML] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
[SCHEMA] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ hookledger (.*)$", PAGE, re.MULTILINE)
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def shown(command: str) -> list[str]:
    text: str
    [text] = re.findall(rf"```console\n\$ hookledger {re.escape(command)}\n(.*?)```", PAGE, re.DOTALL)
    return text.splitlines()


def same_everywhere(text: str) -> list[str]:
    return [WHEN.sub("WHEN", ID.sub("ID", line)).rstrip() for line in text.splitlines()]


def test_the_page(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    inbox = Inbox(f"sqlite:///{tmp_path}/shop.db", settings=Config())
    inbox.source("stripe", provider="stripe", secrets=[SECRET])
    site = Site(inbox)

    async def send(*amounts: object) -> None:
        for amount in amounts:
            lines = {"object": "list", "data": [{"pricing": None}]}
            content = {"id": "in_1", "amount_paid": amount, "lines": lines}
            await site.deliver(stripe_event(f"evt_{amount}", data={"object": content}))
        await inbox.asgi.stop()

    asyncio.run(send(1, 2))
    assert shop(*COMMANDS[0].split()).returncode == exits.OK
    file = tmp_path / "schemas/stripe/invoice.paid/default.json"
    drafted = json.loads(file.read_text())
    assert drafted["properties"]["data"]["properties"]["object"]["properties"]["amount_paid"] == {"type": "integer"}
    assert shop(*COMMANDS[0].split()).returncode == exits.CONFIG, "the file exists"
    printed = shop("schemas", "infer", "stripe", "invoice.paid")
    assert json.loads(printed.stdout) == drafted

    pattern = shop("schemas", "infer", "stripe", "invoice.paid", "--version", "2024-*", "--write")
    assert pattern.returncode == exits.CONFIG, "its file would fit no version"

    file.write_text(SCHEMA)
    assert shop("schemas", "check", "stripe").returncode == exits.OK
    asyncio.run(send("12"))
    checked = shop("schemas", "check", "stripe")
    assert checked.returncode == exits.PROBLEM
    assert same_everywhere(checked.stdout + checked.stderr) == shown("schemas check stripe")
    assert json.loads(shop("schemas", "check", "stripe", "--json").stdout)["broken"] == 1
    draft = tmp_path / "draft.json"
    draft.write_text("true")
    other = ("schemas", "check", "stripe", "--schema", "draft.json")
    assert shop(*other, "--type", "invoice.paid").returncode == exits.OK
    assert shop(*other).returncode != exits.OK, "of which type?"

    assert shop("work", "--drain").returncode == exits.OK
    failures = shop("failures")
    assert same_everywhere(failures.stdout) == shown("failures"), failures.stdout
    assert "breaks of stripe/invoice.paid/default.json:" in shop("show", "evt_12").stdout
    [retry] = [command for command in COMMANDS if command.startswith("bulk retry")]
    cause, reason = re.findall(r"--cause '(.*)' --reason \"(.*)\"", retry)[0]
    file.write_text("true")
    assert shop("bulk", "retry", "--cause", cause, "--reason", reason, "--yes").returncode == exits.OK
    assert shop("work", "--drain").returncode == exits.OK
    assert json.loads(shop("show", "evt_12", "--json").stdout)["event"]["state"] == "processed"

    drift = shop("schemas", "drift", "stripe", "--json")
    assert drift.returncode == exits.OK
    assert json.loads(drift.stdout)["source"] == "stripe"
    file.write_text('{"type": "strnig"}')
    stopped = shop("work", "--drain")
    assert stopped.returncode == exits.CONFIG
    assert "schemas/stripe/invoice.paid/default.json at /type" in stopped.stderr


def test_events_of_stripe_fit_the_schema_of_the_page() -> None:
    made = sample(contracts()["stripe"], "invoice.paid")
    assert not Schema("page", json.loads(SCHEMA)).check(json.loads(made.body))


def test_the_settings_of_the_page() -> None:
    source = decode(tomllib.loads(TOML)).sources["partner"]
    assert (source.schema_check, source.schema_break) == ("intake", "refuse")

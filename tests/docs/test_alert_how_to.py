"""What docs/how-to/alert.md shows is what happens."""

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

from hookledger import Inbox
from hookledger.cli import exits
from hookledger.config import decode
from hookledger.operate.alerts import messages
from hookledger.operate.alerts.words import alert
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.services.people import HOOK, PAGERDUTY, SLACK, people_listening
from tests.unit.test_alert_words import MESSAGE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "alert.md").read_text()
[TOML] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def blocks(command: str) -> list[str]:
    [shown] = re.findall(rf"```console\n\$ {re.escape(command)}\n(.*?)```", PAGE, re.DOTALL)
    return [same_everywhere(line) for line in shown.splitlines()]


def same_everywhere(line: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", line.rstrip())


def test_the_page(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    with people_listening() as people:
        settings = TOML.replace("https://ops.example.com/hookledger", people.url + HOOK)
        settings = settings.replace('type = "pagerduty"', f'type = "pagerduty"\nurl = "{people.url}{PAGERDUTY}"')
        (tmp_path / "hookledger.toml").write_text(settings)
        secrets = {
            "SLACK_WEBHOOK_URL": people.url + SLACK,
            "PAGERDUTY_KEY": "made-up-routing-key-of-32-letters",
            "ALERT_SECRET": "whsec_bWFkZSB1cCBmb3IgdGhlIGRvY3MgYW5kIGxvbmc=",
        }
        people.answers[HOOK] = 503
        tested = shop("alerts", "test", **secrets)
        assert [same_everywhere(line) for line in tested.stdout.splitlines()] == blocks("hookledger alerts test")
        assert tested.returncode == exits.UNEXPECTED_ANSWER
        assert shop("alerts", "test", "--target", "team", **secrets).returncode == exits.OK
        assert shop("alerts", "test", "--target", "unknown", **secrets).returncode == exits.CONFIG
        assert shop("work", "--drain").returncode == exits.CONFIG, "a secret is missing"

        database = f"sqlite:///{tmp_path}/shop.db"
        names: dict[str, Any] = {"Inbox": Inbox}
        exec(compile(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1], "alert.md", "exec"), names)
        asyncio.run(names["nightly"](Inbox(database)))
        del people.answers[HOOK]
        assert shop("work", "--drain", **secrets).returncode == exits.OK
        assert [text for text in people.slack if "3 invoices have no payment" in text]
        listed = shop("alerts", "--target", "own")
        assert [same_everywhere(line) for line in listed.stdout.splitlines()] == blocks(
            "hookledger alerts --target own"
        )
        assert shop("alerts", "--state", "failed").stderr.strip() == "No alerts."


def test_the_message_that_the_page_shows() -> None:
    [shown] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    config = decode(tomllib.loads(TOML))
    said = alert(MESSAGE, config.alerts.name)
    first, *rest = said.text.splitlines()
    assert shown.splitlines()[1:3] == rest[:2]
    assert shown.splitlines()[0].startswith(f"[{said.severity}] {said.inbox}: {first.removesuffix('…')}")
    assert shown.splitlines()[3].startswith("Next: hookledger failures; the newest: hookledger show ")


async def test_the_function_of_the_page_is_called(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", "whsec_made_up_for_the_docs")
    names: dict[str, Any] = {}
    exec(compile(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], "alert.md", "exec"), names)
    inbox: Inbox = names["inbox"]
    inbox.database = f"sqlite:///{tmp_path}/inbox.db"
    await inbox.migrate()
    async with inbox.operating() as context:
        [result] = await messages.test(context)
    assert result.problem is None
    assert "Next: hookledger alerts" in capsys.readouterr().out

"""What alerts say, who gets which, and what settings are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from hookledger import Alert, Config, ConfigError, Inbox
from hookledger.config import decode
from hookledger.ids import new_id
from hookledger.operate.alerts.kinds import KINDS
from hookledger.operate.alerts.targets import Slack, check_targets, slack_text
from hookledger.operate.alerts.words import alert
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Message, MessageState

NOW = datetime(2026, 3, 1, 9, 12, 44, tzinfo=UTC)
MESSAGE = Message(
    *(new_id(), "ops", "dead_letter", "t" * 32, NOW, "stripe: TypeError: …", "", new_id(), 500, 0, False),
    *(NOW, NOW + timedelta(seconds=75), MessageState.WAITING, 0, NOW, None, None),
)


def said(**other: Any) -> Alert:
    return alert(msgspec.structs.replace(MESSAGE, **other), "shop")


def test_every_kind_is_described() -> None:
    assert set(KINDS) == set(AlertKind)
    for described in KINDS.values():
        assert described.condition.endswith(".")
        assert described.do.endswith(".")
        assert described.command.startswith("hookledger ")


def test_a_message_says_how_many_so_far_and_how_many_more() -> None:
    assert said().title == "500 dead letters: stripe: TypeError: …"
    assert said(count=1).title == "1 dead letter: stripe: TypeError: …"
    assert said(count=3, follows=True).title == "3 more dead letters: stripe: TypeError: …"
    rest = said(topic="", subject="", more_topics=37, count=412)
    assert rest.title == "and 37 more topics (source and cause) with 412 more dead letters"
    assert (
        said(kind="consistency", subject="events", words="3 rows are lost", count=1).title
        == "events: 3 rows are lost"
    )


def test_a_message_names_the_next_command() -> None:
    ident = MESSAGE.event_id
    assert said(count=1).command == f"hookledger show {ident}"
    assert said().command == f"hookledger failures; the newest: hookledger show {ident}"
    assert said(topic="", more_topics=2).command == "hookledger failures"
    assert said(kind="conflict", subject="a b").command == "hookledger quarantine --source 'a b'"
    assert said().text.splitlines()[1] == "from 2026-03-01 09:12:44 to 2026-03-01 09:13:59 UTC"
    assert said().text.endswith(f"Next: hookledger failures; the newest: hookledger show {ident}")


def test_a_kind_of_a_newer_release_is_told_nonetheless() -> None:
    assert said(kind="overheated").title == "500 occurrences: stripe: TypeError: …"


@pytest.mark.parametrize("text", ["<!channel> look", "<@U123>", "<https://evil.test|here>", "&lt;!here&gt;"])
def test_slack_finds_no_mention_and_no_link(text: str) -> None:
    settings = decode({"alerts": {"targets": {"s": {"type": "slack", "url": "https://hooks.test/x"}}}}).alerts
    sent = Slack("s", settings.targets["s"], 1.0).content(said(subject=text))
    assert not set("<>") & set(sent["text"])
    assert slack_text(text) in sent["text"]
    assert (sent["mrkdwn"], sent["link_names"], sent["unfurl_links"]) == (False, False, False)


def test_control_characters_are_replaced() -> None:
    title = said(subject="a\x1b[31m\n\u202eb").title
    assert title.isprintable()
    assert "\x1b" not in title


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"targets": {"a": {"type": "slack"}}}, "needs url"),
        ({"targets": {"a": {"type": "pagerduty", "url": "https://x.test"}}}, "needs routing_key"),
        ({"targets": {"a": {"type": "webhook", "url": "https://x.test", "only": ["dead_leter"]}}}, "dead_leter"),
        ({"targets": {"a": {"type": "webhook", "url": "https://x.test", "only": []}}}, "leaves nothing"),
        ({"targets": {"a": {"type": "slack", "url": "https://x.test", "secret": "s"}}}, "secret is for"),
        ({"targets": {"a b": {"type": "slack", "url": "https://x.test"}}}, "'a b'"),
        ({"targets": {"a": {"type": "opsgenie", "url": "https://x.test"}}}, "opsgenie"),
        ({"window": "0s"}, "window"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        decode({"alerts": settings})


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"type": "slack", "url": "http://hooks.test/services/secret"}, "must begin with https"),
        ({"type": "slack", "url": "https://user:pass@hooks.test/secret"}, "without a user"),
        ({"type": "slack", "url": "hooks.test/secret"}, "must be https"),
        ({"type": "slack", "url": "env:NOT_THERE_AT_ALL"}, "NOT_THERE_AT_ALL is not set"),
        ({"type": "webhook", "url": "https://hooks.test/secret", "secret": "whsec_c2hvcnQ="}, "shorter than"),
        ({"type": "apprise", "url": "secret"}, "Apprise"),
    ],
)
def test_a_target_that_cannot_be_used_is_an_error_without_its_secret(target: dict[str, Any], words: str) -> None:
    config: Config = decode({"alerts": {"targets": {"ops": target}}})
    with pytest.raises(ConfigError, match=words) as error:
        check_targets(config.alerts)
    assert "/secret" not in str(error.value)
    assert "ops" in str(error.value)
    assert "secret" not in repr(config.alerts.targets["ops"])


def test_alert_functions_are_declared() -> None:
    inbox = Inbox("sqlite:///x.db")

    @inbox.alert
    async def page(alert: Alert) -> None: ...

    @inbox.alert(only=["dead_letter"])
    def note(alert: Alert) -> None: ...

    first, second = inbox.alert_functions
    assert (first.name, second.name) == ("page", "note")
    assert (len(first.kinds), second.kinds) == (len(AlertKind), frozenset({"dead_letter"}))
    with pytest.raises(ConfigError, match="two alert functions"):
        inbox.alert(page)
    with pytest.raises(ConfigError, match="takes"):
        inbox.alert(lambda: None)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="nonsense"):
        inbox.alert(only=["nonsense"])(note)

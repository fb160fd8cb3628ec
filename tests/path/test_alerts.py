"""Alerts from what went wrong to the people: real stores, two senders, and services that count what they get."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hookledger import Alert, ConfigError, Event, Inbox, Permanent, Retry, Review, SecretSettings
from hookledger.config import decode
from hookledger.operate.alerts import messages
from hookledger.operate.alerts.sender import AlertSender
from hookledger.operate.context import Context
from hookledger.operate.doctor.checks import examine
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import MessageState
from tests.asgi_client import Site, stripe_event
from tests.contract.test_alert_messages import PROVOKED
from tests.path.conftest import SECRET
from tests.services.people import HOOK, PAGERDUTY, SLACK, People, people_listening

PATIENCE = 60.0


@pytest.fixture
def people() -> Iterator[People]:
    with people_listening() as listening:
        yield listening


def shop(database: str, alerts: dict[str, Any]) -> Inbox:
    inbox = Inbox(database, settings=decode({"work": {"poll": "10ms"}, "alerts": alerts}))
    inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return inbox


@contextlib.asynccontextmanager
async def sending(inbox: Inbox, senders: int = 2) -> AsyncIterator[Context]:
    """So many processes' senders, each with its own store."""
    async with contextlib.AsyncExitStack() as stack:
        contexts = [await stack.enter_async_context(inbox.operating()) for _ in range(senders)]
        tasks = [asyncio.create_task(AlertSender(context).run()) for context in contexts]
        try:
            yield contexts[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str) -> None:
    for _ in range(int(PATIENCE / 0.02)):
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(what)


async def all_sent(context: Context, number: int) -> None:
    """Until so many messages were sent and no other waits to be."""

    async def sent() -> bool:
        totals = await context.store.alert_messages.totals()
        return totals[MessageState.SENT] == number and not totals[MessageState.WAITING]

    await until(sent, f"{number} messages are sent")


# proves R55
@pytest.mark.parametrize("kind", PROVOKED, ids=str)
async def test_each_kind_reaches_slack_and_pagerduty_once(database_url: str, people: People, kind: AlertKind) -> None:
    only = {"only": [kind.value]}
    alerts = people.settings("slack", "pagerduty", signature_failures=5)
    alerts["targets"] = {name: target | only for name, target in alerts["targets"].items()}
    inbox = shop(database_url, alerts)
    async with inbox.opened(handlers=1) as store:
        context = inbox.context(store)
        for target in messages.targets(context)[0]:  # the first look only counts rejections
            await store.alert_looks.look(AlertSender(context).watch(target))
        await PROVOKED[kind](store, inbox.clock)
    async with sending(inbox) as context:
        await all_sent(context, 2)
        await asyncio.sleep(0.5)  # several looks of both senders
        await all_sent(context, 2)
    [text], [trigger] = people.slack, people.triggers
    assert "Next: hookledger " in text
    assert trigger["payload"]["class"] == kind
    assert trigger["payload"]["custom_details"]["text"] in text.replace("&lt;", "<").replace("&gt;", ">")


async def test_a_secret_that_expires_soon_is_told(database_url: str, people: People) -> None:
    inbox = Inbox(database_url, settings=decode({"alerts": people.settings("slack")}))
    soon, later = (datetime.now(UTC) + timedelta(days=days) for days in (13, 15))
    inbox.source("soon", provider="stripe", secrets=[SecretSettings(SECRET, soon)])
    inbox.source("later", provider="stripe", secrets=[SecretSettings(SECRET, later)])
    inbox.source("never", provider="stripe", secrets=[SecretSettings(SECRET, soon), SECRET])
    async with sending(inbox) as context:
        await all_sent(context, 1)
        inbox.clock.offset += 14 * 86400
        await all_sent(context, 3)
    assert "soon: the last secret expires on " in people.slack[0]
    told = sorted(text.splitlines()[0] for text in people.slack[1:])
    assert "later: the last secret expires on" in told[0]
    assert "soon: the last secret expired on" in told[1]
    assert "all deliveries are rejected" in told[1]


async def test_500_failures_are_one_message_from_a_worker(database_url: str, people: People) -> None:
    inbox = shop(database_url, people.settings("slack", "pagerduty", window="1h"))
    site = Site(inbox)

    @inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        raise Permanent("no such plan")

    async with sending(inbox) as context:
        await asyncio.gather(*(site.deliver(stripe_event(f"evt_{n}")) for n in range(500)))
        await site.work()

        async def told() -> bool:
            found = await context.store.alert_messages.page()
            return sum(one.count for one in found if one.target == "slack") == 500

        await until(told, "all are counted")
    await inbox.asgi.stop()
    assert len(people.slack) == 1
    assert list(people.incidents.values()) == [1]
    assert "dead letter" in people.slack[0]


async def test_a_worker_that_drains_sends_before_it_ends(database_url: str, people: People) -> None:
    inbox = shop(database_url, people.settings("slack", interval="1h"))
    site = Site(inbox)

    @inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        if event.type == "in.review":
            raise Review("decide")
        raise Retry("later", after=3600) if event.type == "in.retry" else Permanent("never")

    for number, kind in enumerate(("in.review", "in.retry", "in.failed")):
        await site.deliver(stripe_event(f"evt_{number}", kind))
    await site.work()
    await inbox.asgi.stop()
    titles = sorted(text.splitlines()[0] for text in people.slack)
    assert [title.partition("hookledger: 1 ")[2].partition(":")[0] for title in titles] == [
        "dead letter",
        "event in review",
        "new cause of failure",
    ], titles


async def test_a_target_that_is_down_gets_it_later_and_delays_no_other(database_url: str, people: People) -> None:
    people.answers[PAGERDUTY] = 503
    inbox = shop(database_url, people.settings("slack", "pagerduty"))
    async with sending(inbox) as context:
        await messages.raise_(context, "consistency", "events", "3 rows are lost")
        await until(lambda: people.slack, "Slack has it")

        async def tried() -> bool:
            waiting = await context.store.alert_messages.page(state=MessageState.WAITING)
            return len(waiting) == 1 and bool(waiting[0].attempts and waiting[0].error)

        await until(tried, "PagerDuty was asked, and that Slack has it is recorded")
        [waiting] = await context.store.alert_messages.page(state=MessageState.WAITING)
        assert waiting.error == "127.0.0.1 answered 503"
        del people.answers[PAGERDUTY]
        inbox.clock.offset += 10
        await all_sent(context, 2)
    assert (len(people.slack), len(people.triggers)) == (1, 1)


async def test_a_target_that_hangs_delays_no_other(database_url: str, people: People) -> None:
    people.answers[SLACK] = "hang"
    inbox = shop(database_url, people.settings("slack", "pagerduty", timeout="30s"))
    async with sending(inbox) as context:
        await messages.raise_(context, "consistency", "events", "3 rows are lost")
        await until(lambda: people.triggers and people.to(SLACK), "PagerDuty has it while Slack hangs")
        people.gate.set()


async def test_a_message_that_fails_for_good_is_seen_by_doctor_and_raises_no_alert(
    database_url: str, people: People
) -> None:
    people.answers[SLACK] = 404
    inbox = shop(database_url, people.settings("slack", attempts=2))
    async with sending(inbox) as context:
        await messages.raise_(context, "consistency", "events", "3 rows are lost")

        async def failed() -> bool:
            inbox.clock.offset += 1
            return (await messages.alert_totals(context))[MessageState.FAILED] == 1

        await until(failed, "both attempts failed")
        await asyncio.sleep(0.3)
        assert len(await messages.messages(context)) == 1, "a failed alert raises no alert"
        found = [finding for finding in await examine(context) if finding.about == "alert messages"]
    assert [(one.level, one.says) for one in found] == [
        ("problem", "1 failed within the last day: they reached no person")
    ]


async def test_a_redirect_is_not_followed(database_url: str, people: People) -> None:
    people.answers[SLACK] = 307
    inbox = shop(database_url, people.settings("slack"))
    async with inbox.operating() as context:
        [result] = await messages.test(context)
    assert result.problem == "127.0.0.1 answered 307"
    assert people.redirected == []


async def test_a_webhook_is_signed_and_has_a_stable_id(
    database_url: str, people: People, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = b"0123456789abcdef0123456789abcdef"
    alerts = people.settings("webhook")
    alerts["targets"]["webhook"]["secret"] = f"whsec_{base64.b64encode(key).decode()}"
    people.answers[HOOK] = "hang"
    inbox = shop(database_url, {**alerts, "timeout": "200ms"})
    async with sending(inbox) as context:
        await messages.raise_(context, "consistency", "events", "3 rows are lost")
        await until(lambda: people.posts, "it arrives, and the answer does not")
        del people.answers[HOOK]

        async def later() -> bool:
            inbox.clock.offset += 1
            return len(people.posts) > 1

        await until(later, "it is sent again")
        await all_sent(context, 1)
    first, *_, last = people.posts
    assert first.headers["webhook-id"] == last.headers["webhook-id"]
    for post in (first, last):
        ident, stamp = post.headers["webhook-id"], post.headers["webhook-timestamp"]
        mac = hmac.new(key, f"{ident}.{stamp}.".encode() + post.raw, hashlib.sha256).digest()
        assert post.headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
    assert last.body["type"] == "hookledger.alert.consistency"
    assert last.body["data"]["title"] == "events: 3 rows are lost"
    assert "made-up-hook-secret" not in caplog.text, "a URL may be a secret"


async def test_functions_get_alerts_once_and_again_when_they_raise(database_url: str) -> None:
    inbox = shop(database_url, {"interval": "50ms"})
    got: list[str] = []
    noted: list[Alert] = []

    @inbox.alert(only=["consistency"])
    async def page(alert: Alert) -> None:
        got.append(alert.title)
        if len(got) == 1:
            raise RuntimeError("the pager is off")

    @inbox.alert
    def note(alert: Alert) -> None:
        noted.append(alert)

    async with sending(inbox) as context:
        await messages.raise_(context, "consistency", "events", "3 rows are lost")

        async def called() -> bool:
            inbox.clock.offset += 0.1
            return (await messages.alert_totals(context))[MessageState.SENT] == 2

        await until(called, "both functions were called")
    assert got == ["events: 3 rows are lost"] * 2
    [alert] = noted
    assert (alert.kind, alert.severity, alert.count, alert.inbox) == ("consistency", "critical", 1, "hookledger")


async def test_a_process_without_the_application_leaves_its_functions_alone(database_url: str) -> None:
    inbox, without = shop(database_url, {"interval": "50ms"}), shop(database_url, {"interval": "50ms"})
    got: list[str] = []

    @inbox.alert
    async def page(alert: Alert) -> None:
        got.append(alert.kind)

    async with sending(without), without.operating() as context:
        await messages.raise_(context, "consistency", "events", "3 rows are lost")
        await asyncio.sleep(0.3)
        assert await messages.messages(context) == []
    async with sending(inbox) as context:
        await all_sent(context, 1)
    assert got == ["consistency"]


async def test_apprise_sends_to_the_services_that_it_knows(database_url: str, people: People) -> None:
    pytest.importorskip("apprise")
    url = people.url.replace("http://", "json://") + "/hook"
    inbox = shop(database_url, {"targets": {"team": {"type": "apprise", "url": url}}})
    async with inbox.operating() as context:
        [result] = await messages.test(context)
        assert result.problem is None
        people.answers["/hook"] = 500
        [result] = await messages.test(context, "team")
        assert result.problem is not None
    [post] = people.posts
    assert "alerts reach this target" in post.body["message"]


async def test_a_test_names_each_target_and_what_is_wrong_with_it(database_url: str, people: People) -> None:
    people.answers[PAGERDUTY] = 400
    alerts = people.settings("slack", "pagerduty")
    alerts["targets"]["lost"] = {"type": "slack", "url": "env:NOT_SET_ANYWHERE"}
    inbox = shop(database_url, alerts)
    async with inbox.operating() as context:
        results = {one.target: one.problem for one in await messages.test(context)}
        assert results == {
            "slack": None,
            "pagerduty": "127.0.0.1 answered 400",
            "lost": "the url of [alerts.targets.lost] in environment variable NOT_SET_ANYWHERE is not set: set it "
            "and start again",
        }
        assert await messages.messages(context) == []
        levels = {one.level for one in await examine(context) if one.about == "alert messages"}
    assert levels == {"warn"}


async def test_raise_refuses_what_it_does_not_know(database_url: str, people: People) -> None:
    inbox = shop(database_url, people.settings("slack"))
    async with inbox.operating() as context:
        with pytest.raises(ConfigError, match="unknown kind"):
            await messages.raise_(context, "nonsense", "x", "y")
        with pytest.raises(ConfigError, match="words"):
            await messages.raise_(context, "consistency", "x", " ")
        await messages.raise_(context, "consistency", "x" * 1000, "y" * 1000 + "\0\x1b")
    async with sending(inbox) as context:
        await all_sent(context, 1)
    assert "\x1b" not in people.slack[0]

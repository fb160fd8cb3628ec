"""On whose behalf an event is, and what a retry says of itself: kept, shown and looked for, on both stores."""

from __future__ import annotations

import msgspec

from hookledger import Inbox
from hookledger.model import Arrival, Proof, Request
from hookledger.operate.doctor.checks import webhooks
from hookledger.operate.timeline import timeline
from hookledger.receive.app import arrival
from hookledger.receive.identify import identify
from hookledger.states import DeliveryOutcome
from hookledger.store.ops.filters import Filter
from hookledger.store.protocol import Store
from tests.builders import arrival as made
from tests.builders import delivered, item, record

NOW = 1_763_000_000.0


def inbox() -> Inbox:
    made_up = Inbox()
    made_up.source("slack", provider="slack_events", secrets=["made up for the tests"])
    made_up.source("github", provider="github", secrets=["made up for the tests"])
    return made_up


def received(source: str, content: object, **headers: str) -> Arrival:
    endpoint = inbox().sources[source].endpoint
    pairs = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    request = Request("POST", endpoint.path, b"", pairs, msgspec.json.encode(content))
    proof = Proof("hmac-sha256", "f1ng3r")
    return arrival(endpoint, request, proof, identify(endpoint, request, proof, NOW))


async def test_events_are_found_by_account(store: Store) -> None:
    await record(store, *(delivered(f"evt_{n}", account=f"acct_{n % 2}") for n in range(4)), delivered("evt_none"))
    found = await store.search.events(Filter(account="acct_1"), limit=10)
    assert [(row.key, row.account) for row in found] == [("evt_3", "acct_1"), ("evt_1", "acct_1")]
    assert await store.search.events(Filter(account="acct_1", source="elsewhere"), limit=10) == []
    [none] = await store.search.events(Filter(key="evt_none"), limit=10)
    assert none.account is None


async def test_an_admitted_event_keeps_its_account(store: Store) -> None:
    first = made(item("evt_1", b"1", account="acct_1"), body=b"1")
    other = made(item("evt_1", b"2", account="acct_2"), body=b"2")
    _, odd = await record(store, first, other)
    assert odd.outcome is DeliveryOutcome.CONFLICT
    await store.quarantine.accept(other.id, 0, other.items[0], "ada", "it is another")
    assert {row.account for row in await store.search.events(Filter(), limit=10)} == {"acct_1", "acct_2"}


async def test_a_duplicate_keeps_what_it_says_of_being_a_retry(store: Store) -> None:
    content = {"event_id": "Ev1", "event": {"type": "message", "event_ts": "1763000000.000100"}}
    first, again, third = (
        received("slack", content),
        received("slack", content, x_slack_retry_num="1", x_slack_retry_reason="http_timeout"),
        received("slack", content, x_slack_retry_num="2"),
    )
    event = (await record(store, first))[0].event_id
    assert [one.outcome for one in await record(store, again, third)] == [DeliveryOutcome.DUPLICATE] * 2
    history = await store.history(event)
    assert history is not None
    assert [(row.retry, row.kept) for row in history.deliveries] == [
        (None, True),
        ("1 http_timeout", False),
        ("2", False),
    ]
    words = [entry.words for entry in timeline(history) if entry.kind == "delivery"]
    assert [("retry 1 http_timeout" in line, "retry 2" in line) for line in words] == [
        (False, False),
        (True, False),
        (False, True),
    ]


async def test_two_webhooks_that_feed_one_source_are_told(store: Store) -> None:
    def pushed(number: int, hook: str) -> Arrival:
        content = {"ref": f"refs/heads/{number}", "repository": {"id": 1}}
        named = {"x_github_delivery": f"d{number}", "x_github_event": "push", "x_github_hook_id": hook}
        return received("github", content, **named)

    context = inbox().context(store)
    assert await webhooks(context) == []
    await record(store, pushed(1, "101"), pushed(2, "101"))
    assert await webhooks(context) == []
    await record(store, pushed(3, "202"))
    [finding] = await webhooks(context)
    assert (finding.level, finding.about) == ("warn", "source github")
    assert "101, 202" in finding.says

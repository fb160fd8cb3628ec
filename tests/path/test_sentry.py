"""`sentry_sdk.init()` in the application's module is enough: Sentry gets the first failure of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk

from hookledger import Event, Op, Retry
from tests.asgi_client import Site, stripe_event


@pytest.fixture
def reported() -> Iterator[list[dict[str, Any]]]:
    """The events that Sentry would send."""
    found: list[dict[str, Any]] = []

    def keep(event: Any, hint: Any) -> None:
        found.append(event)

    sentry_sdk.init(dsn="https://key@sentry.invalid/1", before_send=keep)
    try:
        yield found
    finally:
        sentry_sdk.get_global_scope().set_client(None)  # an `init()` would still add headers to every later request


async def test_sentry_gets_the_first_failure_with_the_facts(site: Site, reported: list[dict[str, Any]]) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        raise KeyError("plan")

    @site.inbox.sources["stripe"].on("invoice.void")
    async def void(event: Event) -> None:
        raise ValueError(event.key)

    for number in range(3):
        await site.deliver(stripe_event(f"evt_{number}"), headers=[("X-Request-Id", f"req-{number}")])
        await site.deliver(stripe_event(f"void_{number}", "invoice.void"))
    await site.work()
    assert [event["logentry"]["message"] for event in reported] == ["handler failed"] * 2, "one for each cause"
    by_type = {event["exception"]["values"][-1]["type"]: event for event in reported}
    event = by_type["KeyError"]
    first = (await site.event(event["extra"]["event_key"])).event
    expected = {
        "source": "stripe",
        "event_id": str(first.id),
        "event_type": "invoice.paid",
        "object_id": "in_1",
        "handler": paid.__qualname__,
        "attempt": 1,
        "run": 1,
        "state": "retrying",
        "correlation_id": f"req-{first.key[-1]}",
    }
    assert {name: event["extra"].get(name) for name in expected} == expected
    assert (event["level"], event["logger"]) == ("error", "hookledger.events")
    for name, one in (("paid", event), ("void", by_type["ValueError"])):
        frames = one["exception"]["values"][-1]["stacktrace"]["frames"]
        assert frames[-1]["function"] == name, "Sentry groups by the frames of the handler"
        assert not [frame for frame in frames if frame["module"].startswith("hookledger.")], "not by ours"


async def test_an_outage_or_a_decision_is_no_event_of_sentry(site: Site, reported: list[dict[str, Any]]) -> None:
    @site.inbox.sources["stripe"].on("outage")
    async def outage(event: Event) -> None:
        raise ConnectionError("refused")

    @site.inbox.sources["stripe"].on("decision")
    async def decision(event: Event) -> None:
        raise Retry("not yet")

    for kind in ("outage", "decision"):
        await site.deliver(stripe_event(f"evt_{kind}", kind))
    await site.deliver(stripe_event("forged"), secret="whsec_of_somebody_else")
    await site.work()
    assert {row.state for row in await site.events()} == {"retrying"}
    assert reported == []


async def test_sentry_gets_the_failure_of_an_outbox_effect(site: Site, reported: list[dict[str, Any]]) -> None:
    @site.inbox.effect(repeat="never")
    async def mail(op: Op) -> None:
        raise KeyError("to")

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        await event.later(mail, "k")

    await site.deliver(stripe_event())
    await site.work()
    [event] = reported
    assert (event["logentry"]["message"], event["extra"]["effect"]) == ("effect unknown", "mail")
    assert event["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "mail"

"""Ordered events that wait for their turn, or are held: what operators see of them, and what lets them go."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from hookledger import Event, Inbox, Permanent, Review, State
from hookledger.cli import cli
from hookledger.model import Kind
from hookledger.operate import decide, review, search
from hookledger.operate.audit import by
from hookledger.operate.doctor.checks import examine
from hookledger.operate.replay.replay import preview
from hookledger.store.ops.entities import Held
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

ORDERED: dict[str, Any] = {"ordered": ["*"], "entity": ["data.object.id"], "after_failure": "hold"}
HELD = "held: evt_1 of the same entity is {}; decide about it first"


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made = await site_on(database_url)
    source = made.inbox.source(
        "stripe",
        provider="stripe",
        secrets=[SECRET],
        **ORDERED,
    )

    errors: list[Exception] = [Permanent("no such plan"), Review("which plan?")]

    @source.on("*")
    async def handle(event: Event) -> None:
        if event.key == "evt_1" and not event.approved:
            raise errors.pop(0)
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)

    return made


async def deliver(site: Site, *numbers: int) -> None:
    for number in numbers:
        # The first two in the same second: then the one that arrived first goes first.
        sent = stripe_event(f"evt_{number}", created=1_790_000_000 + number // 3)
        assert (await site.deliver(sent)).status == 202


def command(site: Site, *words: str) -> Any:
    ended = CliRunner().invoke(cli, [*words, "--database", str(site.inbox.database)], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout) if "--json" in words else " ".join(ended.output.split())


async def test_a_held_event_is_shown_counted_and_released(site: Site) -> None:
    await deliver(site, 1, 2, 3)
    await site.work()
    assert [await site.state(f"evt_{n}") for n in (1, 2, 3)] == [State.FAILED, State.PENDING, State.PENDING]
    held = await site.event("evt_2")
    assert held.turn is not None
    assert (held.turn.words, held.held_by) == (HELD.format("failed"), held.turn.held_by)
    assert (await site.event("evt_1")).held_by is None
    async with site.inbox.operating() as context:
        [found] = await context.store.entities.held()
        assert found == Held(Kind("stripe", "invoice.paid"), 2, held.event.received_at)
        assert [one.level for one in await examine(context) if "2 events of type invoice.paid are held" in one.says]
        # A retry that ends in review holds them, too.
        await decide.retry(context, by("ada", "the plan exists"), (await search.find(context, "evt_1")).event)
    await site.work()
    assert await site.state("evt_1") is State.NEEDS_REVIEW
    held = await site.event("evt_3")
    assert held.turn is not None and held.turn.words == HELD.format("needs_review")
    async with site.inbox.operating() as context:
        await review.approve(context, by("ada", "the small one"), (await search.find(context, "evt_1")).event)
    await site.work()
    assert await done(site) == ["evt_1", "evt_2", "evt_3"]
    async with site.inbox.operating() as context:
        assert await context.store.entities.held() == []
        assert (await context.store.consistency.report()).imbalances == ()


async def test_commands_and_previews_say_that_an_event_would_wait(site: Site) -> None:
    await deliver(site, 1, 2)
    await site.work()
    shown = await asyncio.to_thread(command, site, "show", "evt_2")
    assert HELD.format("failed") in shown
    await deliver(site, 3)
    async with site.inbox.operating() as context:
        found = await search.find(context, "evt_3")
        await decide.discard(context, by("ada", "why"), found.event)
        reasons = preview(context, await search.find(context, "evt_3")).reasons
        assert "It runs when it is its turn among the events of in_1." in reasons
        assert f"It would be {HELD.format('failed')}." in reasons
        reasons = preview(context, await search.find(context, "evt_1")).reasons
        assert not any("held" in reason for reason in reasons)
    said = await asyncio.to_thread(command, site, "replay", "evt_3", "--yes", "--reason", "why")
    assert f"It is {HELD.format('failed')}" in said
    said = await asyncio.to_thread(command, site, "retry", "evt_1", "--reason", "the plan exists")
    assert "It is held" not in said and "waits for its turn" not in said
    async with site.inbox.operating() as context:
        await context.store.entities.place_all()
        found = await search.find(context, "evt_2")
        assert found.turn is not None
        assert found.turn.words == "waits for its turn after evt_1, which is pending"


@pytest.mark.parametrize("who", ["worker", "intake"])
async def test_content_that_breaks_its_schema_holds_what_follows(
    site_on: MakeSite, database_url: str, tmp_path: Path, who: Literal["worker", "intake"]
) -> None:
    """Whoever checks it. Corrected and retried, it goes first."""
    schema = tmp_path / "stripe" / "invoice.paid" / "default.json"
    schema.parent.mkdir(parents=True)
    schema.write_text(json.dumps({"properties": {"amount": {"type": "integer"}}}))
    made = await site_on(database_url, {"schemas": {"path": str(tmp_path)}})

    def declare(site: Site) -> list[str]:
        source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], schema_check=who, **ORDERED)
        ran: list[str] = []

        @source.on("*")
        async def handle(event: Event) -> None:
            ran.append(event.key)

        return ran

    ran = declare(made)
    for number, amount in ((1, "a lot"), (2, 5)):
        sent = stripe_event(f"evt_{number}", created=1_790_000_000 + number, amount=amount)
        assert (await made.deliver(sent)).status == 202
    await made.work()
    assert (ran, [await made.state(f"evt_{n}") for n in (1, 2)]) == ([], [State.FAILED, State.PENDING])
    held = await made.event("evt_2")
    assert held.turn is not None
    assert held.turn.words == HELD.format("failed")
    schema.write_text("{}")
    now = Site(Inbox(database_url, settings=made.inbox.settings, clock=made.inbox.clock))
    ran = declare(now)
    async with now.inbox.operating() as context:
        await decide.retry(context, by("ada", "amounts are words"), (await search.find(context, "evt_1")).event)
    await now.work()
    assert ran == ["evt_1", "evt_2"]

"""Events of one entity, through intake and workers: one at a time, by the time that they happened; and waiting."""

from __future__ import annotations

import asyncio
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hookledger import Event, State, Wait
from hookledger.errors import ConfigError
from hookledger.operate.doctor.checks import examine
from hookledger.operate.doctor.trouble import blocked
from hookledger.store.ops import entities
from hookledger.store.postgres.store import PostgresStore
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

ORDERED: Any = {"ordered": ["customer.*"], "entity": ["data.object.customer"]}


def change(number: int, customer: str, at: int, kind: str = "customer.updated") -> dict[str, Any]:
    data = {"object": {"id": f"obj_{number}", "customer": customer}}
    return stripe_event(f"evt_{number}", kind, created=1_700_000_000 + at, data=data)


async def test_events_of_an_entity_never_overlap_and_run_by_time(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)
    running: set[str] = set()
    seen: dict[str, list[int]] = {}
    together = 0

    @stripe.on("customer.*", transaction=False)
    async def handle(event: Event) -> None:
        nonlocal together
        customer = event.json["data"]["object"]["customer"]
        assert customer not in running
        running.add(customer)
        together = max(together, len(running))
        await asyncio.sleep(0.005)
        running.discard(customer)
        seen.setdefault(customer, []).append(event.json["created"])

    sent = [(n, f"cus_{n % 4}", n) for n in range(40)]
    random.Random(1).shuffle(sent)
    for number, customer, at in sent:
        await site.deliver(change(number, customer, at))
    await asyncio.gather(site.work(), site.work())
    assert {customer: sorted(times) for customer, times in seen.items()} == seen
    assert sum(map(len, seen.values())) == 40
    assert together > 1


async def test_an_event_without_its_entity_is_not_ordered(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)

    @stripe.on("customer.*")
    async def handle(event: Event) -> None: ...

    await site.deliver(stripe_event("evt_1", "customer.updated"))
    await site.work()
    found = (await site.event("evt_1")).event
    assert (found.state, found.entity, found.order_at) == (State.PROCESSED, None, None)


# proves R38
@pytest.mark.parametrize("ordered", [True, False])
async def test_updated_before_created_waits_for_it(site_on: MakeSite, database_url: str, ordered: bool) -> None:
    site = await site_on(database_url)
    options = ORDERED if ordered else {"entity": ["data.object.customer"]}
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **options)

    @stripe.on("customer.created")
    async def created(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('created')")

    @stripe.on("customer.updated")
    async def updated(event: Event) -> None:
        if not await event.tx.fetch("SELECT what FROM done WHERE what = 'created'"):
            raise Wait(for_entity=event.json["data"]["object"]["customer"], at_most="1h")
        await event.tx.execute("INSERT INTO done VALUES ('updated')")

    await site.deliver(change(2, "cus_1", 2))
    await site.work()
    waits = (await site.event("evt_2")).event
    assert (waits.state, waits.waits_for, waits.attempts) == (State.RETRYING, "cus_1", 0)
    await site.deliver(change(1, "cus_1", 1, "customer.created"))
    await site.work()
    assert await done(site) == ["created", "updated"]
    assert (await site.event("evt_2")).event.state is State.PROCESSED


# proves R38
async def test_waiting_ends_in_review_within_its_bound(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)

    @stripe.on("customer.updated")
    async def updated(event: Event) -> None:
        raise Wait("no account yet", for_entity="cus_1", at_most="10m")

    await site.deliver(change(2, "cus_1", 2))
    await site.work()
    site.inbox.clock.offset += 301
    await site.work()
    assert (await site.event("evt_2")).event.state is State.RETRYING
    site.inbox.clock.offset += 301
    await site.work()
    found = (await site.event("evt_2")).event
    assert found.state is State.NEEDS_REVIEW
    assert found.reason is not None
    assert found.reason.startswith("no account yet: it waited")


async def test_the_how_to_names_the_customer_also_where_the_object_is_the_customer(
    site_on: MakeSite, sqlite_url: str
) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "order.md"
    [block] = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    rules = tomllib.loads(block)["sources"]["stripe"]
    site = await site_on(sqlite_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET], ordered=rules["ordered"], entity=rules["entity"])
    await site.deliver(stripe_event("evt_1", "customer.updated", data={"object": {"id": "cus_1"}}))
    await site.deliver(change(2, "cus_1", 2, "invoice.paid"))
    assert [(await site.event(key)).event.entity for key in ("evt_1", "evt_2")] == ["cus_1", "cus_1"]


@pytest.mark.parametrize("entity", [True, 1.5, b"cus_1", ["cus_1"], {"id": "cus_1"}])
def test_only_a_text_or_a_number_can_be_waited_for(entity: Any) -> None:
    with pytest.raises(TypeError, match="for_entity must be"):
        Wait(for_entity=entity)


@pytest.mark.parametrize("entity", [None, "", " "])
async def test_an_event_that_does_not_name_what_it_waits_for_goes_to_review(
    site_on: MakeSite, database_url: str, entity: str | None
) -> None:
    """It does not wait for a time only, which would hide that the field is not there."""
    site = await site_on(database_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)

    @stripe.on("customer.updated")
    async def updated(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('half')")
        raise Wait("no account yet", for_entity=entity, at_most="1h")

    await site.deliver(change(2, "cus_1", 2))
    await site.work()
    found = (await site.event("evt_2")).event
    assert (found.state, found.waits_for) == (State.NEEDS_REVIEW, None)
    assert (found.reason or "").startswith("no account yet: for_entity is None or empty")
    assert await done(site) == []


def test_a_wait_without_an_entity_waits_for_a_time() -> None:
    assert (Wait().for_entity, Wait().after) == (None, 60.0)
    assert str(Wait(for_entity=None)) == "waits for an entity"
    with pytest.raises(TypeError, match="at_most needs for_entity"):
        Wait(at_most="1h")


async def test_waiting_needs_entities(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @stripe.on("customer.updated")
    async def updated(event: Event) -> None:
        raise Wait(for_entity="cus_1")

    await site.deliver(change(2, "cus_1", 2))
    await site.work()
    found = (await site.event("evt_2")).event
    assert found.state is State.NEEDS_REVIEW
    assert "set entity or ordered for source stripe" in (found.reason or "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"after_failure": "hold"}, "set ordered, or remove it"),
        ({"ordered": ["a*b"]}, "a \\* may only stand at the end"),
        ({"ordered": ["a"], "entity": ["text:x"]}, "name a field"),
    ],
)
async def test_rules_that_cannot_work(site: Site, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        site.inbox.source("s", provider="stripe", secrets=[SECRET], **options)


async def test_a_locked_event_stops_only_its_own_entity(site_on: MakeSite, postgres_url: str) -> None:
    """An operator's open transaction has it locked, so it cannot be decided which event of its entity is first."""
    site = await site_on(postgres_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)

    @stripe.on("*")
    async def handle(event: Event) -> None: ...

    await site.deliver(change(1, "cus_1", 1))
    async with site.inbox.opened(check=False) as store:
        assert isinstance(store, PostgresStore)
        async with store._opened().bare() as connection, connection.transaction():
            await connection.execute(store.sql.render("SELECT id FROM {schema}.events FOR UPDATE"))
            await site.deliver(change(2, "cus_1", 2, "invoice.paid"))
            for number in (3, 4, 5):
                await site.deliver(change(number, f"cus_{number % 2 + 2}", number))
            worker = asyncio.create_task(site.inbox.work())
            for key in ("evt_2", "evt_3", "evt_4", "evt_5"):  # also the ordered ones of other entities
                while await site.state(key) is not State.PROCESSED:
                    assert not worker.done()
                    await asyncio.sleep(0.05)
            assert await site.state("evt_1") is State.PENDING
        while await site.state("evt_1") is not State.PROCESSED:
            assert not worker.done()
            await asyncio.sleep(0.05)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_doctor_names_a_type_that_blocks_entities(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)
    await site.deliver(change(1, "cus_1", 1, "customer.deleted"))
    await site.deliver(change(2, "cus_1", 2))
    async with site.inbox.operating() as context:
        await context.store.entities.place_all()
        assert await blocked(context) == [], "no worker is alive: another finding"
        await context.store.register("w", [("stripe", "customer.updated")])
        found = [one for one in await examine(context) if "has its turn in 1 entity" in one.says]
        assert [(one.level, one.about, "customer.deleted" in one.says) for one in found] == [
            ("warn", "source stripe", True)
        ]
        await context.store.register("w2", [("stripe", "customer.*")])
        assert await blocked(context) == []


async def test_drain_does_not_end_before_it_is_decided_who_is_first(
    site_on: MakeSite, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events of other entities have changed than one look takes: an operator discarded them."""
    monkeypatch.setattr(entities, "BATCH", 1)
    monkeypatch.setattr(entities, "ROUNDS", 1)
    site = await site_on(database_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **ORDERED)

    @stripe.on("customer.*")
    async def handle(event: Event) -> None: ...

    for number in range(3):
        await site.deliver(change(number, f"cus_{number}", number))
    async with site.inbox.opened(check=False) as store:
        for number in range(2):
            found = (await site.event(f"evt_{number}")).event
            await store.discard(found.id, State.PENDING, "ada", "a mistake")
    await site.work()
    assert await site.state("evt_2") is State.PROCESSED

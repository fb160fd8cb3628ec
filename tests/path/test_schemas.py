"""Content that breaks its schema: a dead letter before the handler, or refused at intake where the source says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from hookledger import ConfigError, Event, Inbox, State, Statements, SyncEvent, SyncStatements
from hookledger.errors import SchemaBreak
from hookledger.operate import rejections, search
from hookledger.operate.audit import by
from hookledger.operate.replay.dry_run import DryRunReport
from hookledger.schemas.typed import Body
from hookledger.states import DeliveryOutcome
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

INVOICE = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {
            "properties": {
                "object": {
                    "required": ["amount"],
                    "properties": {
                        "amount": {"type": "integer"},
                        "lines": {"items": {"properties": {"price": {"type": "integer"}}}},
                    },
                }
            }
        }
    },
}
NAME = "stripe/invoice.paid/default.json"
SECRETIVE = "ada@example.com"


def invoice(ident: str = "evt_1", **fields: Any) -> dict[str, Any]:
    return stripe_event(ident, data={"object": {"id": "in_1", **fields}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "of-schemas"
    write(root, NAME, INVOICE)
    return root


def write(root: Path, name: str, document: Any) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(document))


async def site_with(site_on: MakeSite, database: str, folder: Path, **options: Any) -> Site:
    site = await site_on(database, {"schemas": {"path": str(folder)}})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **options)

    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute(f"INSERT INTO done VALUES ('{event.key}')")

    return site


# proves R40
async def test_a_break_is_a_dead_letter_and_its_handler_does_not_run(
    site_on: MakeSite, database_url: str, folder: Path
) -> None:
    site = await site_with(site_on, database_url, folder)
    assert (await site.deliver(invoice("evt_1", amount=1, more=SECRETIVE))).status == 202
    for number, lines in enumerate(([{"price": SECRETIVE}], [{"price": 1}, {"price": SECRETIVE}]), 2):
        assert (await site.deliver(invoice(f"evt_{number}", amount=1, lines=lines))).status == 202
    await site.deliver(invoice("evt_4", amount=SECRETIVE))
    await site.deliver(stripe_event("evt_5", kind="invoice.other"))
    await site.work()
    assert await done(site) == ["evt_1", "evt_5"]
    history = await site.event("evt_3")
    broken = history.event
    assert broken.state is State.FAILED
    assert broken.attempts == 1, "it is not tried again"
    words = "/data/object/lines/1/price: expected integer, found a string of 15 characters"
    assert broken.reason == f"schema break in {NAME} at {words}"
    assert broken.error == f"breaks of {NAME}:\n{words}"
    assert [attempt.outcome for attempt in history.attempts] == ["failed"]
    async with site.inbox.operating() as context:
        groups = await search.failures(context)
    assert {group.cause: group.count for group in groups} == {
        f"schema break in {NAME} at /data/object/lines/*/price": 2,
        f"schema break in {NAME} at /data/object/amount": 1,
    }
    assert SECRETIVE not in repr([(await site.event(f"evt_{number}")).event for number in (2, 3, 4)])


@pytest.mark.parametrize("where", ["worker", "intake"])
async def test_each_version_has_its_schema(
    site_on: MakeSite, database_url: str, folder: Path, where: Literal["worker", "intake"]
) -> None:
    """And every other version, or an event without one, the default schema."""
    write(folder, "stripe/invoice.paid/2024-06-20.json", {"required": ["new"]})
    site = await site_with(site_on, database_url, folder, version="contract", schema_check=where)
    for key, version, content in (
        ("new", "2024-06-20", {**invoice("new"), "new": 1}),
        ("not new", "2024-06-20", invoice("not new", amount=1)),
        ("old", "2023-10-16", invoice("old", amount=1)),
        ("not old", None, {**invoice("not old"), "new": 1}),
    ):
        await site.deliver({**content, "id": key, "api_version": version})
    await site.work()
    assert await done(site) == ["new", "old"]
    causes = {key: (await site.event(key)).event.cause for key in ("not new", "not old")}
    assert causes == {
        "not new": "schema break in stripe/invoice.paid/2024-06-20.json at /new",
        "not old": f"schema break in {NAME} at /data/object/amount",
    }


async def test_one_broken_event_of_a_batch_fails_alone(site_on: MakeSite, database_url: str, folder: Path) -> None:
    site = await site_on(database_url, {"schemas": {"path": str(folder)}})
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    transactions: list[int] = []

    @source.on("invoice.paid", batch=10)
    async def handle(event: Event) -> None:
        transactions.append(id(event.tx._tx))  # type: ignore[attr-defined]
        await event.tx.execute(f"INSERT INTO done VALUES ('{event.key}')")

    for number in range(5):
        await site.deliver(invoice(f"evt_{number}", amount="x" if number == 2 else number))
    await site.work()
    assert await done(site) == ["evt_0", "evt_1", "evt_3", "evt_4"]
    assert len(set(transactions)) == 1, "the others stayed in one transaction"
    assert await site.state("evt_2") is State.FAILED


async def test_a_corrected_schema_lets_a_dead_letter_pass(site_on: MakeSite, database_url: str, folder: Path) -> None:
    site = await site_with(site_on, database_url, folder)
    await site.deliver(invoice(amount="12"))
    await site.work()
    event = (await site.event("evt_1")).event
    async with site.inbox.opened() as store:
        await store.retry(event.id, State.FAILED, "ada", "the schema is corrected")
    await site.work()
    assert await site.state("evt_1") is State.FAILED, "it is not corrected"
    write(folder, NAME, True)
    again = await site_with_same_database(site, folder)
    async with again.inbox.opened() as store:
        await store.retry(event.id, State.FAILED, "ada", "now it is")
    await again.work()
    assert await done(again) == ["evt_1"]


async def site_with_same_database(site: Site, folder: Path) -> Site:
    inbox = Inbox(site.inbox.database, settings=site.inbox.settings, schemas=folder)
    source = inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @source.on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute(f"INSERT INTO done VALUES ('{event.key}')")

    return Site(inbox)


async def test_a_dry_run_and_a_replay_check_too(site_on: MakeSite, database_url: str, folder: Path) -> None:
    write(folder, NAME, True)
    site = await site_with(site_on, database_url, folder)
    await site.deliver(invoice(amount="12"))
    await site.work()
    assert await done(site) == ["evt_1"]
    write(folder, NAME, INVOICE)
    later = await site_with_same_database(site, folder)
    async with later.inbox.opened(handlers=1) as store:
        history = await search.find(later.inbox.context(store), "evt_1")
        report: DryRunReport = await later.inbox.dry_run(store).run(history)
    assert (report.state, report.succeeds) == (State.FAILED, False)
    assert report.reason is not None
    assert report.reason.startswith(f"schema break in {NAME} at /data/object/amount: ")
    async with later.inbox.opened() as store:
        await store.replay(history.event.id, State.PROCESSED, "ada", "again")
    await later.work()
    assert await later.state("evt_1") is State.FAILED
    assert await done(later) == ["evt_1"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{"id":"in_1","amount":1e400}}}',
        b'{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{"id":"in_1","amount":"\\u0000"}}}',
        b'{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{"amount":1,"amount":"\\ud800"}}}',
        b'{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{"amount":NaN}}}',
        b'{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{"amount":1,"x":'
        + b"[" * 100
        + b"]" * 100
        + b"}}}",
        b'{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{"amount":' + b"9" * 4000 + b"}}}",
    ],
)
async def test_hostile_content_ends_in_a_state(
    site_on: MakeSite, database_url: str, folder: Path, body: bytes
) -> None:
    site = await site_with(site_on, database_url, folder)
    assert (await site.deliver(body)).status == 202
    await site.work()
    [event] = await site.events()
    assert event.state in (State.PROCESSED, State.FAILED)
    assert event.attempts <= 1


async def test_a_wrong_schema_stops_workers_and_where_it_checks_the_receiver(
    site_on: MakeSite, sqlite_url: str, folder: Path
) -> None:
    write(folder, NAME, {"type": "strnig"})
    site = await site_with(site_on, sqlite_url, folder)
    await site.deliver(invoice())
    with pytest.raises(ConfigError, match=r"of-schemas/stripe/invoice\.paid/default\.json at /type"):
        await site.work()
    at_intake = Inbox(sqlite_url, schemas=folder)
    at_intake.source("stripe", provider="stripe", secrets=[SECRET], schema_check="intake")
    with pytest.raises(ConfigError, match=r"default\.json at /type"):
        await at_intake.asgi.start()


# ── at intake ──


async def test_at_intake_a_break_is_recorded_as_a_dead_letter(
    site_on: MakeSite, database_url: str, folder: Path
) -> None:
    site = await site_with(site_on, database_url, folder, schema_check="intake")
    assert (await site.deliver(invoice(amount=SECRETIVE))).status == 202
    broken = (await site.event("evt_1")).event
    assert (broken.state, broken.attempts) == (State.FAILED, 0)
    words = "/data/object/amount: expected integer, found a string of 15 characters"
    assert broken.reason == f"schema break in {NAME} at {words}"
    assert broken.cause == f"schema break in {NAME} at /data/object/amount"
    assert (await site.deliver(invoice(amount=SECRETIVE))).json["status"] == DeliveryOutcome.DUPLICATE
    await site.deliver(invoice("evt_3", amount=1, lines=[{"price": 1}, {"price": "1"}]))
    assert (await site.event("evt_3")).event.cause == f"schema break in {NAME} at /data/object/lines/*/price"
    assert (await site.deliver(invoice("evt_2", amount=1))).status == 202
    await site.work()
    assert await done(site) == ["evt_2"]
    async with site.inbox.opened() as store:
        await store.retry(broken.id, State.FAILED, "ada", "try")
    await site.work()
    assert await done(site) == ["evt_2"], "the worker checks it again"


async def test_a_break_has_the_same_cause_at_intake_as_in_a_worker(
    site_on: MakeSite, database_url: str, folder: Path
) -> None:
    nested: Any = {"type": "integer"}
    content: Any = "1"
    for name in ("paid at the desk", "x" * 120, "y" * 120):
        nested, content = {"properties": {name: nested}}, {name: content}
    write(folder, NAME, {"properties": {"data": nested}})
    site = await site_with(site_on, database_url, folder, schema_check="intake")
    await site.deliver(stripe_event(data=content))
    at_intake = (await site.event("evt_1")).event
    async with site.inbox.opened() as store:
        await store.retry(at_intake.id, State.FAILED, "ada", "try")
    await site.work()
    assert (await site.event("evt_1")).event.cause == at_intake.cause


# proves R75
async def test_a_source_may_refuse_content_that_breaks_its_schema_or_is_unreadable(
    site_on: MakeSite, database_url: str, folder: Path
) -> None:
    site = await site_with(site_on, database_url, folder, schema_check="intake", schema_break="refuse")
    for content, reason in ((invoice(amount="x"), "schema_break"), (b"{", "content_unreadable")):
        answer = await site.deliver(content)
        assert (answer.status, answer.json) == (400, {"error": reason})
    assert await site.events() == []
    assert dict(site.inbox.asgi.rejected) == {"schema_break": 1, "content_unreadable": 1}
    assert (await site.deliver(invoice(amount=1))).status == 202
    assert (await site.deliver(stripe_event("evt_2", kind="invoice.other"))).status == 202


async def test_without_the_rule_unreadable_content_is_kept(
    site_on: MakeSite, database_url: str, folder: Path
) -> None:
    site = await site_with(site_on, database_url, folder, schema_check="intake")
    assert (await site.deliver(b"{")).status == 202
    [event] = await site.events()
    assert event.state is State.FAILED


def test_refusing_needs_a_check_at_intake() -> None:
    with pytest.raises(ConfigError, match='needs schema_check = "intake"'):
        Inbox().source("stripe", provider="stripe", secrets=[SECRET], schema_break="refuse")


# ── body= ──


class Object(msgspec.Struct):
    id: str
    amount: int


class Data(msgspec.Struct):
    object: Object


class Invoice(msgspec.Struct):
    id: str
    data: Data


@dataclass
class AsDataclass:
    id: str
    data: Data


class AsDict(TypedDict):
    id: str
    data: Data


class Model(pydantic.BaseModel):
    class Inner(pydantic.BaseModel):
        class Object(pydantic.BaseModel):
            id: str
            amount: int

        object: Object

    id: str
    data: Inner


@pytest.mark.parametrize("kind", [Invoice, AsDataclass, AsDict, Model])
async def test_a_handler_gets_content_of_its_type(
    site_on: MakeSite, database_url: str, kind: type[Any], tmp_path: Path
) -> None:
    site = await site_on(database_url)
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    seen: list[Any] = []

    @source.on("invoice.paid", body=kind)
    async def handle(event: Event[Statements, Any]) -> None:
        data = event.content["data"] if kind is AsDict else event.content.data
        assert isinstance(event.content, dict if kind is AsDict else kind)
        await event.tx.execute(f"INSERT INTO done VALUES ('{data.object.amount}')")
        seen.append(event.json["id"])

    await site.deliver(invoice(amount=12, more=1))
    await site.deliver(invoice("evt_2", amount={SECRETIVE: SECRETIVE}))
    await site.deliver(invoice("evt_3"))
    await site.work()
    assert await done(site) == ["12"]
    assert seen == ["evt_1"]
    broken = (await site.event("evt_2")).event
    assert broken.state is State.FAILED
    assert broken.reason is not None
    begin = f"schema break in body {kind.__qualname__} at /data/object/amount: expected "
    assert broken.reason.startswith(begin)
    assert broken.reason.endswith("found an object of 1 field") or kind is not Model
    assert SECRETIVE not in repr(broken)
    assert (await site.event("evt_3")).event.reason == f"{begin}a value, found nothing"


async def test_a_plain_function_gets_it_too(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @source.on("invoice.paid", body=Invoice)
    def handle(event: SyncEvent[SyncStatements, Invoice]) -> None:
        event.tx.execute(f"INSERT INTO done VALUES ('{event.content.data.object.amount}')")

    @source.on("*")
    def other(event: SyncEvent) -> None:
        event.tx.execute(f"INSERT INTO done VALUES ('{event.content['type']}')")

    await site.deliver(invoice(amount=12))
    await site.deliver(stripe_event("evt_2", kind="invoice.other"))
    await site.work()
    assert await done(site) == ["12", "invoice.other"]


def test_a_type_that_content_cannot_become_is_refused_where_it_is_declared() -> None:
    source = Inbox().source("stripe", provider="stripe", secrets=[SECRET])

    class Wrong(msgspec.Struct):
        at: Path

    for kind, why in ((int, "body= takes a msgspec Struct"), (Wrong, "body=.*Wrong: ")):
        with pytest.raises(ConfigError, match=f"source 'stripe': {why}"):
            source.on("invoice.paid", body=kind)


@pydantic.dataclasses.dataclass
class Positive:
    amount: Annotated[int, pydantic.Field(gt=0)]


class WithHook(pydantic.BaseModel):
    amount: int
    hook: Callable[[], int] | None = None


class Unfinished(pydantic.BaseModel):
    amount: Nowhere  # type: ignore[name-defined]  # noqa: F821


def test_a_pydantic_type_is_checked_as_pydantic_does() -> None:
    """Its dataclasses have validators, too, and JSON Schema cannot describe each of its models."""
    assert Body(Positive)({"amount": 1}) == Positive(1)
    with pytest.raises(SchemaBreak, match="at /amount: expected no greater_than error of pydantic"):
        Body(Positive)({"amount": 0})
    assert Body(WithHook)({"amount": 1}) == WithHook(amount=1)
    with pytest.raises(SchemaBreak, match="at /amount: expected no int_parsing error of pydantic"):
        Body(WithHook)({"amount": SECRETIVE})
    with pytest.raises(ConfigError, match="body=Unfinished: "):
        Body(Unfinished)


class Booked(msgspec.Struct):
    at: datetime


def test_a_lone_surrogate_in_what_a_type_reads_is_a_break() -> None:
    with pytest.raises(SchemaBreak, match="body Booked at /: expected text without lone surrogates"):
        Body(Booked)({"at": "\ud800"})


class Amount(msgspec.Struct):
    data: dict[str, Any]

    def __post_init__(self) -> None:
        raise ValueError(f"no such person: {self.data}")


async def test_what_a_type_says_itself_is_not_stored(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @source.on("*", body=Amount)
    async def handle(event: Event[Statements, Amount]) -> None: ...

    await site.deliver(invoice(owner=SECRETIVE))
    await site.work()
    broken = (await site.event("evt_1")).event
    assert (
        broken.reason
        == "schema break in body Amount at /: expected what its type allows, found an object of 4 fields"
    )
    assert SECRETIVE not in repr(broken)


async def test_what_was_refused_can_be_accepted_later(site_on: MakeSite, database_url: str, folder: Path) -> None:
    site = await site_with(site_on, database_url, folder, schema_check="intake", schema_break="refuse")
    assert (await site.deliver(invoice(amount="12"))).status == 400
    await site.inbox.asgi.stop()
    write(folder, NAME, True)
    later = await site_with_same_database(site, folder)
    async with later.inbox.operating() as context:
        [accepted] = await rejections.accept(context, by("ada", "the schema is corrected"), "stripe")
    assert accepted.reason == "schema_break"
    await later.work()
    assert await done(later) == ["evt_1"]

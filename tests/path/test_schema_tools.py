"""Schemas from stored events: drafted, tried and compared, on both stores, whatever senders name their fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hookledger.errors import WrongState
from hookledger.operate.schemas import check, drift, infer
from hookledger.operate.schemas.drift import FieldWatch
from hookledger.schemas.compiled import Schema
from hookledger.schemas.shape import MAX_NODES, Draft, fields, is_name
from hookledger.store.history import EventRow
from hookledger.store.ops.schema_fields import MOST, MOST_OF_TYPE, SchemaField
from tests.asgi_client import Site, stripe_event
from tests.builders import recorded
from tests.path.conftest import SECRET, MakeSite

KIND = "invoice.paid"


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    site = await site_on(database_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return site


async def send(site: Site, ident: str, kind: str = KIND, **given: Any) -> None:
    assert (await site.deliver(stripe_event(ident, kind, data={"object": {"id": "in_1", **given}}))).status == 202


def objects(document: Any) -> Any:
    return document["properties"]["data"]["properties"]["object"]


# ── infer ──


async def test_a_draft_fits_what_it_was_drafted_from_and_has_no_values(site: Site) -> None:
    await send(site, "evt_1", amount=1, owner=None, lines=[{"price": 1}, {"price": 1.5, "tax": True}])
    await send(site, "evt_2", amount=2, owner="ada@example.com", metadata={"cus_12345": "x"}, lines=[])
    await site.deliver(b"{")
    async with site.inbox.operating() as context:
        drafted = await infer.infer(context, "stripe", KIND, last=100)
        with pytest.raises(WrongState, match="has content"):
            await infer.infer(context, "stripe", "invoice.none", last=100)
        one = await infer.infer(context, "stripe", KIND, last=1)
    assert drafted.events == 2
    assert one.events == 1
    found = objects(drafted.document)
    assert found["required"] == ["amount", "id", "lines", "owner"]
    assert found["properties"]["owner"] == {"type": ["null", "string"]}
    assert found["properties"]["metadata"] == {"type": "object", "additionalProperties": {"type": "string"}}
    price = {"price": {"type": "number"}, "tax": {"type": "boolean"}}
    assert found["properties"]["lines"]["items"] == {"type": "object", "required": ["price"], "properties": price}
    assert "ada@" not in json.dumps(drafted.document)
    schema = Schema("draft", drafted.document)
    assert not schema.check(
        stripe_event(data={"object": {"id": "x", "amount": 3, "owner": None, "lines": [], "new": 1}})
    )
    assert schema.check(stripe_event(data={"object": {"id": "x", "amount": "3", "lines": []}}))


async def test_a_version_is_drafted_and_tried_on_its_own_events(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET], version="contract")
    for version, amount in (("2023-10-16", "1"), ("2024-06-20", 2)):
        content = {"object": {"id": "in_1", "amount": amount}}
        await site.deliver(stripe_event(f"evt_{version}", KIND, api_version=version, data=content))
    async with site.inbox.operating() as context:
        drafted = await infer.infer(context, "stripe", KIND, last=100, version="2024-06-20")
        with pytest.raises(WrongState, match="the version '2025-01-01' has content"):
            await infer.infer(context, "stripe", KIND, last=100, version="2025-01-01")
        schema = Schema("draft", drafted.document)
        report = await check.check(context, "stripe", KIND, lambda event: schema, last=100, version="2024-*")
        of_all = await check.check(context, "stripe", KIND, lambda event: schema, last=100)
    assert (drafted.events, objects(drafted.document)["properties"]["amount"]) == (1, {"type": "integer"})
    assert (report.fitting, report.broken) == (1, 0)
    assert (of_all.fitting, of_all.broken) == (1, 1)


def hostile() -> Any:
    return {
        "wide": {f"field_{chr(97 + n % 26)}{chr(97 + n // 26)}": n for n in range(600)},
        "ada@example.com": 1,
        "4111111111111111": 1,
        "\0": 1,
        "x" * 5000: 1,
        "a/b~c": 1,
        "deep": json.loads('{"a":' * 100 + "1" + "}" * 100),
        "long": list(range(10_000)),
    }


def test_a_draft_fits_the_last_item_of_a_long_array() -> None:
    draft, content = Draft(), {"lines": [{"price": 1, "tax": 2}] * 200 + [{"price": None}]}
    draft.add(content)
    assert not Schema("draft", draft.document("order of shop")).check(content)


def test_hostile_names_make_no_large_draft_and_are_not_in_it() -> None:
    draft = Draft()
    for _ in range(3):
        draft.add(hostile())
    document = draft.document("t")
    text = json.dumps(document)
    assert len(text) < 20_000
    assert not any(name in text for name in ("ada@", "4111", "xxxxx", "field_a", "\\u0000"))
    assert not Schema("draft", document).check(hostile())
    growing = Draft()
    for number in range(200):
        growing.add({f"a{chr(97 + n % 26)}{chr(97 + n // 26)}_{chr(97 + number % 26)}": {"x": 1} for n in range(90)})
    assert len(json.dumps(growing.document("t"))) < 100_000


@pytest.mark.parametrize(
    "name", ["id", "first_name", "first-name", "api.version", "@context", "$type", "line1", "v2"]
)
def test_declared_names_stay(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["cus_9f3aa1", "2024-01-01", "ada@example.com", "a b", "", "x" * 60, "+49301", "\0"])
def test_names_that_may_be_values_are_folded(name: str) -> None:
    assert not is_name(name)
    assert {one.field for one in fields({name: 1})} == {"/", "/*"}


# ── check ──


async def test_schemas_are_tried_on_stored_events(site: Site) -> None:
    for number in range(6):
        await send(site, f"evt_{number}", amount="x" if number in (1, 4) else number)
    await send(site, "evt_other", "invoice.other")
    schema = Schema(
        "stripe/invoice.paid/default.json",
        {"properties": {"data": {"properties": {"object": {"properties": {"amount": {"type": "integer"}}}}}}},
    )

    def find(event: EventRow) -> Schema | None:
        return schema if event.type == KIND else None

    async with site.inbox.operating() as context:
        whole = await check.check(context, "stripe", None, find, last=100)
        assert (whole.looked_at, whole.fitting, whole.broken, whole.without_schema) == (7, 4, 2, 1)
        assert whole.next is None
        [group] = whole.groups
        assert group.cause == "schema break in stripe/invoice.paid/default.json at /data/object/amount"
        assert (group.expected, group.found, group.count) == ("integer", "a string of 1 character", 2)
        assert [(await context.store.find(str(ident)))[0] for ident in group.sample] == group.sample
        found, before, rounds = 0, None, 0
        while True:
            part = await check.check(context, "stripe", None, find, last=2, before=before)
            found, before, rounds = found + part.broken, part.next, rounds + 1
            if before is None:
                break
        assert (found, rounds) == (2, 4), "it goes on where it stopped"


# ── drift ──


async def test_new_fields_and_types_are_seen_once_with_their_first_event(site: Site) -> None:
    await send(site, "evt_1", amount=1)
    await send(site, "evt_2", amount=2, note="ada@example.com")
    site.inbox.clock.offset += 60
    async with site.inbox.operating() as context:
        assert await drift.look(context, "stripe") > 0
        assert await drift.look(context, "stripe") == 0
        first = await drift.drift(context, "stripe")
        assert {one.new for one in first.fields} == {"type", "field"}
        [note] = [one for one in first.fields if one.field == "/data/object/note"]
        assert (note.kind, note.new) == ("string", "field")
        assert note.event_id == str((await site.event("evt_2")).event.id)
        assert "ada@" not in repr(first)
    await send(site, "evt_3", amount="3")
    await send(site, "evt_4", "invoice.new")
    site.inbox.clock.offset += 60
    async with site.inbox.operating() as context:
        await drift.look(context, "stripe")
        second = await drift.drift(context, "stripe")
    fresh = {(one.type, one.field, one.kind): one.new for one in second.fields if one not in first.fields}
    assert fresh.pop((KIND, "/data/object/amount", "string")) == "kind"
    assert {key[0] for key in fresh} == {"invoice.new"}
    assert set(fresh.values()) == {"type"}


async def test_several_workers_may_look_at_the_same_events(site: Site) -> None:
    await send(site, "evt_1", amount=1)
    site.inbox.clock.offset += 60
    async with site.inbox.operating() as context, site.inbox.operating() as other:
        await FieldWatch(context).round()
        known = await context.store.schema_fields.fields("stripe")
        await FieldWatch(other).round()
        assert await other.store.schema_fields.fields("stripe") == known
        look = await context.store.schema_fields.look("stripe")
        assert look is not None
        again = [SchemaField(KIND, "/new", "string", known[0].first_at, known[0].event_id)]
        assert await other.store.schema_fields.note("stripe", look.last_id, again) == 0, (
            "another process has looked as far"
        )


async def test_the_newest_events_are_left_for_the_next_look(site: Site) -> None:
    await send(site, "evt_1", amount=1)
    async with site.inbox.operating() as context:
        assert await drift.look(context, "stripe") == 0
        assert (await drift.drift(context, "stripe")).looked_at is None


async def test_hostile_names_fill_no_more_than_their_room(site: Site) -> None:
    async with site.inbox.operating() as context:
        store, at = context.store, await context.store.rates.now()
        upto = await recorded(store, "evt_1")

        def seen(kind: str, count: int) -> list[SchemaField]:
            return [SchemaField(kind, f"/a{number}", "string", at, upto) for number in range(count)]

        assert await store.schema_fields.note("stripe", upto, seen("a", 10_000)) == MOST_OF_TYPE
        for number in range(10):
            upto = await recorded(store, f"more_{number}")
            await store.schema_fields.note("stripe", upto, seen(f"type_{number}", 10_000))
        found = await drift.drift(context, "stripe")
        assert len(found.fields) == MOST
        assert found.full_at is not None
        assert await store.schema_fields.fields("other") == []


def test_one_content_has_a_limited_number_of_places() -> None:
    assert len(fields(hostile())) < 100
    assert len(fields([[[[list(range(100))] * 100] * 100] * 100])) <= MAX_NODES
    assert all(len(one.field) < 400 for one in fields(json.loads(('{"' + "n" * 40 + '":') * 100 + "1" + "}" * 100)))

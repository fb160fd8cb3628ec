"""Keys from elsewhere beside those of this inbox: compared without a trace, and imported as the intake makes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from hookledger import Inbox
from hookledger.model import Proof, Recorded, Request
from hookledger.operate.keys import cutover
from hookledger.operate.keys.cutover import PAGE, Comparison, KeyRule, compare
from hookledger.receive.app import arrival
from hookledger.receive.identify import identify
from hookledger.states import DeliveryOutcome, KeyOrigin
from hookledger.store.ops.imported_keys import Imported
from hookledger.store.protocol import Store
from tests.builders import SOURCE, Raw, delivered, item, record, recorded
from tests.builders import arrival as arrived

SECRET = "whsec_made_up_for_the_tests"
PROOF = Proof("hmac-sha256", "f1ng3r")


def inbox(*key: str) -> Inbox:
    made = Inbox()
    made.source(SOURCE, provider="stripe", secrets=[SECRET], key=key or None)
    return made


async def compared(store: Store, *batches: Sequence[Sequence[object]], key: Sequence[str] = ()) -> Comparison:
    """With keys as they stand in another table, a row each."""
    context = inbox(*key).context(store)
    rule = KeyRule(context.sources.endpoint(SOURCE))

    async def parts() -> AsyncIterator[list[tuple[bytes, ...]]]:
        for batch in batches:
            yield [made for row in batch if (made := rule.parts(row)) is not None]

    return await compare(context, rule, parts())


async def test_only_keys_are_compared(store: Store) -> None:
    """What is known by its content, its arrival or an operator's word could be in no other table."""
    await recorded(store, "evt_1")
    await recorded(store, "evt_2")
    others = {KeyOrigin.DIGEST: "sha256:00", KeyOrigin.ARRIVAL: "arrival:1", KeyOrigin.QUARANTINE: "evt_1~2"}
    for number, (origin, key) in enumerate(others.items()):
        content = item(key, b"%d" % number)
        await record(store, arrived(msgspec.structs.replace(content, key_origin=origin)))
    found = await compared(store, [["evt_2"], ["evt_3"]])
    assert found == Comparison(2, 1, 1, ("evt_3",), 2, 1, ("evt_1",))


async def test_nothing_is_written(store: Store, raw: Raw) -> None:
    await recorded(store, "evt_1")
    before = [await raw.all(table) for table in ("identities", "events", "actions", "deliveries")]
    await compared(store, [["evt_1"], ["evt_2"]])
    assert [await raw.all(table) for table in ("identities", "events", "actions", "deliveries")] == before


async def test_more_events_than_are_looked_at_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    many = PAGE + 7
    await record(store, *(delivered(f"evt_{n}") for n in range(many)))
    await recorded(store, "evt_0", source="github")
    theirs = [[f"evt_{n}"] for n in range(0, many, 2)]
    half = len(theirs)
    found = await compared(store, theirs[:300], [*theirs[200:], ["evt_1"], ["absent"]])
    assert (found.given, found.known, found.missing, found.missing_sample) == (half + 2, half + 1, 1, ("absent",))
    assert (found.events, found.extra) == (many, many - half - 1)
    newest = [f"evt_{n}" for n in range(many - 1, 0, -1) if n % 2][:5]
    assert list(found.extra_sample) == newest, "a few, the newest"
    monkeypatch.setattr(cutover, "MOST", PAGE)
    assert (await compared(store, theirs)).events == PAGE, "it ends somewhere"


async def test_the_first_few_that_are_missing(store: Store) -> None:
    found = await compared(store, [["a"], ["b"], ["a"]], [["c"], ["b"], ["d"]], [["e"], ["f"], ["g"]])
    assert found == Comparison(7, 0, 7, ("a", "b", "c", "d", "e"), 0, 0, ())


async def test_a_key_with_fixed_words(store: Store) -> None:
    """The words are the source's own: nobody has them in a table."""
    key = ("text:billing", "body:data.object.id", "text:stage-2", "body:type")
    made = inbox(*key)
    rule = KeyRule(made.examiner.endpoint(SOURCE))
    assert rule.wanted == ("body:data.object.id", "body:type")
    parts = rule.parts(["in_1", "paid"])
    assert parts == (b"billing", b"in_1", b"stage-2", b"paid")
    assert rule.parts(["in_1"]) is rule.parts(["in_1", " "]) is rule.parts([None, "paid"]) is None
    done = await store.imported_keys.import_keys(SOURCE, [rule.identity(parts)], "ada", "from the old table")
    assert done == Imported(1, 1, 0)

    endpoint, outcomes = made.sources[SOURCE].endpoint, []
    for object_id in ("in_1", "in_2"):
        body = json.dumps({"id": "evt_1", "type": "paid", "data": {"object": {"id": object_id}}}).encode()
        request = Request("POST", "/stripe", b"", (), body)
        items = identify(endpoint, request, PROOF, 1_763_000_000.0)
        verdicts: list[Recorded] = await record(store, arrival(endpoint, request, PROOF, items))
        outcomes += [verdict.outcome for verdict in verdicts]
    assert outcomes == [DeliveryOutcome.DUPLICATE, DeliveryOutcome.ACCEPTED]
    found = await compared(store, [["in_1", "paid"], ["in_3", "paid"]], key=key)
    assert (found.known, found.missing_sample) == (1, ("billing:in_3:stage-2:paid",))
    assert (found.events, found.extra_sample) == (1, ("billing:in_2:stage-2:paid",))


async def test_keys_that_only_look_alike(store: Store) -> None:
    found = await compared(store, [["a:b", "c"], ["a", "b:c"]], key=("body:id", "body:type"))
    assert (found.given, found.missing) == (2, 2)

"""A provider's log beside the inbox: what is missing goes in once, whoever else brings it, and whatever crashes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hookledger import Changed, Inbox, Listed, ReconcileSettings, Seconds
from hookledger.clock import Clock
from hookledger.errors import BadData, ConfigError, ListingFailed, WrongState
from hookledger.model import REPAIR, Arrival, Kind, Proof, Recorded, Request
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.maintenance import schedule
from hookledger.operate.reconcile import reconcile as operate
from hookledger.operate.reconcile.compare import MOST, Comparison
from hookledger.operate.reconcile.plan import Window
from hookledger.operate.reconcile.reconcile import LEASE
from hookledger.operate.reconcile.repair import repair as repair_object
from hookledger.operate.reconcile.repair import repair_event
from hookledger.providers.listing.base import Content
from hookledger.receive.app import arrival as as_delivered
from hookledger.receive.identify import identify
from hookledger.states import DeliveryOutcome, KeyOrigin, State
from hookledger.store.ops.reconciling import Begun, Counts
from hookledger.store.protocol import Store
from tests.builders import Raw, claim, settle
from tests.contract.conftest import OpenStore
from tests.contract.test_impossible_rows import ID, insert
from tests.contract.test_impossible_rows import NOW as NOW_SQL
from tests.services import apis as service
from tests.services.apis import TOKEN, Apis

SECRET = "made_up_secret_of_the_tests"
WHY = "an outage"
NOW = datetime.now(UTC)
DAY = Window(NOW - timedelta(hours=24), NOW)


@pytest.fixture
def apis() -> Iterator[Apis]:
    with service.running() as running:
        yield running


def stripe(apis: Apis, **more: Any) -> Inbox:
    inbox = Inbox()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url)
    inbox.source("stripe", provider="stripe", secrets=[SECRET], reconcile=settings, **more)
    return inbox


def github(apis: Apis) -> Inbox:
    inbox = Inbox()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url, repository="o/r", hook=1)
    inbox.source("github", provider="github", secrets=[SECRET], reconcile=settings)
    return inbox


def delivery(inbox: Inbox, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Arrival:
    """What intake would record of a delivery that was found authentic."""
    [source] = inbox.sources.values()
    request = Request("POST", source.endpoint.path, b"", headers, body, None)
    proof = Proof("hmac-sha256", "f1ng3r")
    return as_delivered(source.endpoint, request, proof, identify(source.endpoint, request, proof, NOW.timestamp()))


async def reconcile(inbox: Inbox, store: Store, window: Window | None = DAY, **more: Any) -> Any:
    [source] = inbox.sources
    context = inbox.context(store)
    if more.pop("dry_run", False):
        return await operate.compare(context, source, window, **more)
    return await operate.reconcile(context, by("ada", WHY), source, window, **more)


async def balanced(store: Store) -> None:
    assert (await store.consistency.report()).imbalances == ()


async def outcomes(store: Store) -> dict[str, int]:
    return await store.delivery_counts()


# ── what is missing ──────────────────────────────────────────────────────────


# proves R43, R48
async def test_what_is_missing_is_imported_once(store: Store, apis: Apis, raw: Raw) -> None:
    apis.page = 2
    for n in range(5):
        apis.sent_by_stripe(f"evt_{n}")
    inbox = stripe(apis)
    report = await reconcile(inbox, store)
    assert report.counts == Counts(listed=5, missing=5, imported=5)
    assert await outcomes(store) == {"reconciled": 5}
    again = await reconcile(inbox, store)
    assert again.counts == Counts(listed=5, matched=5)
    assert await outcomes(store) == {"reconciled": 5}
    event = (await search.find(inbox.context(store), "evt_3")).event
    assert (event.state, event.key_origin, event.type) == (State.PENDING, KeyOrigin.SIGNED_ID, "invoice.paid")
    await balanced(store)


async def test_each_run_is_audited(store: Store, apis: Apis) -> None:
    apis.sent_by_stripe("evt_1")
    inbox = stripe(apis)
    await reconcile(inbox, store)
    [last] = await operate.reconciliations(inbox.context(store))
    assert (last.actor, last.reason, last.problem, last.slot) == ("ada", WHY, None, None)
    assert last.counts == Counts(listed=1, missing=1, imported=1)
    history = await search.find(inbox.context(store), "evt_1")
    assert history.request is not None and history.request.scheme == "api"
    assert [row.outcome for row in history.deliveries] == [DeliveryOutcome.RECONCILED]


async def test_a_dry_run_changes_nothing(store: Store, apis: Apis, raw: Raw) -> None:
    apis.sent_by_stripe("evt_1")
    report = await reconcile(stripe(apis), store, dry_run=True)
    assert report.counts == Counts(listed=1, missing=1)
    for table in ("events", "deliveries", "requests", "identities", "actions", "reconciliations"):
        assert await raw.count(table) == 0


async def test_a_delivery_that_comes_later_is_a_duplicate(store: Store, apis: Apis) -> None:
    """The API writes it with blanks and another pending_webhooks; the delivery has not those bytes."""
    event = apis.sent_by_stripe("evt_1")
    inbox = stripe(apis)
    await reconcile(inbox, store)
    sent = json.dumps({**event, "pending_webhooks": 0}, separators=(",", ":")).encode()
    [[became]] = await store.record([delivery(inbox, sent)])
    assert (became.outcome, became.state) == (DeliveryOutcome.DUPLICATE, State.PENDING)
    await balanced(store)


async def test_what_was_delivered_is_matched(store: Store, apis: Apis) -> None:
    event = apis.sent_by_stripe("evt_1")
    inbox = stripe(apis)
    await store.record([delivery(inbox, json.dumps(event).encode())])
    assert (await reconcile(inbox, store)).counts == Counts(listed=1, matched=1)
    assert await outcomes(store) == {"accepted": 1}


async def test_a_delivery_at_the_same_moment(store: Store, apis: Apis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our look and our record, the worst one: one event, and no conflict, though the bytes differ."""
    event = apis.sent_by_stripe("evt_1")
    inbox, record = stripe(apis), store.reconciling.record

    async def late(*given: Any) -> list[list[Recorded]]:
        await store.record([delivery(inbox, json.dumps(event).encode())])
        return await record(*given)

    monkeypatch.setattr(store.reconciling, "record", late)
    report = await reconcile(inbox, store)
    assert report.counts == Counts(listed=1, matched=1)
    assert await outcomes(store) == {"accepted": 1, "duplicate": 1}
    await balanced(store)


async def test_many_runs_and_deliveries(open_store: OpenStore, store: Store, apis: Apis) -> None:
    events = [apis.sent_by_stripe(f"evt_{n}") for n in range(30)]
    inbox = stripe(apis)
    stores = [store, *[await open_store() for _ in range(2)]]

    async def deliver() -> None:
        for event in events:
            await store.record([delivery(inbox, json.dumps(event).encode())])

    await asyncio.gather(deliver(), *(reconcile(inbox, each) for each in stores))
    assert sum((await store.counts()).values()) == 30
    made = await outcomes(store)
    assert made.get("accepted", 0) + made.get("reconciled", 0) == 30
    assert "conflict" not in made
    await balanced(store)


async def test_a_run_that_ends_early_resumes_where_it_stopped(store: Store, apis: Apis) -> None:
    for n in range(250):
        apis.sent_by_stripe(f"evt_{n}")
    apis.trouble.extend([None, None, 400])
    inbox = stripe(apis)
    report = await reconcile(inbox, store)
    assert report.problem is not None and "400" in report.problem and "200 imported" in report.problem
    [last] = await operate.reconciliations(inbox.context(store))
    assert last.problem == report.problem and last.finished_at is not None
    again = await reconcile(inbox, store)
    assert again.counts == Counts(listed=250, matched=200, missing=50, imported=50)
    await balanced(store)


async def test_types_that_the_source_does_not_take_are_left_there(store: Store, apis: Apis) -> None:
    apis.sent_by_stripe("evt_1", "invoice.paid")
    apis.sent_by_stripe("evt_2", "charge.refunded")
    report = await reconcile(stripe(apis, types=["invoice.*"]), store)
    assert report.counts == Counts(listed=2, missing=1, imported=1, ignored=1)


async def test_failed_here(store: Store, apis: Apis) -> None:
    event = apis.sent_by_stripe("evt_1")
    inbox = stripe(apis)
    await store.record([delivery(inbox, json.dumps(event).encode())])
    assert await settle(store, await claim(store), "fail")
    report = await reconcile(inbox, store)
    assert report.counts == Counts(listed=1, failed=1)
    [difference] = report.differences
    assert (difference.kind, difference.key, difference.state) == ("failed", "evt_1", State.FAILED)


async def test_unknown_there(store: Store, apis: Apis) -> None:
    """Only well inside the window: at its edges nothing is proved."""
    inbox = stripe(apis)
    for ident, ago in (("evt_in", 3600), ("evt_edge", 60), ("evt_before", 90_000)):
        event = apis.sent_by_stripe(ident, at=NOW.timestamp() - ago)
        await store.record([delivery(inbox, json.dumps(event).encode())])
    apis.stripe.clear()
    report = await reconcile(inbox, store)
    assert [(one.kind, one.key) for one in report.differences] == [("unknown", "evt_in")]
    assert report.counts == Counts(unknown=1)


async def test_more_differences_than_can_be_told(store: Store, apis: Apis) -> None:
    for n in range(MOST + 20):
        apis.sent_by_stripe(f"evt_{n}")
    report = await reconcile(stripe(apis), store, dry_run=True)
    assert report.counts.missing == MOST + 20
    assert len(report.differences) == MOST


# ── GitHub: what was signed ──────────────────────────────────────────────────


async def test_githubs_signature_proves_what_is_listed(store: Store, apis: Apis) -> None:
    """The bytes are the very ones: the delivery is a duplicate, and its body under another id is known."""
    body = apis.sent_by_github(1, {"ref": "refs/heads/main"}, SECRET)
    inbox = github(apis)
    assert (await reconcile(inbox, store)).counts == Counts(listed=1, missing=1, imported=1)
    guid = apis.github[0]["guid"]
    history = await search.find(inbox.context(store), guid)
    assert history.request is not None
    assert (history.request.body, history.request.scheme) == (body, "hmac-sha256")
    headers = ((b"x-github-event", b"push"), (b"x-github-delivery", guid.encode()))
    [[same]] = await store.record([delivery(inbox, body, headers)])
    assert same.outcome is DeliveryOutcome.DUPLICATE
    captured = ((b"x-github-event", b"push"), (b"x-github-delivery", b"another"))
    [[odd]] = await store.record([delivery(inbox, body, captured)])
    assert odd.outcome is DeliveryOutcome.SAME_BODY
    await balanced(store)


async def test_githubs_bytes_may_be_others(store: Store, apis: Apis) -> None:
    """Then the API's word is the proof, and the delivery that comes after all is still a duplicate."""
    apis.sent_by_github(1, {"ref": "refs/heads/main"}, "another_secret")
    inbox = github(apis)
    await reconcile(inbox, store)
    guid = apis.github[0]["guid"]
    history = await search.find(inbox.context(store), guid)
    assert history.request is not None and history.request.scheme == "api"
    headers = ((b"x-github-event", b"push"), (b"x-github-delivery", guid.encode()))
    body = b'{ "ref": "refs/heads/main" }'
    [[same]] = await store.record([delivery(inbox, body, headers)])
    assert same.outcome is DeliveryOutcome.DUPLICATE
    captured = ((b"x-github-event", b"push"), (b"x-github-delivery", b"another"))
    [[odd]] = await store.record([delivery(inbox, body, captured)])
    assert odd.outcome is DeliveryOutcome.SAME_BODY, "from the first delivery on its body is known"
    await balanced(store)


async def test_what_is_known_is_not_fetched(store: Store, apis: Apis) -> None:
    for n in range(3):
        apis.sent_by_github(n, {"n": n}, SECRET)
    inbox = github(apis)
    await reconcile(inbox, store)
    apis.asked.clear()
    assert (await reconcile(inbox, store)).counts == Counts(listed=3, matched=3)
    assert len(apis.asked) == 1, "the list alone"


async def test_the_provider_can_be_asked_to_deliver_again(store: Store, apis: Apis) -> None:
    apis.sent_by_github(1, {"n": 1}, SECRET)
    report = await reconcile(github(apis), store, resend=True)
    assert report.counts == Counts(listed=1, missing=1, resent=1)
    assert apis.resent == [1]
    assert await outcomes(store) == {}


@pytest.mark.parametrize(("provider", "header"), [("svix", b"svix-id"), ("standard_webhooks", b"webhook-id")])
async def test_messages_of_svix(store: Store, apis: Apis, provider: str, header: bytes) -> None:
    """The message's id is the key, under Svix's header or the standard's."""
    apis.sent_by_svix("msg_1", {"type": "invoice.paid", "data": {"id": "in_1"}})
    apis.sent_by_svix("msg_2", {"type": "invoice.paid", "data": {"id": "in_1"}})
    inbox = Inbox()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url, app_id="app_1")
    secret = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM="
    inbox.source("own", provider=provider, secrets=[secret], reconcile=settings)
    await store.record([delivery(inbox, b'{"type":"invoice.paid"}', ((header, b"msg_2"),))])
    assert (await reconcile(inbox, store)).counts == Counts(listed=2, matched=1, missing=1, imported=1)
    [[became]] = await store.record([delivery(inbox, b'{"type":"invoice.paid"}', ((header, b"msg_1"),))])
    assert became.outcome is DeliveryOutcome.DUPLICATE
    await balanced(store)


async def test_shopify_lists_what_was_never_delivered(store: Store, apis: Apis) -> None:
    """An order that changed, and no event came; without a repair handler it is only said."""
    inbox = Inbox()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url, shop="made-up.myshopify.com")
    inbox.source("shopify", provider="shopify", secrets=[SECRET], reconcile=settings)
    heard, unheard = apis.changed_at_shopify(1), apis.changed_at_shopify(2)
    body = json.dumps({"admin_graphql_api_id": heard}).encode()
    headers = ((b"x-shopify-topic", b"orders/updated"), (b"x-shopify-event-id", b"e-1"))
    await store.record([delivery(inbox, body, headers)])
    report = await reconcile(inbox, store)
    assert report.counts == Counts(listed=2, matched=1, missing=1)
    assert [one.key for one in report.differences] == [unheard]
    assert await outcomes(store) == {"accepted": 1}


# ── other listers ────────────────────────────────────────────────────────────


def own(provider: str, *entries: Any, **more: Any) -> Inbox:
    inbox = Inbox()
    source = inbox.source("own", provider=provider, secrets=[SECRET], **more)

    @source.lister
    async def listed(since: datetime, until: datetime) -> AsyncIterator[Any]:
        for entry in entries:
            if isinstance(entry, Exception):
                raise entry
            yield entry

    return inbox


async def test_a_lister_of_the_users_own(store: Store) -> None:
    body = b'{"id": "evt_1", "type": "invoice.paid"}'
    report = await reconcile(own("stripe", Listed(body=body), Listed(body=body)), store)
    assert report.counts == Counts(listed=2, missing=1, imported=1, matched=1)


@pytest.mark.parametrize("given", [ZeroDivisionError("oh"), ListingFailed("oh"), "a string", None])
async def test_a_lister_that_fails(store: Store, given: Any) -> None:
    report = await reconcile(own("stripe", given), store)
    assert report.problem is not None
    assert await outcomes(store) == {}


async def test_what_has_no_key_is_refused(store: Store) -> None:
    """Its delivery would be known by its bytes, which are not these: it would come in twice."""
    report = await reconcile(own("stripe", Listed(body=b'{"type": "x"}', id="?"), Listed(body=b"{", id="!")), store)
    assert report.counts == Counts(listed=2, not_importable=2)
    assert await outcomes(store) == {}


async def test_a_source_without_a_lister(store: Store) -> None:
    inbox = Inbox()
    inbox.source("stripe", provider="stripe", secrets=[SECRET])
    with pytest.raises(ConfigError, match="no lister"):
        await reconcile(inbox, store)


async def test_changed_objects(store: Store, apis: Apis) -> None:
    """A provider without a log: what changed and nobody told is repaired, once."""
    at = NOW - timedelta(hours=2)
    inbox = own("stripe", Changed(object_id="in_1", at=at), Changed(object_id="in_2", at=at))
    source = inbox.sources["own"]

    @source.repair
    async def repaired(event: Any) -> None: ...

    body = json.dumps(
        {"id": "e", "type": "t", "created": int(NOW.timestamp()) - 7200, "data": {"object": {"id": "in_1"}}}
    )
    await store.record([delivery(inbox, body.encode())])
    first = await reconcile(inbox, store)
    assert first.counts == Counts(listed=2, matched=1, missing=1, repairs=1)
    second = await reconcile(inbox, store)
    assert second.counts == Counts(listed=2, matched=2), "a repair was asked for since"
    await balanced(store)


# ── repairs ──────────────────────────────────────────────────────────────────


def repairable() -> Inbox:
    inbox = Inbox()
    source = inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @source.repair
    async def repaired(event: Any) -> None: ...

    return inbox


async def test_a_repair_is_an_event_linked_to_the_other(store: Store, raw: Raw) -> None:
    inbox = repairable()
    body = b'{"id": "evt_1", "type": "invoice.paid", "data": {"object": {"id": "in_1"}}}'
    await store.know_sources(["stripe"])
    await store.record([delivery(inbox, body)])
    about = (await search.find(inbox.context(store), "evt_1")).event
    made = await repair_event(inbox.context(store), by("ada", WHY), about)
    assert (made.event.type, made.event.object_id, made.event.state) == ("hookledger.repair", "in_1", State.PENDING)
    assert [(a.name, a.actor, a.subject) for a in made.actions] == [("repair", "ada", f"event {about.id}")]
    original = await search.find(inbox.context(store), "evt_1")
    assert [(a.name, a.actor, a.subject) for a in original.actions] == [("repair", "ada", f"repair {made.event.id}")]
    assert original.event == about, "the event itself is untouched"
    await balanced(store)


async def test_one_repair_of_an_object_at_a_time(open_store: OpenStore, store: Store) -> None:
    inbox = repairable()
    stores = [store, *[await open_store() for _ in range(3)]]

    async def ask(each: Store) -> Any:
        return await repair_object(inbox.context(each), by("ada", WHY), "stripe", "in_1")

    results = await asyncio.gather(*map(ask, stores), return_exceptions=True)
    refused = [one for one in results if isinstance(one, WrongState)]
    [made] = [one for one in results if not isinstance(one, BaseException)]
    assert len(refused) == 3
    assert str(made.event.id) in str(refused[0])
    assert sum((await store.counts()).values()) == 1
    [claimed] = await store.claim("w", [Kind("stripe", REPAIR)], 1, 60)
    assert await settle(store, claimed, "complete")
    assert (await ask(store)).event.id != made.event.id
    await balanced(store)


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\nb"])
async def test_an_object_that_cannot_be_named(store: Store, bad: str) -> None:
    with pytest.raises(ConfigError, match="object"):
        await repair_object(repairable().context(store), by("ada", WHY), "stripe", bad)


async def test_no_repair_handler(store: Store, apis: Apis) -> None:
    with pytest.raises(ConfigError, match="repair handler"):
        await repair_object(stripe(apis).context(store), by("ada", WHY), "stripe", "in_1")


# ── on a schedule ────────────────────────────────────────────────────────────


async def test_one_run_for_each_slot(open_store: OpenStore, store: Store) -> None:
    slot = NOW.replace(microsecond=0)
    stores = [store, *[await open_store() for _ in range(4)]]

    async def begin(each: Store) -> Any:
        since = slot - timedelta(hours=48)
        return await each.reconciling.begin("stripe", since, slot, "hookledger", "daily", lease=LEASE, slot=slot)

    begun = [one for one in await asyncio.gather(*map(begin, stores)) if one]
    assert len(begun) == 1
    assert await store.reconciling.end(begun[0], Counts())
    assert await begin(store) is None


async def test_an_unfinished_run_is_resumed(store: Store, clock: Clock) -> None:
    slot = NOW.replace(microsecond=0)

    async def begin(hours: float) -> Any:
        since = slot - timedelta(hours=hours)
        return await store.reconciling.begin("stripe", since, slot, "hookledger", "daily", lease=LEASE, slot=slot)

    dead = await begin(48)
    clock.offset += LEASE - 5
    assert await begin(24) is None
    assert await store.reconciling.renew(dead, LEASE)
    clock.offset += LEASE + 1
    taken = await begin(24)
    assert (taken.id, taken.fence) == (dead.id, 2)
    assert taken.since == dead.since, "its own window"
    assert not await store.reconciling.renew(dead, LEASE)
    assert not await store.reconciling.end(dead, Counts()), "the dead one has nothing to say any more"
    assert await store.reconciling.end(taken, Counts(), "no answer", again_in=600)
    assert await begin(24) is None
    clock.offset += 601
    third = await begin(24)
    assert third.fence == 3
    assert await store.reconciling.end(third, Counts(listed=1))
    [last] = await store.reconciling.last()
    assert (last.problem, last.counts) == (None, Counts(listed=1))


async def audited(raw: Raw) -> list[Any]:
    return await raw.run("SELECT actor, from_state, to_state FROM actions WHERE name = 'reconcile' ORDER BY id")


async def test_an_unfinished_run_is_closed(store: Store, clock: Clock, raw: Raw) -> None:
    """It was killed after it had taken in two. The next one says so in its name, planned or not."""
    inbox = own("stripe")

    def listed(number: int) -> Arrival:
        content = Content(b'{"id": "evt_%d", "type": "t"}' % number, ())
        arrival = inbox.examiner.listed("own", content, NOW.timestamp())
        assert isinstance(arrival, Arrival)
        return arrival

    await store.know_sources(["own"])

    async def begin(slot: datetime | None = None) -> Any:
        since = NOW - timedelta(hours=48)
        return await store.reconciling.begin("own", since, NOW, "ada", WHY, lease=LEASE, slot=slot)

    for slot in (None, NOW.replace(microsecond=0)):
        await raw.run("DELETE FROM actions")
        dead = await begin(slot)
        await store.reconciling.record(dead, [listed(0), listed(1)], Counts(listed=2))
        clock.offset += LEASE + 1
        taken = await begin(slot)
        assert (taken.id == dead.id) is (slot is not None)
        with pytest.raises(WrongState, match="taken up"):
            await store.reconciling.record(dead, [listed(2)], Counts())
        assert await store.reconciling.end(taken, Counts())
        counts = "2 listed, 2 missing, 2 imported" if slot is None else "2 listed, 0 missing"
        assert await audited(raw) == [
            ("ada", "", "started"),
            ("ada", "started", f"interrupted: its process stopped; {counts}"),
            ("ada", "", "started"),
            ("ada", "started", "0 listed, 0 missing"),
        ]
        clock.offset += LEASE + 1
        assert await raw.run("SELECT count(*) FROM reconciliations WHERE finished_at IS NULL") == [(0,)]


def an_hour_ago() -> str:
    """A time of day that does not come while a test runs, also if it lets hours pass."""
    return f"{datetime.now(UTC) - timedelta(hours=1):%H:%M}"


async def test_the_worker_compares_every_day(store: Store, apis: Apis, clock: Clock) -> None:
    """What was missed while no worker ran is made up for once, whichever worker comes first."""
    apis.sent_by_stripe("evt_1", at=NOW.timestamp() - 30 * 3600)
    inbox = Inbox(clock=clock)
    at = an_hour_ago()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url, at=at, look_back=Seconds("72h"))
    inbox.source("stripe", provider="stripe", secrets=[SECRET], reconcile=settings)
    await asyncio.gather(*(schedule(inbox.context(store)).round() for _ in range(3)))
    assert await outcomes(store) == {"reconciled": 1}
    assert apis.asked == ["GET /v1/events"]
    [first] = await store.reconciling.last()
    assert first.slot is not None and f"{first.slot:%H:%M:%S}" == f"{at}:00"
    clock.offset += 86400
    await schedule(inbox.context(store)).round()
    [second] = await store.reconciling.last()
    assert second.slot == first.slot + timedelta(days=1)
    assert await outcomes(store) == {"reconciled": 1}


async def test_a_planned_run_that_fails_is_tried_again(store: Store, apis: Apis, clock: Clock) -> None:
    inbox = Inbox(clock=clock)
    settings = ReconcileSettings(token="wrong", base_url=apis.url, at=an_hour_ago())
    inbox.source("stripe", provider="stripe", secrets=[SECRET], reconcile=settings)
    tried = 0
    for _ in range(10):
        await schedule(inbox.context(store)).round()
        tried += bool(apis.asked)
        apis.asked.clear()
        clock.offset += 1801
        [last] = await store.reconciling.last()
        if last.finished_at:
            break
    assert tried == 5
    assert last.problem is not None and "401" in last.problem


async def test_a_plan_without_a_lister(store: Store) -> None:
    inbox = Inbox()
    inbox.source("github", provider="gitlab", secrets=[SECRET], reconcile=ReconcileSettings(at="03:00"))
    with pytest.raises(ConfigError, match="has no lister"):
        schedule(inbox.context(store))


def test_the_horizon_is_no_shorter_than_the_look_back(apis: Apis) -> None:
    inbox = Inbox()
    with pytest.raises(ConfigError, match="horizon"):
        inbox.source(
            "stripe",
            provider="stripe",
            secrets=[SECRET],
            horizon="31d",
            reconcile=ReconcileSettings(token=TOKEN, look_back=Seconds("40d")),
        )


async def test_a_lost_run_stops(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever slept through its lease stops by itself, and what it found is not written over the other's."""
    monkeypatch.setattr("hookledger.operate.reconcile.reconcile.LEASE", 0.3)
    slot, listing = NOW.replace(microsecond=0), asyncio.Event()
    inbox = own("stripe")
    source = inbox.sources["own"]

    async def begin() -> Any:
        since = slot - timedelta(hours=48)
        return await store.reconciling.begin("own", since, slot, "hookledger", "daily", lease=0.3, slot=slot)

    async def endless(since: datetime, until: datetime) -> AsyncIterator[Any]:
        listing.set()
        await asyncio.Event().wait()
        yield

    source.reconcile_with(endless)
    sleeper = await begin()
    comparison = Comparison(inbox.context(store), "own", DAY)
    task = asyncio.create_task(operate.carry_out(store, sleeper, comparison, endless))
    await listing.wait()
    clock.offset += 60
    other = None
    while other is None:  # the sleeper may have renewed it just now
        clock.offset += 60
        other = await begin()
    with pytest.raises(WrongState, match="taken up"):
        await task
    assert await store.reconciling.end(other, Counts())


async def test_one_that_the_store_refuses_keeps_no_other_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Listed(body=b'{"id": "evt_%d", "type": "t"}' % n, id=str(n)) for n in range(5)]
    record = store.reconciling.record

    async def picky(begun: Begun, arrivals: list[Arrival], counts: Counts) -> list[list[Recorded]]:
        if any(b"evt_3" in arrival.body for arrival in arrivals):
            raise BadData("no")
        return await record(begun, arrivals, counts)

    monkeypatch.setattr(store.reconciling, "record", picky)
    report = await reconcile(own("stripe", *entries), store)
    assert report.counts == Counts(listed=5, missing=4, imported=4, not_importable=1)


# ── what cannot be ───────────────────────────────────────────────────────────

RUN = {
    "id": ID,
    "source": "'stripe'",
    "since": "BEFORE",
    "until": NOW_SQL,
    "actor": "'ada'",
    "reason": "'r'",
    "started_at": NOW_SQL,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"leased_until": "NULL"},
        {"finished_at": NOW_SQL},
        {"leased_until": "NULL", "finished_at": NOW_SQL},
        {"since": NOW_SQL},
        {"fence": "0"},
        {"actor": "''"},
        {"reason": "''"},
        {"source": "''"},
        {"problem": "''"},
    ],
)
async def test_impossible_runs(raw: Raw, wrong: dict[str, str]) -> None:
    """Open and finished at once, or neither; finished with no result; a window without length; nobody's."""
    before = str(int(raw.now) - 1_000_000) if raw.now.isdigit() else f"{raw.now} - interval '1 second'"
    for values in (RUN | {"leased_until": NOW_SQL}, RUN | {"leased_until": NOW_SQL} | wrong):
        statement = insert(raw, "reconciliations", values).replace("BEFORE", before)
        if wrong.items() <= values.items():
            with pytest.raises(BadData):
                await raw.run(statement)
        else:
            await raw.run(statement)


# ── a list that must be switched on ──────────────────────────────────────────


def square(*listed: Listed) -> Inbox:
    inbox = Inbox()
    source = inbox.source(
        "square", provider="square", secrets=[SECRET], public_url="https://hooks.example.com/square"
    )

    @source.lister
    async def lister(since: datetime, until: datetime) -> AsyncIterator[Listed]:
        for entry in listed:
            yield entry

    return inbox


@pytest.mark.parametrize("dry_run", [True, False])
async def test_an_empty_list_that_may_be_switched_off_is_no_proof(store: Store, dry_run: bool) -> None:
    event = {"event_id": "e1", "type": "payment.updated", "created_at": NOW.isoformat(), "data": {"id": "p1"}}
    body = json.dumps(event).encode()
    report = await reconcile(square(), store, dry_run=dry_run)
    assert report.problem is not None
    assert "PUT /v2/events/enable" in report.problem
    report = await reconcile(square(Listed(body=body, id="e1", at=NOW)), store, dry_run=dry_run)
    assert (report.problem, report.counts.listed, report.counts.missing) == (None, 1, 1)
    if not dry_run:
        assert await outcomes(store) == {"reconciled": 1}
        await balanced(store)


async def test_without_a_lister_it_is_said_what_one_would_ask(store: Store) -> None:
    inbox = Inbox()
    inbox.source("square", provider="square", secrets=[SECRET], public_url="https://hooks.example.com/square")
    with pytest.raises(ConfigError, match=r"POST /v2/events; .*PUT /v2/events/enable"):
        await reconcile(inbox, store)

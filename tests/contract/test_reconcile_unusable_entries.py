"""What logs and listers say that is odd: content that is gone, words that no database takes, types that are not
taken. None of it makes an event of nothing, keeps another out, or raises a false alarm."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from hookledger import Changed, Event, Inbox, ReconcileSettings
from hookledger.errors import ConfigError, ListingFailed
from hookledger.model import REPAIR
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.reconcile import reconcile as operate
from hookledger.operate.reconcile.repair import repair_event
from hookledger.operate.timeline import timeline
from hookledger.store.ops.reconciling import Counts
from hookledger.store.protocol import Store
from tests.contract.test_reconcile import NOW, SECRET, balanced, delivery, github, outcomes, reconcile, stripe
from tests.services import apis as service
from tests.services.apis import TOKEN, Apis


@pytest.fixture
def apis() -> Iterator[Apis]:
    with service.running() as running:
        yield running


def shopify(apis: Apis) -> Inbox:
    inbox = Inbox()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url, shop="made-up.myshopify.com")
    inbox.source("shopify", provider="shopify", secrets=[SECRET], reconcile=settings)
    return inbox


def svix(apis: Apis) -> Inbox:
    inbox = Inbox()
    settings = ReconcileSettings(token=TOKEN, base_url=apis.url, app_id="app_1")
    secret = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM="
    inbox.source("svix", provider="svix", secrets=[secret], reconcile=settings)
    return inbox


@pytest.mark.parametrize("other_types", ["skip", "reject"])
async def test_what_is_ignored_there_is_not_unknown_here(store: Store, apis: Apis, other_types: Any) -> None:
    """It was delivered, and recorded as skipped, or taken before the types were named."""
    event = apis.sent_by_stripe("evt_1", "charge.refunded")
    await store.record([delivery(stripe(apis), json.dumps(event).encode())])
    narrower = stripe(apis, types=["invoice.*"], other_types=other_types)
    assert (await reconcile(narrower, store)).counts == Counts(listed=1, ignored=1)


async def test_no_change_at_shopify_makes_no_event_unknown(store: Store, apis: Apis) -> None:
    """It lists objects: that it names none says nothing about the events that came."""
    inbox = shopify(apis)
    at = (NOW - timedelta(hours=3)).isoformat().encode()
    headers = ((b"x-shopify-topic", b"products/update"), (b"x-shopify-event-id", b"e-1"))
    await store.record([delivery(inbox, b'{"id": 7}', (*headers, (b"x-shopify-triggered-at", at)))])
    assert (await reconcile(inbox, store)).counts == Counts()


@pytest.mark.parametrize("payload", [{"expired": True}, None])
async def test_a_message_whose_payload_is_gone(store: Store, apis: Apis, payload: Any) -> None:
    """Svix puts a mark in its place, which nobody ever sent."""
    apis.sent_by_svix("msg_1", {"type": "invoice.paid"})
    apis.sent_by_svix("msg_2", {"type": "invoice.paid"})
    apis.svix[0]["payload"] = payload
    report = await reconcile(svix(apis), store)
    assert report.counts == Counts(listed=2, missing=1, imported=1, not_importable=1)
    assert [(one.kind, one.key) for one in report.differences] == [("not_importable", "msg_2"), ("missing", "msg_1")]
    assert await outcomes(store) == {"reconciled": 1}
    await balanced(store)


@pytest.mark.parametrize("resend", [False, True])
async def test_a_delivery_that_github_has_no_more(store: Store, apis: Apis, resend: bool) -> None:
    """One that left the log after it was listed keeps no other out."""
    for number in (1, 2, 3):
        apis.sent_by_github(number, {"n": number}, SECRET)
    apis.trouble.extend([None, 404])
    report = await reconcile(github(apis), store, resend=resend)
    put_right = {"resent": 2} if resend else {"imported": 2}
    assert report.problem is None
    assert report.counts == Counts(listed=3, missing=2, not_importable=1, **put_right)
    await balanced(store)


async def test_a_delivery_without_a_payload(store: Store, apis: Apis) -> None:
    apis.sent_by_github(1, {"n": 1}, SECRET)
    apis.github[0]["request"]["payload"] = None
    report = await reconcile(github(apis), store)
    assert report.counts == Counts(listed=1, not_importable=1)
    assert "no payload" in report.differences[0].words


async def test_a_known_body_under_another_id_is_not_called_matched(store: Store, apis: Apis) -> None:
    body = apis.sent_by_github(1, {"ref": "refs/heads/main"}, SECRET)
    inbox = github(apis)
    headers = ((b"x-github-event", b"push"), (b"x-github-delivery", b"another"))
    await store.record([delivery(inbox, body, headers)])
    report = await reconcile(inbox, store)
    assert report.counts == Counts(listed=1, not_importable=1)
    assert "quarantined as same_body" in report.differences[0].words
    assert await outcomes(store) == {"accepted": 1, "same_body": 1}
    await balanced(store)


async def test_words_that_no_database_takes(store: Store) -> None:
    """The run ends on record all the same; else it would be taken up again and again."""
    inbox = Inbox()
    source = inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @source.lister
    async def listed(since: datetime, until: datetime) -> AsyncIterator[Changed]:
        if since == until:
            yield Changed(object_id="", at=since)
        raise ListingFailed("it said \0 and \ud800")

    report = await reconcile(inbox, store)
    [last] = await operate.reconciliations(inbox.context(store))
    assert last.finished_at is not None
    assert last.problem == report.problem
    assert "it said" in str(last.problem)


async def test_a_key_function_that_fails(store: Store, apis: Apis) -> None:
    """On one event: the others go in, and the run ends."""
    for ident in ("evt_1", "evt_2", "evt_3"):
        apis.sent_by_stripe(ident)

    def key(content: Any, headers: Any) -> str:
        return {"evt_1": "one", "evt_3": "three"}[content["id"]]

    report = await reconcile(stripe(apis, key=key), store)
    assert report.counts == Counts(listed=3, missing=2, imported=2, not_importable=1)
    assert [one.key for one in report.differences if one.kind == "not_importable"] == ["evt_2"]


async def test_what_no_signature_proves_is_not_called_verified(store: Store, apis: Apis) -> None:
    apis.sent_by_stripe("evt_1")
    inbox = stripe(apis)

    @inbox.sources["stripe"].repair
    async def repaired(event: Event) -> None: ...

    await reconcile(inbox, store)
    listed = await search.find(inbox.context(store), "evt_1")
    made = await repair_event(inbox.context(store), by("ada", "support asked"), listed.event)
    told = [entry for history in (listed, made) for entry in timeline(history) if entry.kind == "authentication"]
    assert [(entry.what, entry.words.partition(":")[0]) for entry in told] == [
        ("not signed", "api"),
        ("not signed", "repair"),
    ]


def test_only_a_repair_handler_takes_repairs() -> None:
    """A handler of that type would run whatever a provider calls so."""
    inbox = Inbox()
    source = inbox.source("stripe", provider="stripe", secrets=[SECRET])
    with pytest.raises(ConfigError, match=r"@source\.repair"):

        @source.on("invoice.paid", REPAIR)
        async def handle(event: Event) -> None: ...

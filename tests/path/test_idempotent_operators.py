"""What operators are told of guarded requests comes true: previews, dry runs, and what follows a decision."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hookledger import Event
from hookledger.cli.next_steps import next_of
from hookledger.errors import NoTransaction
from hookledger.operate import review, search
from hookledger.operate.audit import by
from hookledger.operate.context import Application
from hookledger.operate.errors import Ambiguous, NotFound
from hookledger.operate.replay import replay
from hookledger.operate.replay.preview import CANNOT_FORESEE, Preview, Verdict
from hookledger.operate.timeline import timeline
from hookledger.states import State
from tests.path.test_idempotent import Shop, insert, shop

__all__ = ["shop"]

ADA = by("ada", "again")


async def previewed(shop: Shop, *, loaded: bool = True, approved: bool = False) -> Preview:
    history = await shop.history()
    async with shop.inbox.opened() as store:
        context = shop.inbox.context(store)
        if not loaded:
            context = type(context)(store, application=Application())
        return replay.preview(context, history, approved=approved)


async def replayed(shop: Shop) -> str | None:
    """Replay the event; who runs it then."""
    event = (await shop.history()).event
    async with shop.inbox.opened() as store:
        context = shop.inbox.context(store)
        after = await replay.replay(context, ADA, event)
        follows = await next_of(context, after.event)
        assert follows.hindrances == []
        return follows.runner


def only(keep: str) -> str:
    return (
        "Only your application runs POST /orders, with a request that has its key; no worker does. If none comes "
        f"within {keep}, a worker skips the event, and requests with its key get 409."
    )


async def test_a_request_is_found_by_its_caller_and_key_as_listings_show_them(shop: Shop) -> None:
    shop.guard("POST /orders", "POST /orders/{name}")
    shop.route()(insert)
    shop.route("/orders/{name}")(insert)
    await shop.post()
    await shop.post(who="globex")
    async with shop.inbox.opened() as store:
        context = shop.inbox.context(store)
        assert (await search.find(context, "acme:k-1")).event.account == "acme"
        await shop.post(path="/orders/17")
        with pytest.raises(Ambiguous):
            await search.find(context, "acme:k-1")
        with pytest.raises(NotFound):
            await search.find(context, "acme:k-2")


async def test_a_timeline_says_that_the_application_authenticated_the_caller(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    await shop.post()
    [told] = [entry for entry in timeline(await shop.history()) if entry.kind == "authentication"]
    assert (told.what, told.words) == ("not signed", "idempotency-key: your application authenticated the caller")


async def test_a_replay_of_an_answered_request_runs_nothing_until_its_answer_expires(shop: Shop) -> None:
    shop.guard(keep="1h")
    shop.route()(insert)
    first = await shop.post()
    answer = (await shop.history()).answer
    assert answer is not None
    until = f"{answer.expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    told = await previewed(shop)
    assert (told.verdict, told.items) == (
        Verdict.WILL_DO,
        (f"POST /orders runs again with the first request that has its key after {until}",),
    )
    kept = "Until then requests with its key get the stored answer (200), and nothing runs."
    assert told.reasons == (kept, only("3,600 s (keep)"), CANNOT_FORESEE)

    assert await replayed(shop) == f"POST /orders runs with the first request that has its key after {until}"
    assert (await shop.post()).body == first.body
    await shop.work()
    assert await shop.state() is State.RETRYING
    assert len(shop.calls) == 1
    assert datetime.now(UTC) < answer.expires_at
    shop.inbox.clock.offset += 3700
    assert (await shop.post()).status == 200
    assert len(shop.calls) == 2


async def test_a_replay_of_a_request_whose_answer_has_expired_runs_with_the_next_one(shop: Shop) -> None:
    shop.guard(keep="1h")
    shop.route()(insert)
    await shop.post()
    shop.inbox.clock.offset += 3700
    told = await previewed(shop)
    assert told.items == ("POST /orders runs again with the next request that has its key",)
    assert told.reasons == (only("3,600 s (keep)"), CANNOT_FORESEE)
    assert await replayed(shop) == "POST /orders runs with the next request that has its key"
    await shop.work()
    assert len(shop.calls) == 1
    assert (await shop.post()).status == 200
    assert len(shop.calls) == 2


async def test_an_approval_runs_the_route_with_the_next_request(shop: Shop) -> None:
    shop.guard()

    @shop.route()
    async def run(event: Event) -> dict[str, str]:
        if not event.approved:
            raise ConnectionResetError("made up")
        return {}

    with pytest.raises(ConnectionResetError):
        await shop.post()
    told = await previewed(shop, approved=True)
    assert told.items == ("POST /orders runs with the next request that has its key: no run was processed yet",)
    event = (await shop.history()).event
    async with shop.inbox.opened() as store:
        context = shop.inbox.context(store)
        after = await review.approve(context, ADA, event)
        assert (
            await next_of(context, after.event)
        ).runner == "POST /orders runs with the next request that has its key"
    assert (await shop.post()).status == 200


async def test_without_the_application_a_guarded_request_is_known_by_its_proof(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    await shop.post()
    loaded, other = await previewed(shop), await previewed(shop, loaded=False)
    assert other.items == loaded.items
    assert other.reasons[1:] == (only("the guard's keep"), CANNOT_FORESEE)


async def test_a_dry_run_cannot_run_a_route(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    await shop.post()
    history = await shop.history()
    async with shop.inbox.opened() as store:
        with pytest.raises(NoTransaction, match="only your application runs POST /orders, with the next request"):
            shop.inbox.dry_run(store).handler(history)

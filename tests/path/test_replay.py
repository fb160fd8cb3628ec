"""Replay through the whole path on both databases: what is done stays done, and one effect is repeated on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from hookledger import Event, Op, Permanent, State
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.replay import replay
from hookledger.operate.replay.preview import InReplay, Verdict
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.remote import deliver, event, finish


class Shop:
    """Counts what its remotes were asked to do, by idempotency key."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.calls: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.broken = False

        def count(op: Op) -> None:
            self.calls[op.name] += 1
            self.keys.add(op.key)

        @site.inbox.effect(repeat="keyed", window="1d")
        async def charge(op: Op, cents: int) -> int:
            count(op)
            return cents

        @site.inbox.effect(repeat="never", serial="to")
        async def mail(op: Op, to: str) -> None:
            count(op)

        @site.inbox.sources["stripe"].on("invoice.paid", replay="converges")
        async def paid(event: Event) -> str:
            cents = await event.call(charge, event.key, cents=500)
            if await event.once("credit", event.key):
                insert = "INSERT INTO done VALUES ('credit')"
                await event.tx.execute(insert)
            await event.later(mail, event.key, to="ada")
            if self.broken:
                raise Permanent("the handler is wrong")
            return str(cents)

    async def replay(self, ident: str, repeat: Sequence[str] = ()) -> Verdict:
        """What was foreseen; and the worker has done it."""
        async with self.site.inbox.opened() as store:
            context = self.site.inbox.context(store)
            history = await search.find(context, ident)
            preview = replay.preview(context, history, repeat)
            await replay.replay(
                self.site.inbox.context(store), by("ada", "asked"), history.event, repeat, shown=preview
            )
        await finish(self.site)
        return preview.verdict

    async def did(self) -> tuple[int, int, int]:
        """Charges, mails and credits."""
        return self.calls["charge"], self.calls["mail"], len(await done(self.site))


@pytest.fixture
async def shop(site_on: MakeSite, database_url: str) -> Shop:
    site = await site_on(database_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return Shop(site)


async def test_done_effects_are_skipped_in_every_run(shop: Shop) -> None:
    await deliver(shop.site, "evt_1", "invoice.paid")
    await finish(shop.site)
    for run in (2, 3, 4):
        assert await shop.replay("evt_1") is Verdict.SAFE
        assert await shop.did() == (1, 1, 1)
        row = await event(shop.site, "evt_1")
        assert (row.state, row.run, row.result) == (State.PROCESSED, run, "500"), "the recorded result is given again"
    await deliver(shop.site, "evt_1", "invoice.paid")
    assert (await event(shop.site, "evt_1")).run == 4, "a duplicate is no replay"


async def test_each_effect_is_repeated_separately(shop: Shop) -> None:
    await deliver(shop.site, "evt_1", "invoice.paid")
    await finish(shop.site)
    expected = {"charge": (2, 1, 1), "mail": (2, 2, 1), "credit": (2, 2, 2)}
    for name, counts in expected.items():
        assert await shop.replay("evt_1", [name]) is Verdict.WILL_DO
        assert await shop.did() == counts
    assert await shop.replay("evt_1", list(expected)) is Verdict.WILL_DO
    assert await shop.did() == (3, 3, 3)
    assert await shop.replay("evt_1") is Verdict.SAFE
    assert await shop.did() == (3, 3, 3)
    assert len(shop.keys) == 6, "three generations of two calls, each with a key of its own"


async def test_a_run_that_fails_keeps_what_was_decided(shop: Shop) -> None:
    """The charge is made, mail and credit are rolled back with the run; the next one does just those."""
    await deliver(shop.site, "evt_1", "invoice.paid")
    await finish(shop.site)
    shop.broken = True
    await shop.replay("evt_1", ["charge", "mail", "credit"])
    assert (await event(shop.site, "evt_1")).state is State.FAILED
    assert await shop.did() == (2, 1, 1)
    shop.broken = False
    async with shop.site.inbox.opened() as store:
        preview = replay.preview(shop.site.inbox.context(store), await shop.site.event("evt_1"))
    assert {effect.name: effect.in_replay for effect in preview.effects} == {
        "charge": InReplay.SKIPPED,
        "mail": InReplay.HAPPENS,
        "credit": InReplay.HAPPENS,
    }
    assert await shop.replay("evt_1") is Verdict.WILL_DO
    assert await shop.did() == (2, 2, 2)
    actions = [(a.name, a.subject) for a in (await shop.site.event("evt_1")).actions]
    assert set(actions[:3]) == {("repeat", f"{name}:evt_1") for name in ("charge", "mail", "credit")}
    assert actions[3:] == [("replay", "run 2"), ("replay", "run 3")]

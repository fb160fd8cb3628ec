"""Behind a trusted proxy, the client's address is what is kept with a request, accepted or refused."""

from __future__ import annotations

import pytest

from hookledger.operate import search
from tests.asgi_client import Pairs, Site, stripe_event
from tests.path.conftest import SECRET, MakeSite
from tests.path.served import serving

CHAIN = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "203.0.113.7, 127.0.0.9")]


async def kept(site: Site) -> list[str | None]:
    """The addresses of the accepted event and of the refused request."""
    async with site.inbox.opened() as store:
        [event] = await store.search.events()
        history = await search.find(site.inbox.context(store), str(event.id))
        refused = await store.rejections.sample()
    assert history.request is not None
    return [history.request.remote, *(row.remote for row in refused)]


async def deliver_both(site: Site, headers: Pairs, *, mounted: bool) -> None:
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    if mounted:
        assert (await site.deliver(stripe_event(), headers=headers)).status == 202
        assert (await site.deliver(stripe_event("evt_2"), secret="wrong", headers=headers)).status == 401
    else:
        async with serving(site) as served:
            draft = served.signed("stripe", b'{"id": "evt_1", "type": "a"}')
            pairs = [(name.decode(), value) for name, value in draft.headers.items()]
            assert (await served.ask("POST", "/stripe", draft.body, [*pairs, *headers])).status == 202
            assert (await served.ask("POST", "/stripe", b"{}", [*pairs, *headers])).status == 401
    await site.inbox.asgi.stop()


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("trusted", [True, False])
async def test_the_address_that_is_kept(site_on: MakeSite, database_url: str, mounted: bool, trusted: bool) -> None:
    peer = "192.0.2.1" if mounted else "127.0.0.1"
    proxies = [peer, "127.0.0.9"] if trusted else ["10.0.0.0/8"]
    settings = {"intake": {"trusted_proxies": proxies, "forwarded_header": "X-Forwarded-For"}}
    site = await site_on(database_url, settings)
    await deliver_both(site, CHAIN, mounted=mounted)
    assert await kept(site) == ["203.0.113.7" if trusted else peer] * 2


async def test_without_the_setting_it_is_the_peer(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url, {"intake": {"trusted_proxies": ["127.0.0.1"]}})
    await deliver_both(site, CHAIN, mounted=False)
    assert await kept(site) == ["127.0.0.1"] * 2

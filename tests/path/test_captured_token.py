"""A captured token with another event under it, over real HTTP: answered with success, quarantined and told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hookledger import State
from hookledger.model import Request
from tests.asgi_client import Site
from tests.contract.test_captured import forged
from tests.path.conftest import MakeSite
from tests.path.served import serving, test_key
from tests.path.test_provider_identity import settled_alert
from tests.providers.made import FIRST


async def source(site_on: MakeSite, database_url: str, name: str, folder: Path) -> Site:
    site = await site_on(database_url)
    options: dict[str, object] = {}
    if name == "paypal":
        options = {"test_key": f"file:{test_key(name, folder)[0]}"}
    site.inbox.source(name, provider=name, secrets=[FIRST[name].secret], options=options)
    return site


@pytest.mark.parametrize("name", ["mailgun", "paypal"])
async def test_a_forged_event_is_acked_and_quarantined_with_an_alert(
    site_on: MakeSite, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """2xx: a provider that is told of a failure would retry for days, or switch the endpoint off."""
    site = await source(site_on, database_url, name, tmp_path)
    async with serving(site) as served:
        captured = served.signed(name, json.dumps(FIRST[name].body).encode(), event_id="tx-1")
        first = await served.send(name, captured)
        assert 200 <= first.status < 300
        assert first.json["status"] == "accepted"
        for number in range(5):
            forgery = forged(name, Request("POST", "/", b"", (), captured.body), number)
            answer = await served.send(name, replace(captured, body=forgery.body))
            assert answer.json == {"status": "conflict", "event": first.json["event"]}
            assert answer.status == first.status
        event, [action] = await settled_alert(site, first.json["event"])
        assert (event.state, event.deliveries) == (State.PENDING, 6)
        assert (action.name, action.actor) == ("alert", "hookledger")
        assert "signed token" in action.reason
        again = await served.send(name, captured)
        assert again.json == {"status": "duplicate", "event": first.json["event"]}
    assert [record.getMessage().startswith("ALERT") for record in caplog.records].count(True) == 1
    assert await site.deliveries() == {"accepted": 1, "duplicate": 1, "conflict": 5}
    assert len(await site.events()) == 1

"""What log lines say of an event, and what they never say."""

import logging

import pytest

from hookledger import Event, State
from hookledger.observe.logs import AddFacts
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "hookledger.deliveries"]


# proves R76
async def test_each_delivery_has_one_line_where_it_is_wanted(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.deliver(stripe_event("evt_0"))
    assert told(caplog) == [], "off by default"
    with caplog.at_level(logging.INFO, "hookledger.deliveries"):
        await site.deliver(stripe_event())
        await site.deliver(stripe_event())
        await site.deliver(stripe_event(amount=1))
        await site.deliver(stripe_event("evt_2"), secret="whsec_of_somebody_else")
    assert [line.partition(":")[2].split(",")[0].split(" with")[0].strip() for line in told(caplog)] == [
        *("accepted", "duplicate", "conflict", "rejected")
    ]
    assert all("invoice.paid evt_1" in line for line in told(caplog)[:3])


# proves R26, R54
async def test_lines_name_the_event_and_hold_no_secret_or_payload(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def handle(event: Event) -> None:
        logging.getLogger("shop").warning("crediting")
        raise ConnectionError("refused")

    caplog.handler.addFilter(AddFacts())
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "hookledger.deliveries")
    await site.deliver(stripe_event(note="of the customer"), headers=[("Authorization", "Bearer hunter2")])
    await site.deliver(stripe_event(note="of the customer"), secret="whsec_of_somebody_else")
    await site.work()
    row = (await site.event("evt_1")).event
    assert row.state is State.RETRYING
    named = [record for record in caplog.records if getattr(record, "event_key", None) == "evt_1"]
    assert {record.name.split(".")[0] for record in named} == {"shop", "hookledger"}
    assert {(vars(record)["event_id"], vars(record)["event_type"]) for record in named} == {
        (str(row.id), "invoice.paid")
    }
    lines = "\n".join(caplog.handler.format(record) for record in caplog.records)
    for secret in (SECRET, "whsec_of_somebody_else", "hunter2", "of the customer"):
        assert secret not in lines

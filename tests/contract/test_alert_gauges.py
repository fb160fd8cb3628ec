"""What a consistency check stored reaches people and metrics, and so do messages and marks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hookledger.clock import Clock
from hookledger.observe.metrics.samples import Samples, in_text
from hookledger.operate import gauges
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Watch
from hookledger.store.protocol import Store
from tests.builders import SOURCE, Raw, claimed, settle
from tests.contract.test_alert_messages import look
from tests.contract.test_checks import checker, damage
from tests.contract.test_consistency import DEEDS, story

DEED = "a done call is called refused"


async def shown(store: Store) -> str:
    context: Any = SimpleNamespace(store=store, sources=SimpleNamespace(names=(SOURCE,)))
    samples = Samples()
    await gauges.consistency(context, samples)
    await gauges.alerts(context, samples)
    return in_text(samples)


async def test_what_a_check_found_is_told_once_and_shown(store: Store, clock: Clock, raw: Raw) -> None:
    watch = Watch("ops", frozenset({AlertKind.CONSISTENCY.value}))
    sql, expected = DEEDS[DEED]
    await damage(raw, await story(store, clock), sql)
    assert await look(store, watch) == []
    assert "consistency_checked_timestamp_seconds " not in await shown(store)
    await checker(store, clock).check("full")
    messages = await look(store, watch)
    assert {(one.kind, one.subject): one.count for one in messages} == {
        ("consistency", rule): n for rule, n in expected.items() if rule in {one.subject for one in messages}
    }
    assert messages, "people are told"
    assert len(await look(store, watch)) == len(messages), "and told once"
    text = await shown(store)
    assert f"hookledger_consistency_violations {float(sum(one.count for one in messages))}" in text
    assert "hookledger_consistency_checked_timestamp_seconds " in text
    assert f'hookledger_alert_messages{{state="waiting"}} {float(len(messages))}' in text


async def test_marked_events_are_shown_by_source(store: Store) -> None:
    owner = await claimed(store)
    assert await settle(store, owner, "fail")
    assert await store.alerts.alert(owner.id, "delivered 4 times, and its handler still fails")
    assert f'hookledger_event_alerts{{source="{SOURCE}"}} 1.0' in await shown(store)

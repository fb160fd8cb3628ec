"""What alerts make of a database whose clock was set back."""

from hookledger.clock import Clock
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Watch
from hookledger.store.protocol import Store
from tests.contract.test_alert_messages import fail, look, send

WATCH = Watch("ops", frozenset({AlertKind.DEAD_LETTER}))


async def test_a_clock_that_was_set_back_hides_no_dead_letter(store: Store, clock: Clock) -> None:
    await look(store, WATCH)
    await fail(store, 3)
    assert [one.count for one in await look(store, WATCH)] == [3]
    await send(store, WATCH)
    clock.offset -= 3600
    assert [one.count for one in await look(store, WATCH)] == [3], "what has a time to come was told before"
    await fail(store, 2, prefix="later")
    assert sum(one.count for one in await look(store, WATCH)) == 5
    await fail(store, 1, prefix="last")
    assert sum(one.count for one in await look(store, WATCH)) == 6
    clock.offset += 601
    assert [one.count for one in await send(store, WATCH)] == [3], "it is due a window later, by this clock"
    clock.offset += 3600
    assert sum(one.count for one in await look(store, WATCH)) == 6, "none is told again"

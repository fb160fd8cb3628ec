"""The metrics of the database: one reading for all who ask, and nothing where it does not answer."""

import asyncio
from typing import Any

import pytest

from hookledger.errors import Unavailable
from hookledger.observe.metrics.samples import Samples, in_text
from hookledger.operate import gauges
from hookledger.operate.gauges import DatabaseGauges


def reading(*readers: Any) -> DatabaseGauges:
    async def context() -> Any:
        return None

    return DatabaseGauges(context, readers=readers)


async def test_many_who_ask_together_make_one_reading() -> None:
    looks = 0

    async def reader(context: Any, samples: Samples) -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.01)
        samples.add("workers_alive", 2)

    found = reading(reader)
    texts = {in_text(samples) for samples in await asyncio.gather(*(found.samples() for _ in range(50)))}
    assert looks == 1
    [text] = texts
    assert "hookledger_workers_alive 2.0" in text
    await found.samples()
    assert looks == 1, "what was read is shown for a while"


@pytest.mark.parametrize("failure", [Unavailable("down"), RuntimeError("a defect")])
async def test_an_outage_leaves_out_all_and_says_so(failure: Exception) -> None:
    async def works(context: Any, samples: Samples) -> None:
        samples.add("workers_alive", 2)

    async def fails(context: Any, samples: Samples) -> None:
        raise failure

    text = in_text(await reading(works, fails).samples())
    assert "hookledger_database_up 0.0" in text
    assert "workers_alive" not in text


async def test_a_database_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "PATIENCE", 0.05)

    async def hangs(context: Any, samples: Samples) -> None:
        await asyncio.Event().wait()

    assert "hookledger_database_up 0.0" in in_text(await reading(hangs).samples())


async def test_one_who_gives_up_does_not_end_the_reading_of_the_others() -> None:
    go = asyncio.Event()

    async def reader(context: Any, samples: Samples) -> None:
        await go.wait()
        samples.add("workers_alive", 1)

    found = reading(reader)
    first, second = asyncio.create_task(found.samples()), asyncio.create_task(found.samples())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    assert "hookledger_database_up 1.0" in in_text(await second)

"""Counts over time, for charts: each process adds batches, maintenance sums them into longer steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ..rows import value_of
from ..session import Operations, Session, reads, scans, writes_lightly

STEPS = (10, 60, 600, 3600)
"""Seconds; each is a multiple of the one before."""
MOST = 20_000
"""Rows of one answer."""


class Rate(Struct, frozen=True):
    """How often something happened in one step of time."""

    began_at: datetime
    source: str
    """"" for requests that belong to no source."""
    what: str
    """Such as `delivery.accepted`, `rejected` or `attempt.failed`; `ack.0.05`: acknowledged within 0.05 s, and not
    within the next smaller bound."""
    n: int


class Rates(Operations):
    """`store.rates`."""

    @writes_lightly
    async def add(self, db: Session, process: str, number: int, counts: Mapping[tuple[str, str], int]) -> bool:
        """Add a batch of counts by source and what; False: this batch of this process was added before."""
        if not await db("number_rates", process=process, number=number):
            return False
        [row] = await db("rates_now")
        given = [(source, what, n) for (source, what), n in sorted(counts.items()) if n > 0]
        await db("add_rates", step=STEPS[0], at=floor(row["now_at"], STEPS[0]), process=process, counts=given)
        return True

    @scans()
    async def read(
        self, db: Session, step: int, since: datetime, until: datetime, *, source: str | None = None, most: int = MOST
    ) -> list[Rate]:
        """The counts of each step, in the order of time; at most so many."""
        steps = [one for one in STEPS if one <= step]
        given = {"step": step, "steps": steps, "since": floor(since, step), "until": until, "limit": most}
        if source is None:
            found = await db("read_rates", **given)
        else:
            found = await db("read_rates_of_source", **given, source=source)
        return [value_of(Rate, row) for row in found]

    @reads
    async def now(self, db: Session) -> datetime:
        """The database's clock."""
        [row] = await db("rates_now")
        now: datetime = row["now_at"]
        return now

    @writes_lightly
    async def sum_up(self, db: Session, step: int, keep: float) -> bool:
        """Move the oldest rows of this step, of all processes, into a row of the next longer step, or away after the
        longest. False: none are older than `keep` seconds. One row of the longer step at a time: a short transaction.
        """
        longer = STEPS[STEPS.index(step) + 1] if step != STEPS[-1] else None
        found = await db("oldest_rate", step=step)
        if not found:
            return False
        began = floor(found[0]["began_at"], longer or step)
        ends = began + timedelta(seconds=longer or step)
        if ends + timedelta(seconds=keep) > found[0]["now_at"]:
            return False
        sums: Counter[tuple[str, str]] = Counter()
        for row in await db("take_rates", step=step, since=began, until=ends):
            sums[row["source"], row["what"]] += row["n"]
        if longer is not None and sums:
            given = [(source, what, n) for (source, what), n in sorted(sums.items())]
            await db("add_rates", step=longer, at=began, process="", counts=given)
        return True

    @writes_lightly
    async def forget_writers(self, db: Session, unseen_for: float) -> None:
        """Forget processes that have written nothing for so many seconds."""
        await db("forget_rate_writers", unseen_for=unseen_for)


def floor(at: datetime, step: int) -> datetime:
    """Return the beginning of the step of time."""
    seconds = int(at.timestamp()) // step * step
    return datetime.fromtimestamp(seconds, UTC)

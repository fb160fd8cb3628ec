"""Tickets: numbers that only increase, the version of what was fetched (see `work/current.py`)."""

from __future__ import annotations

from ..session import Operations, Session, writes


class Tickets(Operations):
    """`store.tickets`."""

    @writes
    async def draw(self, db: Session, count: int) -> range:
        """Give out so many tickets: each is higher than every ticket given out before.

        Durable, although no guard in the same database could outlive its ticket: a handler may draw one, survive a
        crash of the database, and only then begin its transaction. Had the crash undone the draw, another handler
        would get the same number.
        """
        [row] = await db("draw_tickets", count=count)
        return range(row["last"] - count + 1, row["last"] + 1)

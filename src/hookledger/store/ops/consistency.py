"""The consistency check: what must balance in a sound inbox, and what was found not to.

Every entry below is one query of the same name in `store/sql/consistency.sql`, which finds the rows that break it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ...ledger import UNKNOWN_ARGUMENTS
from ...states import DeliveryOutcome
from ..session import Operations, Row, Session, scans

MADE = (DeliveryOutcome.ACCEPTED, DeliveryOutcome.INVALID, DeliveryOutcome.RECONCILED)
"""The outcomes of deliveries that made an event."""

TOTAL = "total"
"""The sums differ, whatever the rows say."""

ENTRIES: dict[str, str] = {
    "deliveries_without_event": "deliveries made events that are not there",
    "deliveries_astray": "duplicates and odd deliveries belong to no event and no imported key",
    "events_without_delivery": "events have no delivery that brought them",
    "requests_missing": "deliveries should have their bytes, and do not",
    "requests_astray": "requests are kept that no delivery names",
    "identities_astray": "identities belong to no event and to no import of keys",
    "events_without_identity": "events do not own their key: it may come in again as new",
    "pruned_without_identity": "events were pruned, and their keys with them: they may come in again as new",
    "events_without_attempt": "events are in a state that no attempt led to",
    "events_unlike_attempts": "events and their attempts disagree on whether they were ever processed",
    "attempts_astray": "attempts belong to no event, or to a claim that was never given",
    "events_without_action": "events were discarded, replayed or admitted without the audit saying so",
    "effects_without_event": "effects belong to no event",
    "pruned_and_here": "events were pruned, and are here all the same",
    "effects_without_attempt": "effects of event.once have no attempt that they were committed with",
    "calls_missing": "effects were called more or less often than there are calls on record",
    "calls_astray": "calls belong to no effect, or to a generation that it has not come to",
    "effects_unlike_calls": "effects are in a state that their calls contradict",
}
"""What is the matter with the rows that each query finds, after their number."""


class Oddity(Struct, frozen=True):
    """Rows that something is the matter with: how many, and up to five of them."""

    kind: str
    count: int
    sample: tuple[str, ...]
    """Ids of events or, where there is none, of requests or imports; with `NAME:KEY` for an effect."""


class Accounting(Struct, frozen=True):
    """All books in one consistent snapshot."""

    deliveries: dict[str, int]
    """By outcome."""
    events: dict[str, int]
    """By state."""
    admitted: int
    """Events that an operator made of odd deliveries: no delivery was answered for them alone."""
    identities: dict[str, int]
    """By kind."""
    attempts: dict[str, int]
    """By outcome."""
    effects: dict[str, int]
    """By state."""
    calls: dict[str, int]
    """By outcome; `open` while it is not known."""
    imbalances: tuple[Oddity, ...]
    pruned_by_state: dict[str, int] = {}
    """Events that retention took away with the deliveries that made them, by the state they were in."""

    @property
    def pruned(self) -> int:
        """How many those are. Identities, effects and later deliveries may point at them, and at nothing else."""
        return sum(self.pruned_by_state.values())

    @property
    def made(self) -> int:
        """Deliveries that made an event each."""
        return sum(self.deliveries.get(outcome, 0) for outcome in MADE)

    @property
    def kept(self) -> int:
        """Events that are here."""
        return sum(self.events.values())


class Books(Operations):
    """`store.books`. Reads only, whole tables where need be, and keeps no ack waiting."""

    async def accounting(self, *, limit: float = 300.0) -> Accounting:
        """Everything that must balance, as it stands at one instant, while work goes on.

        Proves nothing about what left no trace in any table. Raises Unavailable when it takes longer than `limit`
        seconds: that long the snapshot keeps the database from clearing away old rows.
        """
        return await self._database.scan(_accounting, limit)

    @scans()
    async def stuck(self, db: Session, longer_than: float) -> list[Oddity]:
        """Leases of events and of effects that ran out more than so many seconds ago, and nobody took back."""
        names = ("stuck_events", "stuck_effects")
        found = [_oddity(name, await db(name, longer_than=longer_than)) for name in names]
        return [odd for odd in found if odd is not None]

    @scans()
    async def unperformable(self, db: Session) -> Oddity | None:
        """Outbox entries that wait for a worker that knows their arguments."""
        return _oddity("unperformable", await db("unperformable", reason=UNKNOWN_ARGUMENTS))

    @scans()
    async def settings(self, db: Session) -> dict[str, str]:
        """The database's own settings that durability and isolation rest on, by its own names for them."""
        return {row["name"]: row["setting"] for row in await db("database_settings")}

    async def integrity(self, *, limit: float = 300.0) -> list[str]:
        """What the database finds wrong with its file; nothing where it has no such check. Raises as `accounting`."""
        return await self._database.scan(_integrity, limit)


async def _accounting(db: Session) -> Accounting:
    figures: dict[str, dict[str, int]] = {}
    for row in await db("figures"):
        figures.setdefault(row["book"], {})[row["entry"]] = row["n"]
    found = [_oddity(kind, await db(kind)) for kind in ENTRIES]
    return balance(figures, [odd for odd in found if odd is not None])


async def _integrity(db: Session) -> list[str]:
    return [row["finding"] for row in await db("database_damage") if row["finding"] != "ok"]


def _oddity(kind: str, rows: list[Row]) -> Oddity | None:
    if not rows:
        return None
    named = (" ".join(str(part) for part in (row["id"], row["label"]) if part) for row in rows)
    return Oddity(kind, rows[0]["n"], tuple(named))


def balance(figures: Mapping[str, dict[str, int]], oddities: list[Oddity]) -> Accounting:
    """The books, from what a store counted by book and entry. What was pruned stands on both sides of the sum."""
    books = [figures.get(name, {}) for name in ("deliveries", "events", "identities", "attempts", "effects", "calls")]
    deliveries, events, identities, attempts, effects, calls = books
    admitted, pruned = figures.get("admitted", {}).get("admitted", 0), figures.get("pruned", {})
    off = sum(deliveries.get(outcome, 0) for outcome in MADE) + admitted - sum(events.values())
    found = [Oddity(TOTAL, abs(off), ()), *oddities] if off else oddities
    return Accounting(deliveries, events, admitted, identities, attempts, effects, calls, tuple(found), pruned)

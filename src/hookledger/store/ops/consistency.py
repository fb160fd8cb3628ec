"""The consistency check: what must balance in a sound inbox, and what was found not to.

Every entry below is one query of the same name in `store/sql/consistency.sql`, which finds the rows that break it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ...ledger import UNKNOWN_ARGUMENTS
from ..rows import NEW
from ..session import Operations, Row, Session, scans
from .rules import whole

TOTAL = "total"
"""The sums differ, whatever the rows say."""

ENTRIES: dict[str, str] = {
    "deliveries_without_event": "deliveries made events that are not there",
    "deliveries_astray": "duplicates and quarantined deliveries belong to no event and no imported key",
    "events_without_delivery": "events have no delivery that brought them",
    "requests_missing": "deliveries should have their bytes, and do not",
    "requests_astray": "requests are kept that no delivery names",
    "identities_astray": "identities belong to no event and to no import of keys",
    "events_without_identity": "events do not own their key: a redelivery may become a new event",
    "pruned_without_identity": "events were pruned, and their keys with them: a redelivery may become a new event",
    "events_without_attempt": "events are in a state that no attempt led to",
    "events_unlike_attempts": "events and their attempts disagree on whether they were ever processed",
    "attempts_astray": "attempts belong to no event, or to a claim that was never given",
    "stages_astray": "stages belong to no event, or to one that was never processed",
    "entities_overlap": "entities have two events that may run concurrently, although they are ordered",
    "entities_stuck": "events wait for their turn in an entity, and no worker will ever give it to them",
    "events_without_action": "events were discarded, replayed, approved or accepted without an audit log entry",
    "approvals_astray": "events run under an approval that the audit log does not have for that run",
    "effects_without_event": "effects belong to no event",
    "pruned_and_here": "events were pruned, and are here all the same",
    "effects_without_attempt": "effects of event.once have no attempt that they were committed with",
    "calls_missing": "effects were called more or less often than there are calls on record",
    "calls_astray": "calls belong to no effect, or to a generation that it has not come to",
    "effects_unlike_calls": "effects are in a state that their calls contradict",
    "guards_without_event": "guards are of no event",
    "guards_without_answer": "guards have a version that no attempt of their event applied",
    "answers_astray": "answers of guards belong to no event, or to no guard",
    "answers_without_attempt": "answers of guards have no attempt that they were committed with",
    "kept_answers_astray": "answers of handlers are of no event, or of a run that it never had",
}
"""What is the matter with the rows that each query finds, after their number."""


class Violation(Struct, frozen=True):
    """Rows that something is the matter with: how many, and up to five of them."""

    kind: str
    count: int
    sample: tuple[str, ...]
    """Ids of events or, where there is none, of requests or imports; with `NAME:KEY` for an effect or a guard."""


class ConsistencyReport(Struct, frozen=True):
    """Every total in one consistent snapshot."""

    deliveries: dict[str, int]
    """By outcome."""
    events: dict[str, int]
    """By state."""
    from_quarantine: int
    """Events that an operator accepted from quarantine."""
    identities: dict[str, int]
    """By kind."""
    attempts: dict[str, int]
    """By outcome."""
    effects: dict[str, int]
    """By state."""
    calls: dict[str, int]
    """By outcome; `open` while it is not known."""
    imbalances: tuple[Violation, ...]
    pruned_by_state: dict[str, int] = {}
    """Events that retention deleted with the deliveries that made them, by their last state."""
    guards: dict[str, int] = {}
    """`guards`, and their answers: `applied` and `stale`."""
    stages: dict[str, int] = {}
    """Stages of events, by state: each belongs to an event, which its delivery made."""

    @property
    def pruned(self) -> int:
        """How many those are. Identities, effects and later deliveries may point at them, and at nothing else."""
        return sum(self.pruned_by_state.values())

    @property
    def made(self) -> int:
        """Deliveries that made an event each."""
        return sum(self.deliveries.get(outcome, 0) for outcome in NEW)

    @property
    def kept(self) -> int:
        """Events that are here."""
        return sum(self.events.values())


class Consistency(Operations):
    """`store.consistency`. Reads only, whole tables where need be, and keeps no ack waiting."""

    async def report(self, *, limit: float = 300.0) -> ConsistencyReport:
        """Everything that must balance, in one snapshot, while workers run.

        Proves nothing about what left no trace in any table. Raises Unavailable when it takes longer than `limit`
        seconds: that long the snapshot keeps the database from clearing away old rows.
        """
        return await self._database.scan(_report, limit)

    @scans()
    async def stuck(self, db: Session, longer_than: float) -> list[Violation]:
        """Leases of events and effects that expired more than so many seconds ago and were not reclaimed."""
        names = ("stuck_events", "stuck_effects")
        found = [_violation(name, await db(name, longer_than=longer_than)) for name in names]
        return [violation for violation in found if violation is not None]

    @scans()
    async def unperformable(self, db: Session) -> Violation | None:
        """Outbox entries that wait for a worker that knows their arguments."""
        return _violation("unperformable", await db("unperformable", reason=UNKNOWN_ARGUMENTS))

    @scans()
    async def settings(self, db: Session) -> dict[str, str]:
        """The database's own settings that durability and isolation rest on, by its own names for them."""
        return {row["name"]: row["setting"] for row in await db("database_settings")}

    async def integrity(self, *, limit: float = 300.0) -> list[str]:
        """What the database finds wrong with its file; nothing where it has no such check. Raises as `report`."""
        return await self._database.scan(_integrity, limit)


async def _report(db: Session) -> ConsistencyReport:
    figures: dict[str, dict[str, int]] = {}
    for row in await db("figures"):
        figures.setdefault(row["book"], {})[row["entry"]] = row["n"]
    found = [_violation(kind, await whole(db, kind)) for kind in ENTRIES]
    return balance(figures, [violation for violation in found if violation is not None])


async def _integrity(db: Session) -> list[str]:
    return [row["finding"] for row in await db("database_damage") if row["finding"] != "ok"]


def _violation(kind: str, rows: list[Row]) -> Violation | None:
    if not rows:
        return None
    named = (" ".join(str(part) for part in (row["id"], row["label"]) if part) for row in rows)
    return Violation(kind, rows[0]["n"], tuple(named))


def balance(figures: Mapping[str, dict[str, int]], violations: list[Violation]) -> ConsistencyReport:
    """The report, from what a store counted by book and entry. What was pruned stands on both sides of the sum."""
    books = [figures.get(name, {}) for name in ("deliveries", "events", "identities", "attempts", "effects", "calls")]
    deliveries, events, identities, attempts, effects, calls = books
    from_quarantine, pruned = figures.get("quarantine", {}).get("quarantine", 0), figures.get("pruned", {})
    off = sum(deliveries.get(outcome, 0) for outcome in NEW) + from_quarantine - sum(events.values())
    found = [Violation(TOTAL, abs(off), ()), *violations] if off else violations
    totals = (deliveries, events, from_quarantine, identities, attempts, effects, calls)
    return ConsistencyReport(*totals, tuple(found), pruned, figures.get("guards", {}), figures.get("stages", {}))

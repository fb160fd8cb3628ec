"""The unique constraint in memory, for tests of what an arrival is."""

from __future__ import annotations

from uuid import UUID

from hookledger.ids import quarantine_identity
from hookledger.model import Arrival, Recorded
from hookledger.states import State
from hookledger.store.classify import Owner, classify, conflicts, proposals
from hookledger.store.rows import NEW
from tests.builders import SOURCE, item


class Constraint:
    """A unique constraint in memory: the first proposer of an identity owns it for good."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Owner] = {}
        self.events: set[UUID] = set()

    def record(self, *arrivals: Arrival) -> list[Recorded]:
        wanted = proposals(arrivals)
        owners: dict[bytes, Owner] = {}
        for p in wanted:
            owners[p.identity] = self.rows.setdefault(p.identity, Owner(p.event_id, p.fingerprint))
        owners |= {identity: self.rows[identity] for identity in conflicts(arrivals, owners) & self.rows.keys()}
        result = classify(arrivals, owners)
        for identity, (event_id, fingerprint) in result.repoint.items():
            self.rows[identity] = Owner(event_id, fingerprint)
        for identity in result.release:
            del self.rows[identity]
        recorded = [v.recorded for v in result.verdicts]
        new = [r.event_id for r in recorded if r.outcome in NEW]
        assert len(set(new)) == len(new)
        assert not self.events & set(new)
        self.events |= set(new)
        self.rows = {k: o._replace(state=State.PENDING) for k, o in self.rows.items()}
        return recorded

    def admit(self, key: str, body: bytes, event_id: UUID) -> None:
        """As an operator does with a conflict."""
        content = item(key, body)
        identity = quarantine_identity(SOURCE, content.identity, content.fingerprint)
        self.rows[identity] = Owner(event_id, content.fingerprint, State.PENDING)
        self.events.add(event_id)

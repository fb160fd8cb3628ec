"""The books: what must balance in a sound inbox, and what was found not to.

Every entry below is one query of the same name in each store's `accounting.sql`, which finds the rows that break it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from .states import DeliveryOutcome

SAMPLE = 5
"""Rows of each imbalance that are named."""

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


def balance(figures: Mapping[str, dict[str, int]], oddities: list[Oddity]) -> Accounting:
    """The books, from what a store counted by book and entry. What was pruned stands on both sides of the sum."""
    books = [figures.get(name, {}) for name in ("deliveries", "events", "identities", "attempts", "effects", "calls")]
    deliveries, events, identities, attempts, effects, calls = books
    admitted, pruned = figures.get("admitted", {}).get("admitted", 0), figures.get("pruned", {})
    off = sum(deliveries.get(outcome, 0) for outcome in MADE) + admitted - sum(events.values())
    found = [Oddity(TOTAL, abs(off), ()), *oddities] if off else oddities
    return Accounting(deliveries, events, admitted, identities, attempts, effects, calls, tuple(found), pruned)

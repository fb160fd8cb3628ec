"""What a bulk set consists of, and freezing it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ...errors import WrongState
from ..session import Row, Session
from .filters import Filter, condition
from .job import NewJob, UnknownEffects

FREEZE = 600.0
"""Seconds that it may take: about six for a million events on an ordinary disk."""


def set_of(query: str, new: NewJob) -> tuple[str, Filter, str | None]:
    """What is to be asked about the set of a new job."""
    return (
        (query, new.where, None) if new.resolving is None else (f"{query}_unknown", new.where, new.resolving.effect)
    )


def asked(db: Session, query: str, where: Filter, effect: str | None) -> tuple[str, dict[str, Any]]:
    """A query about the events for which the filter holds, and about their unknown effects of this name."""
    holds, values = condition(db, where)
    return db.piece(query).replace("{where}", holds), {"effect_name": effect, **values}


def size_of(row: Row, new: NewJob, expected: int | None) -> tuple[int, int | None]:
    """How many events are in a set that may be frozen, and how many effects if these are to be decided."""
    if new.resolving is None:
        return _checked(row["n"], expected), None
    found = _checked_effects(unknown_effects_of(row), expected, new.resolving.effect, new.fingerprint)
    return found.events, found.effects


def unknown_effects_of(row: Row) -> UnknownEffects:
    return UnknownEffects(row["events"], row["effects"], sha256(row["calls"].encode()).hexdigest()[:16])


def _checked(found: int, expected: int | None) -> int:
    """The size of a set that may be frozen."""
    if expected is not None and found != expected:
        says = f"{found:,} events match now, and not the {expected:,} that were agreed to"
        raise WrongState(f"{says}: nothing was planned")
    if found == 0:
        raise WrongState("no event matches: nothing was planned")
    return found


def _checked_effects(found: UnknownEffects, expected: int | None, name: str, seen: str | None) -> UnknownEffects:
    """The same for a set whose effects are to be resolved: what is agreed to is how many effects, and if there is a
    fingerprint, these very calls."""
    if expected is not None and found.effects != expected:
        says = f"{found.effects:,} effects {name} are unknown now, and not the {expected:,} that were agreed to"
        raise WrongState(f"{says}: nothing was planned")
    if seen is not None and found.fingerprint != seen:
        says = f"the effects {name} that are unknown now, or their newest calls, are not those that were looked at"
        raise WrongState(f"{says}: nothing was planned. Look again: what you know may not be about these")
    if found.events == 0:
        raise WrongState(f"no event that matches has an effect {name} that is unknown: nothing was planned")
    return found

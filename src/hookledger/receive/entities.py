"""What an event is about, and its place among the events of the same entity: rules of a source, applied at intake."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..model import Item, covers
from ..providers.contract import Contract
from ..providers.fields import Constant, Field, body, field
from .settings import SourceSettings


class EntityRule(Struct, frozen=True):
    """A source's rule. The intake keeps its result on the event, so that every worker obeys it."""

    fields: tuple[Field, ...]
    """The first of these that is present names the entity; empty: the contract's object id does."""
    ordered: frozenset[str]
    """Types, exact or ending in `*`, of which an entity has one event at a time."""
    signed: bool
    """Whether the time of an event is signed, and decides its place."""
    hold: bool

    def applied(self, item: Item, entity: str | None) -> Item:
        """Return the item with its entity. Without one it is not ordered."""
        if entity is None:
            return item
        ordered = any(covers(pattern, item.type) for pattern in self.ordered)
        order_at = item.occurred_at if ordered and self.signed else None
        return msgspec.structs.replace(
            item, entity=entity, ordered=ordered, order_at=order_at, hold=ordered and self.hold
        )


def entity_rule(contract: Contract, settings: SourceSettings) -> EntityRule | None:
    """Return the rule of a source; None: its events have no entities. Raises ConfigError for one that cannot work."""
    if not settings.ordered and not settings.entity:
        if settings.after_failure != "continue":
            raise ConfigError("after_failure is about ordered events: set ordered, or remove it")
        return None
    fields = tuple(map(_field, settings.entity))
    if any(isinstance(given, Constant) for given in fields):
        raise ConfigError("an entity of fixed text would be the same for all events: name a field")
    if not fields and not contract.object_id and not any(known.object_id for known in contract.per_type):
        raise ConfigError(f"{contract.title} names no object, so events have no entity: set entity")
    for pattern in settings.ordered:
        if not pattern or "*" in pattern[:-1]:
            raise ConfigError(f"ordered: {pattern!r} is not an event type: a * may only stand at the end")
    return EntityRule(fields, settings.ordered, _time_is_signed(contract), settings.after_failure == "hold")


def _field(text: str) -> Field:
    """A field of the body by its path alone, or any field as in `key`."""
    return field(text) if ":" in text else body(text)


def _time_is_signed(contract: Contract) -> bool:
    times = [contract.occurred_at, *contract.occurred_else]
    times += [time for known in contract.per_type for time in known.occurred_at]
    given = [time for time in times if time is not None]
    return bool(given) and all(map(contract.scheme.signs, given))

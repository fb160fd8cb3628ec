"""Filters for events and effects: lists, bulk jobs and erasure share them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ...errors import ConfigError
from ...model import check_stage_name
from ...states import EffectState, State
from ..session import Session

LONGEST = 1000
"""Characters of anything that is looked for."""
Words = Annotated[str, Meta(min_length=1, max_length=LONGEST, pattern=r"^[^\x00]+$")]
Moment = Annotated[
    datetime, Meta(tz=True, extra_json_schema={"format": "date-time", "pattern": r"^(19[7-9]\d|[2-8]\d{3})-"})
]
LAST = "\U0010ffff"
"""After whatever begins alike."""
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


class Filter(Struct, frozen=True, forbid_unknown_fields=True):
    """Events for which everything holds that is given; all of them if nothing is."""

    source: Words | None = None
    type: Words | None = None
    """Exact, or ending in `*`."""
    version: Words | None = None
    """Exact, or ending in `*`: the version by which the handler is selected."""
    states: tuple[State, ...] = ()
    """In one of these; in any if there is none."""
    key: Words | None = None
    """The event key as it is shown."""
    object_id: Words | None = None
    """The provider's id of what the event is about."""
    account: Words | None = None
    """On whose behalf, where a source hears of several accounts: Stripe Connect's `account`, say."""
    text: Words | None = None
    """Somewhere in the body, exactly so."""
    error: Words | None = None
    """Somewhere in the reason or the error."""
    cause: Words | None = None
    """Why it fails, as `hookledger failures` groups it."""
    effect: Words | None = None
    """With an effect of this NAME, or this NAME:KEY."""
    since: Moment | None = None
    """Received then or later."""
    until: Moment | None = None
    """Received before then."""
    attention: bool = False
    """Only those that an operator should look at: failed, in review, with an alert, or with an effect that failed for
    good or whose outcome is unknown."""
    lacks_stage: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Processed events of the source, which must be given, without this stage: those from before there was one."""

    def __post_init__(self) -> None:
        for name in ("source", "type", "version", "key", "object_id", "account", "text", "error", "cause", "effect"):
            check_words(f"the filter's {name}", getattr(self, name))
        for name in ("since", "until"):
            _check_moment(name, getattr(self, name))
        if self.lacks_stage is not None:
            check_stage_name(self.lacks_stage)


NOT_OVER = (EffectState.UNKNOWN, EffectState.FAILED, EffectState.PLANNED, EffectState.STARTED)


class EffectFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Effects for which everything holds that is given."""

    states: tuple[EffectState, ...] = NOT_OVER
    """In one of these; in any if there is none."""
    name: Words | None = None
    """As it is declared."""
    source: Words | None = None

    def __post_init__(self) -> None:
        for name in ("name", "source"):
            check_words(f"the effect's {name}", getattr(self, name))


def check_words(what: str, value: str | None) -> None:
    """What no database can look for is refused here, in words."""
    if value is None:
        return
    if value == "":
        raise ConfigError(f"{what} is empty")
    if len(value) > LONGEST:
        raise ConfigError(f"{what} is longer than {LONGEST:,} characters")
    if "\0" in value:
        raise ConfigError(f"{what} has a NUL in it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{what} has half a character in it (a lone surrogate)")


def _check_moment(name: str, value: datetime | None) -> None:
    if value is None:
        return
    if value.tzinfo is None:
        raise ConfigError("the filter's since and until need a time zone")
    if not EARLIEST <= value < LATEST:
        raise ConfigError(f"the filter's {name} is not between {EARLIEST.year} and {LATEST.year}")


EVERYTHING = Filter()


def written(where: Filter) -> str:
    """Return the filter as JSON, without what it leaves open: earlier releases do not know every field."""
    given = {name: getattr(where, name) for name in where.__struct_fields__}
    return msgspec.json.encode({n: value for n, value in given.items() if value != getattr(EVERYTHING, n)}).decode()


EQUAL = frozenset({"source", "type", "key", "object_id", "account", "cause", "version"})
"""Columns that are compared as a whole."""


def condition(db: Session, where: Filter) -> tuple[str, dict[str, Any]]:
    """What stands after WHERE, about events called `e`, and the values of its parameters."""
    texts: list[str] = []
    values: dict[str, Any] = {}
    for name, given in _needed(where):
        piece = db.piece("where_equal" if name in EQUAL else f"where_{name}")
        texts.append(piece.replace("{column}", name))
        values |= given
    if where.states:  # names of ours
        names = ", ".join(f"'{state.value}'" for state in where.states)
        texts.append(db.piece("where_states").replace("{states}", names))
    return "\n  AND ".join(texts) or db.piece("where_everything"), values


def _needed(where: Filter) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pieces and their values, the costly ones last."""
    if where.type is not None and where.type.endswith("*"):
        yield "type_begins", {"type": where.type[:-1], "type_end": where.type[:-1] + LAST}
    elif where.type is not None:
        yield "type", {"type": where.type}
    if where.version is not None and where.version.endswith("*"):
        yield "version_begins", {"version": where.version[:-1], "version_end": where.version[:-1] + LAST}
    elif where.version is not None:
        yield "version", {"version": where.version}
    for name in ("source", "key", "object_id", "account", "cause", "since", "until"):
        if (value := getattr(where, name)) is not None:
            yield name, {name: value}
    if where.attention:
        yield "attention", {}
    if where.lacks_stage is not None:
        if where.source is None:
            raise ConfigError("the filter's lacks_stage needs a source: name the one whose events have the stage")
        yield "lacks_stage", {"lacks_stage": where.lacks_stage}
    if where.effect is not None:
        name, separator, key = where.effect.partition(":")
        yield ("effect_key", {"effect": name, "effect_key": key}) if separator else ("effect", {"effect": name})
    if where.error is not None:
        yield "error", {"error": where.error}
    if where.text is not None:
        yield "text", {"text": where.text.encode()}

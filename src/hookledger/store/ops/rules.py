"""The rules of the consistency check, by the table whose rows they are about.

Each rule is one query of `store/sql/consistency.sql`. It is asked about a whole table, or about the rows with some
keys, in the same words; so the check in pieces finds what the check in one snapshot finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from ...ids import FIRST_ID
from ..session import Row, Session

Key = tuple[Any, ...]
"""A primary key: UUID, bytes and int."""
ALL = "count(*) OVER () AS n"
FEW = "LIMIT 5"


class Walk(Struct, frozen=True):
    """A walk through a table in the order of its primary key, and the rules about the rows."""

    table: str
    alias: str
    key: Mapping[str, str]
    """Columns and their types."""
    rules: tuple[str, ...]
    wide: bool = False
    """Whether each step reads all identities, which have no index by event: an index would cost every ack."""

    @property
    def start(self) -> Key:
        """Before every key."""
        first: dict[str, Any] = {"uuid": FIRST_ID, "bytea": b"", "integer": -1, "bigint": -1}
        return tuple(first[kind] for kind in self.key.values())

    def key_of(self, row: Row) -> Key:
        """The key in a row with the columns `key_0`, `key_1` …"""
        kinds = enumerate(self.key.values())
        return tuple(_value(row[f"key_{place}"], kind) for place, kind in kinds)


WALKS: dict[str, Walk] = {
    "deliveries": Walk(
        "deliveries",
        "d",
        {"request_id": "uuid", "item": "integer"},
        ("deliveries_without_event", "deliveries_astray", "requests_missing"),
    ),
    "requests": Walk("requests", "r", {"id": "uuid"}, ("requests_astray",)),
    "events": Walk(
        "events",
        "e",
        {"id": "uuid"},
        (
            "events_without_delivery",
            "events_without_attempt",
            "events_unlike_attempts",
            "events_without_action",
            "stages_astray",
            "entities_overlap",
            "entities_stuck",
            "approvals_astray",
        ),
    ),
    "attempts": Walk("attempts", "a", {"event_id": "uuid", "claim": "bigint"}, ("attempts_astray",)),
    "effects": Walk(
        "effects",
        "f",
        {"identity": "bytea"},
        ("effects_without_event", "effects_without_attempt", "calls_missing", "effects_unlike_calls"),
    ),
    "effect_calls": Walk("effect_calls", "c", {"identity": "bytea", "number": "integer"}, ("calls_astray",)),
    "guards": Walk("guards", "g", {"identity": "bytea"}, ("guards_without_event", "guards_without_answer")),
    "guard_answers": Walk(
        "guard_answers",
        "w",
        {"event_id": "uuid", "claim": "bigint", "identity": "bytea"},
        ("answers_astray", "answers_without_attempt"),
    ),
    "answers": Walk("answers", "n", {"event_id": "uuid"}, ("kept_answers_astray",)),
    "identities": Walk("identities", "i", {"identity": "bytea"}, ("identities_astray",)),
    "pruned": Walk("pruned", "p", {"event_id": "uuid"}, ("pruned_and_here",)),
    "keys of events": Walk("events", "e", {"id": "uuid"}, ("events_without_identity",), wide=True),
    "keys of pruned events": Walk("pruned", "p", {"event_id": "uuid"}, ("pruned_without_identity",), wide=True),
}
"""In the order of the full check."""
WALK_OF: dict[str, str] = {rule: name for name, walk in WALKS.items() for rule in walk.rules}


class Suspect(Struct, frozen=True):
    """A row that a rule found."""

    rule: str
    key: Key
    id: str
    """Of the event or, where there is none, of a request or an import; or an identity. No key of an effect or a
    guard: it may hold personal data, and what is stored outlives an erasure."""


# ── whole tables ──


async def whole(db: Session, rule: str) -> list[Row]:
    """A few of the rows that a rule finds in the whole table; each says how many there are."""
    walk = WALKS[WALK_OF[rule]]
    again = _all(db, "effects", "g")
    text = _composed(db, rule, found=ALL, among=_all(db, walk.table, walk.alias), again=again, at_most=FEW)
    return await db.run(text, {})


# ── pieces ──


async def among(db: Session, rule: str, keys: Sequence[Key]) -> list[Suspect]:
    """The rows with these keys that the rule finds."""
    return _suspects(rule, await db.run(about_keys(db, rule), {"keys": list(keys)})) if keys else []


def about_keys(db: Session, rule: str) -> str:
    """The rule as a query about the rows with `:keys`."""
    walk = WALKS[WALK_OF[rule]]
    listed = db.piece(f"keyed_{walk.table}")
    again = listed.replace("AS f ON f.", "AS g ON g.")
    return _composed(db, rule, found=_columns(walk, "k", "key_{}"), among=listed, again=again)


async def between(db: Session, rule: str, after: Key, last: Key) -> list[Suspect]:
    """The rows with keys between two that the rule finds; for a wide walk."""
    walk = WALKS[WALK_OF[rule]]
    [column] = walk.key
    place = f"(SELECT * FROM {_all(db, walk.table, 't')} WHERE t.{column} > :after AND t.{column} <= :last)"  # noqa: S608
    owners = "AND event_id > :after AND event_id <= :last"
    found = f"{walk.alias}.{column} AS key_0"
    text = _composed(db, rule, found=found, among=f"{place} AS {walk.alias}", owners=owners)
    return _suspects(rule, await db.run(text, {"after": after[0], "last": last[0]}))


async def next_keys(db: Session, walk: Walk, after: Key, last: Key, most: int, skip: int = 0) -> list[Key]:
    """Up to so many keys after one, up to another, in their order."""
    bounds = {f"after_{n}": value for n, value in enumerate(after)} | {f"last_{n}": v for n, v in enumerate(last)}
    text = page(db, walk, "next_keys")
    return [walk.key_of(row) for row in await db.run(text, {**bounds, "most": most, "skip": skip})]


async def last_key(db: Session, walk: Walk) -> Key | None:
    """The last key of a table, None if it is empty."""
    return next((walk.key_of(row) for row in await db.run(page(db, walk, "last_key"), {})), None)


def page(db: Session, walk: Walk, query: str) -> str:
    """`next_keys` or `last_key` of a table."""
    names = [f"{walk.alias}.{column}" for column in walk.key]
    marks = {part: ", ".join(f":{part}_{n}" for n in range(len(names))) for part in ("after", "last")}
    filling = {
        "columns": _columns(walk, walk.alias),
        "among": _all(db, walk.table, walk.alias),
        "key": ", ".join(names),
        "backwards": ", ".join(f"{name} DESC" for name in names),
        **marks,
    }
    return _filled(db.piece(query), filling)


def _columns(walk: Walk, alias: str, name: str = "") -> str:
    columns = enumerate(walk.key)
    return ", ".join(f"{alias}.{name.format(place) or column} AS key_{place}" for place, column in columns)


def _all(db: Session, table: str, alias: str) -> str:
    return f"{db.piece('our_schema')}.{table} AS {alias}"


def _composed(db: Session, rule: str, **filling: str) -> str:
    return _filled(db.piece(rule), {"again": "", "owners": "", "at_most": "", **filling})


def _filled(text: str, filling: Mapping[str, str]) -> str:
    for name, words in filling.items():
        text = text.replace("{" + name + "}", words)
    return text


def _suspects(rule: str, rows: Sequence[Row]) -> list[Suspect]:
    walk = WALKS[WALK_OF[rule]]
    return [Suspect(rule, walk.key_of(row), str(row["id"] or row["label"])) for row in rows]


def _value(value: Any, kind: str) -> Any:
    return UUID(bytes=value) if kind == "uuid" and isinstance(value, bytes) else value


# ── positions, as text ──


def written(key: Key) -> list[str | int]:
    """A key as JSON can hold it."""
    return [value if isinstance(value, int) else _hex(value) for value in key]


def read(walk: Walk, given: Sequence[str | int]) -> Key:
    """The key that was written so."""
    makes: dict[str, Any] = {"uuid": UUID, "bytea": bytes.fromhex, "integer": int, "bigint": int}
    return tuple(makes[kind](value) for kind, value in zip(walk.key.values(), given, strict=True))


def _hex(value: Any) -> str:
    return value.hex if isinstance(value, UUID) else bytes(value).hex()

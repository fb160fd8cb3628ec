"""Events as JSON lines, from one inbox to another, with their identities and effects.

A duplicate there is a duplicate, and what is done there is skipped.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ..errors import BadData, ConfigError
from ..filters import EVERYTHING, Filter
from ..store.protocol import Store
from ..store.transfer import BYTES, FLAG, IDENT, LATER, TABLES, TIME, Line, Taken

FORMAT = "hookledger events"
VERSION = 1
PAGE = 1000
"""Events between two looks at all identities."""
BATCH = 50
"""Lines that are taken in one transaction."""


UNREADABLE = (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
"""What a line that nobody exported can raise while it is read."""


class Unreadable(ConfigError):
    """A line of the file cannot be taken in; its batch was not."""


# ── out ──────────────────────────────────────────────────────────────────────


async def export(store: Store, where: Filter = EVERYTHING) -> AsyncIterator[bytes]:
    """One line of JSON for each event, the newest first, between a first line that says what it is and a last one
    that says how many there were. Events that change meanwhile are told as they are when their turn comes."""
    yield msgspec.json.encode({"format": FORMAT, "version": VERSION}) + b"\n"
    before: UUID | None = None
    told = 0
    while True:
        page = await store.events(where, before=before, limit=PAGE)
        identities = await store.transfer.identities([row.id for row in page]) if page else {}
        for row in page:
            line = await store.transfer.rows(row.id)
            if line is not None:  # pruned a moment ago
                told += 1
                yield _encode({**line, "identities": identities[row.id]}) + b"\n"
        if len(page) < PAGE:
            break
        before = page[-1].id
    yield msgspec.json.encode({"end": told}) + b"\n"


def _encode(line: Line) -> bytes:
    shown = {
        table: [{name: _out(kind, row[name]) for name, kind in TABLES[table].items()} for row in line[table]]
        for table in TABLES
    }
    return msgspec.json.encode(shown)


def _out(kind: str, value: Any) -> Any:
    """Bytes as text where they are text; else as base64."""
    if value is None or kind != BYTES:
        return value
    try:
        return {"text": bytes(value).decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


# ── in ───────────────────────────────────────────────────────────────────────


async def take_in(
    store: Store,
    lines: Callable[[], Iterable[bytes]],
    actor: str,
    reason: str,
    *,
    take_over: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Taken:
    """Take in what `export` wrote; `lines` opens the file anew each time. What was taken before is passed over, so
    that an import that broke off is simply begun again.

    Raises Unreadable, which names the line, when one is not what it should be: of its batch nothing is taken then.
    """
    done = Taken()
    for number in range(2):  # what was made of another event's delivery may stand before that event
        step, told = await _pass(store, lines(), actor, reason, take_over, progress)
        done.new, done.held = done.new + step.new, done.held + step.held
        done.known = step.known if number == 0 else done.known
        done.taken, done.waiting = step.taken, step.waiting
        _check_end(told, step)
        if not step.waiting:
            break
    return done


async def _pass(
    store: Store,
    lines: Iterable[bytes],
    actor: str,
    reason: str,
    take_over: bool,
    progress: Callable[[int], None],
) -> tuple[Taken, Any]:
    """What became of them, and how many the last line says there were; None without one."""
    done, batch, first, told = Taken(), list[Line](), 2, None

    async def flush() -> None:
        last = first + len(batch) - 1
        try:
            done.add(await store.transfer.take_in(batch, actor, reason, take_over=take_over))
        except (BadData, KeyError, TypeError, ValueError, OverflowError) as error:
            raise Unreadable(f"lines {first} to {last} are not taken: {error}") from error
        batch.clear()
        progress(last)

    for number, text in enumerate(lines, 1):
        if number == 1:
            _check_head(text)
            continue
        found = _decode(number, text)
        if isinstance(found, Told):
            told = found.lines
            break
        batch.append(found)
        if len(batch) == BATCH:
            await flush()
            first = number + 1
    if batch:
        await flush()
    return done, told


def _check_head(text: bytes) -> None:
    try:
        head = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise Unreadable("line 1: this is not what `hookledger export` writes")
    if head.get("version") != VERSION:
        raise Unreadable(f"line 1: version {head.get('version')}, and this release reads {VERSION}")


def _check_end(told: Any, done: Taken) -> None:
    if told is None:
        raise Unreadable("the file ends before its last line: it was cut off. What is in it was taken in")
    lines = done.new + done.known + len(done.taken) + len(done.waiting)
    if told != lines:
        raise Unreadable(f"the last line tells of {told} events, and there are {lines:,}. What is in it was taken in")


class Told(msgspec.Struct, frozen=True):
    """The last line."""

    lines: Any


def _decode(number: int, text: bytes) -> Line | Told:
    """One event, or the last line."""
    try:
        shown = msgspec.json.decode(text)
        if isinstance(shown, dict) and shown.keys() == {"end"}:
            return Told(shown["end"])
        line = {
            table: [{name: _in(kind, _cell(row, name)) for name, kind in columns.items()} for row in shown[table]]
            for table, columns in TABLES.items()
        }
        _check_line(line)
    except UNREADABLE as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise Unreadable(f"line {number}: {what}") from error
    return line


def _cell(row: dict[str, Any], name: str) -> Any:
    return row.get(name) if name in LATER else row[name]


def _check_line(line: Line) -> None:
    """Nothing of another event comes along, but the delivery that an admitted one was made of."""
    if len(line["events"]) != 1:
        raise ValueError("a line is about one event")
    [event] = line["events"]
    for table in ("attempts", "effects", "actions", "identities"):
        if any(row["event_id"] != event["id"] for row in line[table]):
            raise ValueError(f"{table} of another event")
    places = {(row["request_id"], row["item"]) for row in line["deliveries"]}
    if (event["request_id"], event["item"]) not in places:
        raise ValueError("the delivery that made the event is missing")
    requests = {row["id"] for row in line["requests"]}
    if requests - {request for request, _ in places}:
        raise ValueError("requests of other deliveries")
    if any(row["outcome"] != "duplicate" and row["request_id"] not in requests for row in line["deliveries"]):
        raise ValueError("the request of a delivery is missing")
    effects = {row["identity"] for row in line["effects"]}
    if any(row["identity"] not in effects for row in line["effect_calls"]):
        raise ValueError("calls of other effects")


def _in(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == IDENT:
        return UUID(_text(value))
    if kind == TIME:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return moment
    if kind == BYTES:
        if "text" in value:
            return _text(value["text"]).encode()
        return base64.b64decode(_text(value["base64"]), validate=True)
    if kind == FLAG:
        return bool(value)
    if not isinstance(value, str | int):
        raise TypeError(f"{value!r} is no plain value")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value

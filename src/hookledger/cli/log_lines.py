"""How log lines look in a terminal: untrusted text without control characters, and short lines for development."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any, Protocol

from ..observe import lines
from ..receive.reasons import in_words

Line = MutableMapping[str, Any]

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that control a terminal or change text direction; line breaks and tabs are allowed."""
_BREAKS = re.compile("[\n\t]")
MULTILINE = ("exception", "stack")
"""Fields that are printed below the line."""
INDENT = "\n    "


def printable(text: str) -> str:
    """Return untrusted text with control characters escaped as in JSON."""
    return _CONTROLS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def one_line(text: str) -> str:
    """Return untrusted text with line breaks and tabs escaped, too: none can look like another log line."""
    return _BREAKS.sub(_escaped, printable(text))


def as_exception(logger: object, name: str, line: Line) -> Line:
    """Show the field `traceback` as an exception."""
    del logger, name
    if "traceback" in line:
        line["exception"] = line.pop("traceback")
    return line


def printable_line(logger: object, name: str, line: Line) -> Line:
    """Escape what a terminal would obey. Further lines of a message or a traceback are indented, so that none looks
    like a log line."""
    del logger, name
    return {field: _printable_value(field, value) for field, value in line.items()}


def _printable_value(field: str, value: object) -> object:
    if isinstance(value, (int, float)) or value is None:
        return value
    text = value if isinstance(value, str) else str(value)
    if field in MULTILINE:
        return "    " + printable(text).replace("\n", INDENT)
    return printable(text).replace("\n", INDENT) if field == "event" else one_line(text)


class Renderer(Protocol):
    """Makes text of a line."""

    def __call__(self, logger: Any, name: str, line: Any, /) -> str: ...


COLOURS = {
    **dict.fromkeys(("accepted", "processed", "made", "answered"), "32"),
    **dict.fromkeys(("duplicate", "skipped", "reused", "planned", "claimed", "waiting"), "36"),
    **dict.fromkeys(("retrying", "quarantined", "unknown", "needs_review"), "33"),
    **dict.fromkeys(("rejected", "failed", "invalid"), "31"),
}
SHOWN = ("timestamp", "level", "logger", "event", "source", "event_type", "event_key", "state", "reason", *MULTILINE)
"""Fields that have their place in a short line."""
LEFT_OUT = ("event_id", "object_id", "correlation_id", "trace_id", "run", "claim", "outcome", "status", "op_key")
"""Fields that a short line is without: `hookledger show` has them."""


class ShortLines:
    """Prints the lines of events as time, source, type, key and what happened; others as `other` does."""

    def __init__(self, other: Renderer, *, colors: bool) -> None:
        self._other = other
        self._colors = colors

    def __call__(self, logger: Any, name: str, line: Line) -> str:
        if line.get("logger") != lines.log.name:
            return self._other(logger, name, line)
        about = [line.get(field, "") for field in ("source", "event_type", "event_key")]
        columns = [str(line["timestamp"])[11:23], f"{about[0] or '-':<12}", *(f"{one:<24}" for one in about[1:])]
        more = [f"{field}={value}" for field, value in line.items() if field not in (*SHOWN, *LEFT_OUT)]
        below = [f"\n{line[field]}" for field in MULTILINE if field in line]
        return " ".join([*columns, self._happened(line), *more]).rstrip() + "".join(below)

    def _happened(self, line: Line) -> str:
        """Return the last word of the message, or how an attempt ended, and why."""
        message, state, reason = str(line["event"]), line.get("state"), str(line.get("reason", ""))
        subject, _, word = message.rpartition(" ")
        if message == lines.REJECTED.message:
            return f"{self._coloured(word)} {line.get('status')}: {in_words(reason)}"
        if message == lines.ANSWERED.message:
            return f"{self._coloured('answered')} from the ledger"
        if subject in ("attempt", "handler"):
            return self._coloured(str(line.get("outcome", state))) + (f": {reason}" if reason else "")
        if subject == "effect":
            return f"effect {self._coloured(word)}"
        return self._coloured(word) + (f" ({state})" if state else "")

    def _coloured(self, word: str) -> str:
        colour = COLOURS.get(word)
        return f"\x1b[{colour}m{word}\x1b[0m" if self._colors and colour else word

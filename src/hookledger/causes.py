"""Why an event is in trouble, in words that are the same for every event with the same trouble."""

from __future__ import annotations

import re

MAX_CAUSE = 200

_BUDGET = re.compile(r"^(?:attempts exhausted \(\d+\)|older than the retry policy allows|waited too long): ")
_CLASS = re.compile(r"^[\w.]+: ")
_CODE = re.compile(r"(?i)\b(?:http|status|code|error)[ :/=]{1,3}[1-5]\d\d\b")
_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`")
_VALUE = re.compile(r"[\w.@+-]*\d[\w.@:+-]*")


def cause_of(reason: str | None, error: str | None = None) -> str | None:
    """The reason without its budget, ids, numbers and quoted values, at most 200 characters; None without a reason.

    The class of an exception and the status that a remote answered stay. It is a guess: values without a digit or
    quotation marks stay too, and make causes of their own. Without a reason, the error's last line stands for it.
    """
    lines = (error or "").strip().splitlines()
    text = reason or (lines[-1] if lines else "")
    text = _BUDGET.sub("", text, count=1)
    kind = _CLASS.match(text)
    begin = kind[0] if kind else ""
    rest, kept = text[len(begin) :], []
    place = 0
    for code in _CODE.finditer(rest):
        kept += [_general(rest[place : code.start()]), code[0]]
        place = code.end()
    kept.append(_general(rest[place:]))
    words = " ".join((begin + "".join(kept)).split())
    return words[:MAX_CAUSE].rstrip() or None


def _general(text: str) -> str:
    return _VALUE.sub("…", _QUOTED.sub("…", text))

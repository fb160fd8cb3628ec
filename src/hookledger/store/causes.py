"""Why an event failed, in words that are the same for every event that failed for the same reason."""

from __future__ import annotations

import re

from ..states import State

MAX_CAUSE = 200
MAX_NAME = 50
"""Characters of a handler's name, and of a place in the code."""
MAX_EFFECT = 100
"""Of the name of an effect, which the cause begins with."""
MAX_IDENTIFIER = 40
BREAK = "schema break in "
_FAILING = frozenset({State.FAILED, State.NEEDS_REVIEW})

_BUDGET = re.compile(r"^(?:attempts exhausted \(\d+\)|older than the retry policy allows|waited too long): ")
_PLACE = r"[\w./+…-]+:\d+"
_BUG = re.compile(rf"a bug in {_PLACE}: ")
_WHERE = re.compile(rf" in [\w.…]+ at {_PLACE}$")
_BREAK = re.compile(r"schema break in (.+?) at (/.*?): expected ")
"""What `schemas/breaks.py` writes: the schema, and a pointer without names that are values."""
_NUMBERED = re.compile(r"/\d+(?=/|$)")
_CLASS = re.compile(r"^[\w.]+: ")
_EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception|Timeout|Outcome|Busy|Lost|Group)(?:: |$)")
_CODE = re.compile(r"(?i)\b(?:http|status|code|error)[ :/=]{1,3}[1-5]\d\d\b")
_COMMAND = re.compile(r"\bhookledger resolve .*")
"""It names the event and the effect's key."""
_BRACES = re.compile(r"\{.*\}")
_QUOTED = re.compile(r"(?<!\w)'([^']*)'(?!\w)|\"([^\"]*)\"|`([^`]*)`")
_PATH = re.compile(r"\$(?:\.\w+|\[\.\.\.\]|\[\d+\])*")
_INDEX = re.compile(r"\[\d+\]")
_IN_WORD = r"[^\s<>()\[\],;\"'`=]"
_VALUE = re.compile(rf"(?<!{_IN_WORD}){_IN_WORD}*@{_IN_WORD}*|(?<![\w.+-])[\w.+-]*\d[\w.:+-]*")
_SEGMENT = re.compile(r"[A-Za-z]*|[A-Za-z]+\d|[vV]\d{1,3}")


def cause_of(reason: str | None, error: str | None = None, where: str | None = None) -> str | None:
    """The reason without its budget, ids, numbers and quoted values, then `where`: at most 200 characters.

    The class of an exception, the status that a remote answered and the names of the code stay: a quoted word stays
    where `is_identifier` says so. It is a guess: values without a digit, an `@` or quotation marks stay too, and make
    separate causes. Without a reason, the error's last line replaces it; None without either.
    """
    lines = (error or "").strip().splitlines()
    text = reason or (lines[-1] if lines else "")
    text = _BUG.sub("", _BUDGET.sub("", text, count=1), count=1)
    text = "".join(character if character.isprintable() else " " for character in text)
    if broken := _BREAK.match(text):
        return _of_break(broken[1], _NUMBERED.sub("/*", broken[2]))
    text = _COMMAND.sub("hookledger resolve …", text)
    kind = _CLASS.match(text)
    begin = kind[0] if kind else ""
    rest, kept = _BRACES.sub("{…}", text[len(begin) :]), []
    place = 0
    for code in _CODE.finditer(rest):
        kept += [_general(rest[place : code.start()]), code[0]]
        place = code.end()
    kept.append(_general(rest[place:]))
    words = " ".join((begin + "".join(kept)).split())
    if not words:
        return None
    end = f" in {where}" if where else ""
    return words[: MAX_CAUSE - len(end)].rstrip() + end


def failure_cause(state: State, reason: str | None) -> str | None:
    """Return the cause of an event that the intake records, if it fails there or waits for an operator; its reason is
    the cause, but for a schema break."""
    if not reason or state not in _FAILING:
        return None
    return cause_of(reason) if reason.startswith(BREAK) else reason[:MAX_CAUSE]


def _of_break(schema: str, pointer: str) -> str:
    """Return the cause of a schema break, the same for each index of an array. The ends of both stay."""
    schema = schema if len(schema) <= MAX_CAUSE // 2 else "…" + schema[1 - MAX_CAUSE // 2 :]
    words = f"schema break in {schema} at "
    room = MAX_CAUSE - len(words)
    return words + (pointer if len(pointer) <= room else "…" + pointer[1 - room :])


def effect_cause(name: str, state: str, error: str | None) -> str:
    """Return the cause of an event that is not failing itself, but is marked for an effect."""
    return (_about(name) + f"{state}: {cause_of(error) or 'no answer'}")[:MAX_CAUSE].rstrip()


def _about(effect: str) -> str:
    return f"effect {effect[:MAX_EFFECT]} is "


def is_identifier(word: str) -> bool:
    """Whether it is a name of the code, such as `plan_v2` or `amount`, and not an id such as `cus_9f3` or `order_17`.

    Letters, digits and underscores, beginning with no digit, at most 40. Of what the underscores divide, each part is
    letters, letters and one digit, or a version such as `v12`: ids have more digits, or digits before letters.
    """
    parts = word.strip("_").split("_")
    return len(word) <= MAX_IDENTIFIER and parts[0][:1].isalpha() and all(_SEGMENT.fullmatch(part) for part in parts)


def masked(reason: str) -> str:
    """A reason without the words of its exception, which may quote a payload: what ran out, the place of a bug, the
    class, and `…`."""
    if reason.startswith(BREAK):  # it has no values of the payload
        return reason
    end = 0
    for pattern in (_BUDGET, _BUG, _EXCEPTION):
        if found := pattern.match(reason, end):
            end = found.end()
    return f"{reason[:end]}…" if end < len(reason) else reason


def masked_cause(cause: str, effect: str | None = None) -> str:
    """The same of a cause. Where it came from stays; no words end like that, because their numbers are gone.
    `effect`: the name, of the cause of a marked event."""
    if effect is not None:
        begin = cause.index(": ", len(_about(effect))) + 2
        return cause[:begin] + masked(cause[begin:])
    where = _WHERE.search(cause)
    return masked(cause[: where.start()]) + where[0] if where else masked(cause)


def _general(text: str) -> str:
    kept, place = [], 0
    for quoted in _QUOTED.finditer(text):
        kept += [_VALUE.sub(_word, text[place : quoted.start()]), _named(quoted, text)]
        place = quoted.end()
    return "".join(kept) + _VALUE.sub(_word, text[place:])


def _word(found: re.Match[str]) -> str:
    return found[0] if is_identifier(found[0]) else "…"


def _named(quoted: re.Match[str], text: str) -> str:
    """As it is quoted if it names something; what follows a `=` is a value."""
    word = quoted[quoted.lastindex or 0]
    if text[: quoted.start()].endswith("="):
        return "…"
    if _PATH.fullmatch(word):
        return _INDEX.sub("[...]", quoted[0])
    return quoted[0] if is_identifier(word) else "…"

"""What breaks a schema: the place, what was expected and what was found. Never a value of the event."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

FOLDED = "*"
"""In a pointer, instead of a name that the schema does not have, which may be an id or an address."""
MAX_POINTER = 300
MAX_LIMIT = 60
"""Characters of what a schema says, in `expected`."""
MAX_BREAKS = 10


class Break(Struct, frozen=True):
    """One place where content does not fit its schema."""

    pointer: str
    """A JSON pointer; empty for the whole content. Names that the schema does not have are `*`."""
    expected: str
    found: str
    """A JSON type, with its length."""

    @property
    def words(self) -> str:
        return f"{self.pointer or '/'}: expected {self.expected}, found {self.found}"


def in_words(schema: str, breaks: Sequence[Break]) -> tuple[str, str]:
    """Return the reason, which names the first break and which `store/causes.py` reads, and all of them in lines."""
    reason = f"schema break in {schema} at {breaks[0].words}"
    return reason, "\n".join([f"breaks of {schema}:", *(one.words for one in breaks)])


def pointer(path: Sequence[str | int], known: Collection[str]) -> str:
    """Return the JSON pointer of a path; names that are not among the known ones are folded."""
    parts = [str(part) if isinstance(part, int) else _escaped(part, known) for part in path]
    text = "".join(f"/{part}" for part in parts)
    return text if len(text) <= MAX_POINTER else "/…" + text[1 - MAX_POINTER :]


def _escaped(name: str, known: Collection[str]) -> str:
    return name.replace("~", "~0").replace("/", "~1") if name in known and name.isprintable() else FOLDED


def found(value: object) -> str:
    """Return a value's JSON type and length."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return f"a string of {_many(len(value), 'character')}"
        case list():
            return f"an array of {_many(len(value), 'item')}"
        case dict():
            return f"an object of {_many(len(value), 'field')}"
    return "no JSON"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def expected(keyword: str, value: object) -> str:
    """Return what a keyword of a schema wants. `value`: what the schema says there."""
    shown = str(value)[:MAX_LIMIT]
    match keyword:
        case "type":
            return " or ".join(map(str, value)) if isinstance(value, list) else shown
        case "enum":
            return f"one of {_many(len(value), 'value')}" if isinstance(value, list) else "one of some values"
        case "const":
            return "the one value that the schema allows"
        case "minimum" | "minLength" | "minItems" | "minProperties":
            return f"at least {shown}{_OF.get(keyword, '')}"
        case "maximum" | "maxLength" | "maxItems" | "maxProperties":
            return f"at most {shown}{_OF.get(keyword, '')}"
        case "exclusiveMinimum":
            return f"more than {shown}"
        case "exclusiveMaximum":
            return f"less than {shown}"
        case "multipleOf":
            return f"a multiple of {shown}"
        case "pattern":
            return f"a string that matches {shown}"
        case "format":
            return f"a string in the format {shown}"
    return _EXPECTED.get(keyword, f"what {keyword} allows")


_OF = {
    "minLength": " characters",
    "maxLength": " characters",
    "minItems": " items",
    "maxItems": " items",
    "minProperties": " fields",
    "maxProperties": " fields",
}
_EXPECTED = {
    "additionalProperties": "only the fields of the schema",
    "unevaluatedProperties": "only the fields of the schema",
    "unevaluatedItems": "only the items of the schema",
    "anyOf": "one of the schema's alternatives",
    "oneOf": "exactly one of the schema's alternatives",
    "oneOfMultipleValid": "exactly one of the schema's alternatives, and several fit",
    "oneOfNotValid": "exactly one of the schema's alternatives",
    "not": "what the schema does not exclude",
    "contains": "an item that fits `contains`",
    "uniqueItems": "items that all differ",
    "propertyNames": "names that fit `propertyNames`",
    "falseSchema": "no value here",
}

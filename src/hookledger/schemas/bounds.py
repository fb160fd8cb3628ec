"""Refuses schemas whose check may never end: how often one value of an event is looked at must be bounded.

A check looks at each value with the schemas that apply to it. A schema applies others to the same value (`allOf`,
`$ref` …), or to the values inside it (`properties`, `items` …). Two things have no bound: a schema that applies
itself to the same value, and one that applies itself twice to a value inside, because each level of an event then
doubles the work. What is left is linear in the event's size, times the number found here. What takes longer than a
look counts as several: objects and arrays in `enum`, which are compared, entries of `dependentRequired`, and large
patterns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from ..errors import ConfigError
from ..providers.tolerant import MAX_NESTING
from .bundle import Document

MOST = 5_000
"""Times that one value may be looked at."""
MAX_SCHEMAS = 20_000
MAX_WORK = 3_000_000
"""Schemas that are applied to the same fields, in all: how long it takes to find the bound, a few seconds."""
PATTERNS = {16: 1, 64: 100, 256: 250, 1024: 1000}
"""How many looks a pattern counts that compiles in so many KiB: in the largest, a character may take 40 µs."""
OPTIONS = 20
"""Options of an `enum` that take as much memory in an error as everything else."""
SAME_ONE = ("not", "if", "then", "else")
SAME_MANY = ("allOf", "anyOf", "oneOf")
REST = ("additionalProperties", "unevaluatedProperties")
OTHER_ITEMS = ("contains", "unevaluatedItems")

Place = str
Groups = list["Counter[Place]"]
"""Schemas that may apply to the same value inside, each with how often."""


class _Node(Struct):
    """One schema of the document."""

    same: list[Place]
    """Applied to the same value."""
    named: dict[str, Place]
    """`properties`,"""
    patterns: list[Place]
    rest: list[Place]
    """and what applies to other fields."""
    first: list[Place]
    """`prefixItems`,"""
    items: list[Place]
    """what applies after them,"""
    any_item: list[Place]
    names: list[Place]
    looks: int = 1
    """At a value, that its own keywords take."""
    errors: int = 1
    """That its own keywords may find in a value."""


def check_bounds(document: Document, said: str) -> int:
    """Return how many errors one value may have. Raises ConfigError, which begins with `said`, for a schema whose
    check has no bound."""
    nodes = _nodes(document, said)
    looks, errors = _counts(nodes, said)
    groups, left = dict[Place, Groups](), MAX_WORK
    for place in nodes:
        whole = list(_whole(nodes, place))
        names = {name for node in whole for name in node.named}
        left -= len(whole) * (len(names) + 1)
        if left < 0:
            raise ConfigError(
                f"{said} at {place or '/'}: it applies too many schemas to too many fields: make it simpler"
            )
        groups[place] = list(_groups(whole, names))
    order = _components(groups)
    loops = {place for part in order if _is_loop(part, groups) for place in part}
    endless: set[Place] = set()
    """Those that may apply themselves, or something that does, to values inside."""
    most: dict[Place, int] = {}
    most_errors: dict[Place, int] = {}
    for part in order:  # what a part leads to stands before it
        inside = set(part)
        for place in part:
            for group in groups[place]:
                back = sum(count for target, count in group.items() if target in inside)
                again = back + sum(n for target, n in group.items() if target in endless and target not in inside)
                if back and again > 1:
                    raise ConfigError(
                        f"{said} at {place or '/'}: it applies itself more than once to the same value inside, so "
                        "its check may never end: make it apply itself once"
                    )
        looping = any(place in loops for place in part)
        total = _total(part, groups, looks, most)
        if total > MOST:
            raise ConfigError(
                f"{said} at {part[0] or '/'}: one value may be looked at more than {MOST:,} times, or what takes as "
                "long: simplify it"
            )
        if looping or any(target in endless for place in part for group in groups[place] for target in group):
            endless |= inside
        found = _total(part, groups, errors, most_errors)
        most |= dict.fromkeys(part, total)
        most_errors |= dict.fromkeys(part, found)
    return most_errors[""]


def _total(
    part: Sequence[Place], groups: Mapping[Place, Groups], here: Mapping[Place, int], most: Mapping[Place, int]
) -> int:
    """Return the most of one value, from `here`, each schema's own, and `most`, those of what the part leads to."""
    inside = set(part)
    largest = max(here[place] for place in part)
    beside = again = 0
    for place in part:
        for group in groups[place]:
            leaving = sum(most[target] * count for target, count in group.items() if target not in inside)
            if any(target in inside for target in group):  # each level adds them to what is inside
                again = max(again, leaving)
            else:
                beside = max(beside, leaving)
    return max(largest, beside) if not again else largest + beside + again * MAX_NESTING


def _is_loop(part: Sequence[Place], groups: Mapping[Place, Groups]) -> bool:
    return len(part) > 1 or any(part[0] in group for group in groups[part[0]])


# ── the schemas of a document ──


def _nodes(document: Document, said: str) -> dict[Place, _Node]:
    found: dict[Place, _Node] = {}
    waiting = [""]
    while waiting:
        place = waiting.pop()
        if place in found:
            continue
        if len(found) == MAX_SCHEMAS:
            raise ConfigError(f"{said}: it has more than {MAX_SCHEMAS:,} schemas")
        node = found[place] = _node(_at(document, place, said), place)
        waiting += [*node.same, *node.named.values(), *node.patterns, *node.rest]
        waiting += [*node.first, *node.items, *node.any_item, *node.names]
    return found


def _at(document: Document, place: Place, said: str) -> Any:
    value: Any = document
    for part in place.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ConfigError(f"{said}: a $ref leads to #{place}, and there is nothing") from None
    if not isinstance(value, dict | bool):
        raise ConfigError(f"{said}: a $ref leads to #{place}, which is no schema")
    return value


def _node(schema: Any, place: Place) -> _Node:
    if not isinstance(schema, dict):
        return _Node([], {}, [], [], [], [], [], [])

    def one(*keywords: str) -> list[Place]:
        return [f"{place}/{keyword}" for keyword in keywords if isinstance(schema.get(keyword), dict)]

    def many(keyword: str) -> list[Place]:
        value = schema.get(keyword)
        return [f"{place}/{keyword}/{n}" for n in range(len(value))] if isinstance(value, list) else []

    def named(keyword: str) -> dict[str, Place]:
        value = schema.get(keyword)
        names = value if isinstance(value, dict) else {}
        return {name: f"{place}/{keyword}/{name.replace('~', '~0').replace('/', '~1')}" for name in names}

    same = [*one(*SAME_ONE), *(each for keyword in SAME_MANY for each in many(keyword))]
    same += named("dependentSchemas").values()
    if isinstance(reference := schema.get("$ref"), str):
        same.append(unquote(reference.removeprefix("#")))
    return _Node(
        same,
        named("properties"),
        list(named("patternProperties").values()),
        one(*REST),
        many("prefixItems"),
        one("items"),
        one(*OTHER_ITEMS),
        one("propertyNames"),
        _looks(schema),
        _errors(schema),
    )


def _looks(schema: Mapping[str, Any]) -> int:
    options, patterns = schema.get("enum"), [*_entries(schema, "patternProperties"), schema.get("pattern")]
    compared = sum(isinstance(option, dict | list) for option in options) if isinstance(options, list) else 0
    of_patterns = sum(_looks_of(pattern) for pattern in patterns if isinstance(pattern, str))
    return 1 + compared + len(_entries(schema, "dependentRequired")) + of_patterns


@lru_cache(maxsize=10_000)
def _looks_of(pattern: str) -> int:
    """Return how many looks a pattern counts, by the least memory in which it compiles."""
    import jsonschema_rs  # an extra

    for size, looks in PATTERNS.items():
        options = jsonschema_rs.RegexOptions(size_limit=size * 1024, dfa_size_limit=size * 1024)
        try:
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
        except (jsonschema_rs.ValidationError, ValueError):
            continue
        return looks - 1  # one is that of its schema
    return MOST


def _errors(schema: Mapping[str, Any]) -> int:
    options = schema.get("enum")
    copied = len(options) // OPTIONS if isinstance(options, list) else 0
    named = _entries(schema, "dependentRequired").values()
    required = sum(len(names) for names in (schema.get("required"), *named) if isinstance(names, list))
    return 1 + len(schema) + copied + required


def _entries(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


# ── how often ──


def _counts(nodes: Mapping[Place, _Node], said: str) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return how many looks each schema takes at one value, with all that it applies to it, and how many errors they
    may find in it."""
    found: dict[Place, int] = {}
    errors: dict[Place, int] = {}
    open_: set[Place] = set()
    for start in nodes:
        stack = [(start, False)]
        while stack:
            place, done = stack.pop()
            if done:
                open_.discard(place)
                node = nodes[place]
                found[place] = node.looks + sum(found[inner] for inner in node.same)
                errors[place] = node.errors + sum(errors[inner] for inner in node.same)
                if found[place] > MOST:
                    raise ConfigError(
                        f"{said} at {place or '/'}: it applies more than {MOST:,} schemas to one value, or what "
                        "takes as long, such as large patterns or objects in `enum`: simplify it"
                    )
            elif place not in found:
                if place in open_:
                    continue
                open_.add(place)
                stack.append((place, True))
                for inner in nodes[place].same:
                    if inner in open_:
                        raise ConfigError(
                            f"{said} at {inner or '/'}: it applies itself to the same value, which never ends: let "
                            "it apply itself only to values inside, such as `properties` or `items`"
                        )
                    stack.append((inner, False))
    return found, errors


def _whole(nodes: Mapping[Place, _Node], place: Place) -> Iterator[_Node]:
    """Yield all schemas that apply to the same value, as often as they do."""
    stack = [place]
    while stack:
        node = nodes[stack.pop()]
        yield node
        stack += node.same


def _groups(whole: Sequence[_Node], names: Iterable[str]) -> Iterator[Counter[Place]]:
    """Yield the schemas that may apply to one value inside: to each named field, any other, each item, each name.
    `whole`: all that apply to the value around it."""
    patterns = [target for node in whole for target in node.patterns]
    for name in names:
        group = Counter(patterns)
        for node in whole:
            if name in node.named:
                group[node.named[name]] += 1
            else:
                group.update(node.rest)
        yield group
    others = Counter(patterns)
    for node in whole:
        others.update(node.rest)
    longest = max((len(node.first) for node in whole), default=0)
    items: list[Counter[Place]] = []
    for number in range(longest + 1):
        group = Counter()
        for node in whole:
            group.update(node.any_item)
            group.update([node.first[number]] if number < len(node.first) else node.items)
        items.append(group)
    yield from filter(None, (others, *items, Counter(target for node in whole for target in node.names)))


def _components(groups: Mapping[Place, Groups]) -> list[list[Place]]:
    """Return the strongly connected parts; what a part leads to stands before it (Tarjan, without recursion)."""
    index: dict[Place, int] = {}
    low: dict[Place, int] = {}
    stack: list[Place] = []
    on_stack: set[Place] = set()
    parts: list[list[Place]] = []

    def targets(place: Place) -> Iterator[Place]:
        return iter({target for group in groups[place] for target in group})

    for start in groups:
        if start in index:
            continue
        work = [(start, targets(start))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            place, left = work[-1]
            for target in left:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, targets(target)))
                    break
                if target in on_stack:
                    low[place] = min(low[place], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[place])
                if low[place] == index[place]:
                    part: list[Place] = []
                    while not part or part[-1] != place:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    parts.append(part)
    return parts

"""Answers to Discord's interactions: commands, components, autocompletion and modals.

Every function returns an `Answer`, and raises BadResult for what Discord's documentation does not allow. Embeds,
components and choices are JSON objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from ..answer import Answer
from ..errors import BadResult
from .limits import objects_of, text_of, without_none

MAX_CONTENT = 2_000
"""Characters of a message."""
MAX_EMBEDS = 10
MAX_EMBED_TEXT = 6_000
"""Characters of all embeds of a message together."""
MAX_COMPONENTS = 40
"""Components at the top of a message; without IS_COMPONENTS_V2 Discord allows five rows."""
MAX_ROWS = 5
MAX_CHOICES = 25
MAX_CHOICE = 100
"""Characters of a choice's name, and of its value."""
MAX_CUSTOM_ID = 100
MAX_TITLE = 45
MAX_INTEGER = 2**53
EPHEMERAL = 1 << 6
"""Only the user sees the message."""
IS_COMPONENTS_V2 = 1 << 15


class Choice(Struct, frozen=True):
    """One suggestion of an autocompletion: what the user sees, and what the command gets."""

    name: str
    value: str | int | float


def message(
    content: str | None = None,
    *,
    embeds: Iterable[object] | None = None,
    components: Iterable[object] | None = None,
    ephemeral: bool = False,
    flags: int = 0,
    allowed_mentions: Mapping[str, Any] | None = None,
    tts: bool | None = None,
) -> Answer:
    """Return a message (type 4); `ephemeral=True`: only the user sees it.

    Discord notifies those whom the content mentions; `allowed_mentions={"parse": []}` notifies no one, for content
    that users write.
    """
    data = _message(content, embeds, components, flags | EPHEMERAL * ephemeral, allowed_mentions, tts)
    if not any(data.get(name) for name in ("content", "embeds", "components")):
        raise BadResult("a message needs content, embeds or components")
    return Answer({"type": 4, "data": data})


def deferred(*, ephemeral: bool = False) -> Answer:
    """Return that a message follows (type 5): the user sees that the application is thinking. The handler edits it
    with the interaction's token, within 15 minutes; whether it is ephemeral is decided here."""
    return Answer({"type": 5, "data": {"flags": EPHEMERAL}} if ephemeral else {"type": 5})


def deferred_update() -> Answer:
    """Return that the message with the component may change later (type 6); the user sees nothing. Only for
    components."""
    return Answer({"type": 6})


def update(
    content: str | None = None,
    *,
    embeds: Iterable[object] | None = None,
    components: Iterable[object] | None = None,
    flags: int = 0,
    allowed_mentions: Mapping[str, Any] | None = None,
) -> Answer:
    """Return the change of the message with the component (type 7): what is None stays, and an empty text or list
    removes. Only for components, and for modals that a component opened."""
    return Answer({"type": 7, "data": _message(content, embeds, components, flags, allowed_mentions, None)})


def choices(given: Iterable[Choice | Mapping[str, Any]]) -> Answer:
    """Return the suggestions of an autocompletion (type 8), perhaps none. They cannot be deferred."""
    made = objects_of("choices", [_choice(one) if isinstance(one, Choice) else one for one in given], MAX_CHOICES)
    for number, choice in enumerate(made):
        text_of(f"the name of choices[{number}]", choice.get("name"), MAX_CHOICE)
        _check_value(number, choice.get("value"))
    return Answer({"type": 8, "data": {"choices": made}})


def modal(custom_id: str, title: str, components: Iterable[object]) -> Answer:
    """Return a modal (type 9) with one to five components. Not for interactions that come from a modal."""
    data = {
        "custom_id": text_of("the modal's custom_id", custom_id, MAX_CUSTOM_ID),
        "title": text_of("the modal's title", title, MAX_TITLE),
        "components": objects_of("the modal's components", components, MAX_ROWS, least=1),
    }
    return Answer({"type": 9, "data": data})


def _message(
    content: str | None,
    embeds: Iterable[object] | None,
    components: Iterable[object] | None,
    flags: int,
    allowed_mentions: Mapping[str, Any] | None,
    tts: bool | None,
) -> dict[str, Any]:
    rows = MAX_COMPONENTS if flags & IS_COMPONENTS_V2 else MAX_ROWS
    if flags & IS_COMPONENTS_V2 and (content or embeds):
        raise BadResult("a message with IS_COMPONENTS_V2 has components only: write its text into a Text Display")
    return without_none(
        content=None if content is None else text_of("content", content, MAX_CONTENT, least=0),
        embeds=None if embeds is None else _embeds(embeds),
        components=None if components is None else objects_of("components", components, rows),
        flags=flags or None,
        allowed_mentions=None if allowed_mentions is None else dict(allowed_mentions),
        tts=tts,
    )


def _embeds(given: Iterable[object]) -> list[dict[str, Any]]:
    made = objects_of("embeds", given, MAX_EMBEDS)
    total = sum(map(_length, made))
    if total > MAX_EMBED_TEXT:
        raise BadResult(f"the embeds have {total:,} characters, {MAX_EMBED_TEXT:,} are allowed: shorten them")
    return made


def _length(embed: Mapping[str, Any]) -> int:
    """Return the characters that Discord counts: title, description, fields, footer and author."""
    parts = [embed.get("title"), embed.get("description")]
    for name, inner in (("footer", "text"), ("author", "name")):
        part = embed.get(name)
        parts.append(part.get(inner) if isinstance(part, Mapping) else None)
    for field in embed.get("fields") or ():
        if isinstance(field, Mapping):
            parts += [field.get("name"), field.get("value")]
    return sum(len(part) for part in parts if isinstance(part, str))


def _choice(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, "value": choice.value}


def _check_value(number: int, value: object) -> None:
    what = f"the value of choices[{number}]"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadResult(f"{what} is text or a number, as the option's type is, not {type(value).__name__}")
    if isinstance(value, str):
        text_of(what, value, MAX_CHOICE, least=0)
    elif not -MAX_INTEGER <= value <= MAX_INTEGER:  # NaN is in no range
        raise BadResult(f"{what} is between -2^53 and 2^53, not {value!r:.60}")

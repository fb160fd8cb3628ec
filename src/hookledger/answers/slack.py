"""Answers to Slack: slash commands, interactivity and options of external selects.

Every function returns an `Answer`, and raises BadResult for what Slack's documentation does not allow. Blocks, views
and attachments are JSON objects, or models of slack_sdk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from ..answer import Answer
from ..errors import BadResult
from .limits import object_of, objects_of, text_of, without_none

MAX_TEXT = 40_000
"""Characters of a message; Slack cuts what is longer, and advises at most 4,000."""
MAX_BLOCK_TEXT = 3_000
"""Characters of the text of a block."""
MAX_BLOCKS = 50
MAX_VIEW_BLOCKS = 100
MAX_ATTACHMENTS = 100
MAX_OPTIONS = 100
MAX_OPTION_TEXT = 75
MAX_OPTION_VALUE = 150
MAX_TITLE = 24
MAX_CALLBACK_ID = 255
MAX_METADATA = 3_000


class Option(Struct, frozen=True):
    """One entry of an external select."""

    text: str
    value: str
    description: str | None = None


def ack() -> Answer:
    """Return an empty 200: accepted, and nothing is shown. It closes the view that was submitted."""
    return Answer()


def message(
    text: str | None = None,
    *,
    blocks: Iterable[object] | None = None,
    attachments: Iterable[object] | None = None,
    in_channel: bool = False,
    replace_original: bool | None = None,
    delete_original: bool | None = None,
) -> Answer:
    """Return a message, shown only to the user who sent the command; `in_channel=True`: to the whole channel.

    `text` is the message, or what a notification shows if there are blocks. Slack ignores the body of an answer to
    `block_actions`: send such a message to the event's `response_url`, where `replace_original` and `delete_original`
    concern the message with the button.
    """
    if delete_original and (text is not None or blocks is not None or attachments is not None):
        raise BadResult("delete_original=True removes the message: leave text, blocks and attachments out")
    if text is None and blocks is None and attachments is None and not delete_original:
        raise BadResult("a message needs text, blocks or attachments: to show nothing, answer ack()")
    if replace_original and delete_original:
        raise BadResult("replace_original and delete_original contradict: give one of them")
    return Answer(
        without_none(
            response_type=None if delete_original else ("in_channel" if in_channel else "ephemeral"),
            text=None if text is None else text_of("text", text, MAX_TEXT),
            blocks=None if blocks is None else _blocks("blocks", blocks, MAX_BLOCKS),
            attachments=None if attachments is None else objects_of("attachments", attachments, MAX_ATTACHMENTS),
            replace_original=replace_original,
            delete_original=delete_original,
        )
    )


# ── view_submission ──────────────────────────────────────────────────────────


def update(view: object) -> Answer:
    """Return that the submitted view is replaced by this one."""
    return Answer({"response_action": "update", "view": _view(view)})


def push(view: object) -> Answer:
    """Return that this view opens above the submitted one."""
    return Answer({"response_action": "push", "view": _view(view)})


def clear() -> Answer:
    """Return that all views of the app are closed. `ack()` closes only the submitted one."""
    return Answer({"response_action": "clear"})


def errors(messages: Mapping[str, str]) -> Answer:
    """Return what is wrong with the submitted view, by the `block_id` of its input blocks."""
    if not messages:
        raise BadResult("errors names no block, so Slack would show nothing: answer ack() to accept the view")
    for block, said in messages.items():
        text_of("a block_id in errors", block, MAX_CALLBACK_ID)
        text_of(f"the error of block {block!r}", said, MAX_BLOCK_TEXT)
    return Answer({"response_action": "errors", "errors": dict(messages)})


# ── block_suggestion ─────────────────────────────────────────────────────────


def options(given: Iterable[Option | Mapping[str, Any]]) -> Answer:
    """Return the options of an external select, perhaps none."""
    return Answer({"options": _options("options", given)})


def option_groups(groups: Mapping[str, Iterable[Option | Mapping[str, Any]]]) -> Answer:
    """Return the options of an external select in groups, by the label of the group."""
    if len(groups) > MAX_OPTIONS:
        raise BadResult(f"option_groups has {len(groups)} groups, at most {MAX_OPTIONS} are allowed: leave some out")
    made = [
        {"label": _plain("the label of a group", label), "options": _options(f"the group {label!r:.80}", given)}
        for label, given in groups.items()
    ]
    return Answer({"option_groups": made})


def _options(what: str, given: Iterable[Option | Mapping[str, Any]]) -> list[dict[str, Any]]:
    return objects_of(what, [_option(one) if isinstance(one, Option) else one for one in given], MAX_OPTIONS)


def _option(option: Option) -> dict[str, Any]:
    shown = None if option.description is None else _plain("the description of an option", option.description)
    return without_none(
        text=_plain("the text of an option", option.text),
        value=text_of("the value of an option", option.value, MAX_OPTION_VALUE),
        description=shown,
    )


def _plain(what: str, text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text_of(what, text, MAX_OPTION_TEXT)}


# ── blocks and views ─────────────────────────────────────────────────────────


def _blocks(what: str, given: Iterable[object], most: int) -> list[dict[str, Any]]:
    made = objects_of(what, given, most)
    for number, block in enumerate(made):
        if not isinstance(block.get("type"), str):
            raise BadResult(f"{what}[{number}] has no type: a block is an object such as {{'type': 'divider'}}")
        text = block.get("text")
        if isinstance(text, Mapping):
            text_of(f"the text of {what}[{number}]", text.get("text"), MAX_BLOCK_TEXT)
    return made


def _view(given: object) -> dict[str, Any]:
    view = object_of("the view", given)
    if view.get("type") != "modal":
        raise BadResult(f"a submitted view is followed by one of type 'modal', not {view.get('type')!r:.60}")
    for name in ("title", "submit", "close"):
        part = view.get(name)
        if part is None and name == "title":
            raise BadResult("the view has no title: add {'type': 'plain_text', 'text': …}")
        if part is not None:
            text_of(f"the view's {name}", object_of(f"the view's {name}", part).get("text"), MAX_TITLE)
    for name, most in (("callback_id", MAX_CALLBACK_ID), ("private_metadata", MAX_METADATA)):
        if view.get(name) is not None:
            text_of(f"the view's {name}", view[name], most, least=0)
    blocks = _blocks("the view's blocks", view.get("blocks") or (), MAX_VIEW_BLOCKS)
    if not blocks:
        raise BadResult("the view has no blocks: add one")
    return {**view, "blocks": blocks}

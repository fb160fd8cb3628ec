"""Which events a command is about: the options of a filter, the same for every command that takes one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from ..clock import Seconds
from ..errors import ConfigError
from ..filters import Filter
from ..states import State

F = TypeVar("F", bound=Callable[..., Any])


class Moment(click.ParamType[datetime]):
    """A date or a time in ISO 8601, in UTC unless it says otherwise; or how long ago: `2h`, `3d`."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value).strip().removesuffix(" ago")
        try:
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        except ValueError:
            pass
        try:
            return datetime.now(UTC) - timedelta(seconds=Seconds(text))
        except (ConfigError, OverflowError):
            words = f"{value!r} is no moment: write 2026-01-31, 2026-01-31T12:30:00Z, or how long ago: 2h, 3d"
            self.fail(words, param, ctx)


FIELDS = ("source", "type", "key", "account", "effect", "text", "error", "cause", "since", "until", "attention")


def filters_events(command: F) -> F:
    """Adds the options of a filter; the command gets it as `where`, with everything in it that was given."""

    @click.option("--source", help="Only of this source.")
    @click.option(
        "--state",
        multiple=True,
        type=click.Choice([state.value for state in State]),
        help="Only in this state; may be given several times.",
    )
    @click.option("--type", help="Only of this type, or of those that begin so: 'order.*'.")
    @click.option("--key", help="Only with this event key, as it is shown.")
    @click.option("--object", help="Only about the object with this id.")
    @click.option("--account", help="Only on behalf of this account, as `show` prints it.")
    @click.option("--effect", help="Only with an effect of this NAME, or NAME:KEY.")
    @click.option("--text", help="Only with this in the body, exactly so.")
    @click.option("--error", help="Only with this in the reason or the error.")
    @click.option("--cause", help="Only with this cause, as `failures` prints it.")
    @click.option("--since", type=Moment(), help="Received then or later: a time, or how long ago: 2h.")
    @click.option("--until", type=Moment(), help="Received before then.")
    @click.option(
        "--attention", is_flag=True, help="Only failed, in review, with an alert, or an effect failed or unknown."
    )
    @functools.wraps(command)
    def wrapper(**options: Any) -> Any:
        given = {name: options.pop(name) for name in FIELDS}
        states, object_id = tuple(map(State, options.pop("state"))), options.pop("object")
        return command(where=Filter(states=states, object_id=object_id, **given), **options)

    return wrapper  # type: ignore[return-value]


def options_of(where: Filter) -> list[str]:
    """The options that a filter is written with, for what to type next."""
    names = {"object_id": "object", "states": "state"}
    words: list[str] = []
    for field in Filter.__struct_fields__:
        value, option = getattr(where, field), f"--{names.get(field, field)}"
        if isinstance(value, tuple):
            words += [word for one in value for word in (option, str(one))]
        elif value is True:
            words.append(option)
        elif value:
            words += [option, value.isoformat() if isinstance(value, datetime) else value]
    return words

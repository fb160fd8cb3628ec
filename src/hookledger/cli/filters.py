"""Filter options, defined once for all commands that select events."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from ..clock import Seconds
from ..errors import ConfigError
from ..states import State
from ..store.ops.filters import Filter
from .common import Decorator

F = TypeVar("F", bound=Callable[..., Any])


class Moment(click.ParamType[datetime]):
    """A date or time in ISO 8601, UTC by default, or a duration ago: `2h`, `3d`."""

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
            words = f"{value!r} is not a time: write 2026-01-31, 2026-01-31T12:30:00Z or a duration ago such as 2h"
            self.fail(words, param, ctx)


class FilterOption(click.Option):
    """An option that only `hookledger events --help` and the reference describe."""


class FiltersEvents(click.Command):
    """A command with filter options: `events` describes them, the others only name them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        filters = [one for one in self.get_params(ctx) if isinstance(one, FilterOption)]
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        others = [one for one in options if one not in filters]
        with formatter.section("Options"):
            formatter.write_dl([record for one in others if (record := one.get_help_record(ctx)) is not None])
        with formatter.section("Filter options"):
            if self.name == "events":
                formatter.write_dl([record for one in filters if (record := one.get_help_record(ctx)) is not None])
            else:
                names = ", ".join(one.opts[0] for one in filters)
                formatter.write_text(f"{names}: see `hookledger events --help`")


source_option: Decorator = click.option("--source", help="Only of this source.")


def limit_option(default: int) -> Callable[[F], F]:
    """Add --limit."""
    return click.option("--limit", default=default, type=click.IntRange(1, 1000), help="Maximum number to list.")


FIELDS = (
    "source",
    "type",
    "version",
    "key",
    "account",
    "effect",
    "text",
    "error",
    "cause",
    "since",
    "until",
    "attention",
    "lacks_stage",
)


_filter = functools.partial(click.option, cls=FilterOption)


def filters_events(command: F) -> F:
    """Add the filter options; the command gets them as `where`."""

    @_filter("--source", help="Only of this source.")
    @_filter(
        "--state",
        multiple=True,
        metavar="STATE",
        type=click.Choice([state.value for state in State]),
        help=f"Only in this state: {', '.join(State)}; repeatable.",
    )
    @_filter("--type", help="Only of this type; may end in *, such as 'order.*'.")
    @_filter("--version", help="Only of this version; may end in *, such as '2024-*'.")
    @_filter("--key", help="Only with this event key.")
    @_filter("--object", help="Only about the object with this id.")
    @_filter("--account", help="Only of this account, as `show` prints it.")
    @_filter("--effect", help="Only with an effect of this NAME, or NAME:KEY.")
    @_filter("--text", help="Only with exactly this text in the body.")
    @_filter("--error", help="Only with this text in the reason or the error.")
    @_filter("--cause", help="Only with this cause, as `failures` prints it.")
    @_filter("--since", type=Moment(), help="Received at this time or later; 2h: two hours ago.")
    @_filter("--until", type=Moment(), help="Received before this time.")
    @_filter(
        "--attention", is_flag=True, help="Only failed, in review, or with an alert or a failed or unknown effect."
    )
    @_filter("--lacks-stage", metavar="STAGE", help="Only processed events of --source without this stage.")
    @functools.wraps(command)
    def wrapper(**options: Any) -> Any:
        given = {name: options.pop(name) for name in FIELDS}
        states, object_id = tuple(map(State, options.pop("state"))), options.pop("object")
        return command(where=Filter(states=states, object_id=object_id, **given), **options)

    return wrapper  # type: ignore[return-value]


def options_of(where: Filter) -> list[str]:
    """Return the options that express a filter."""
    names = {"object_id": "object", "states": "state"}
    words: list[str] = []
    for field in Filter.__struct_fields__:
        value, option = getattr(where, field), f"--{names.get(field, field).replace('_', '-')}"
        if isinstance(value, tuple):
            words += [word for one in value for word in (option, str(one))]
        elif value is True:
            words.append(option)
        elif value:
            words += [option, value.isoformat() if isinstance(value, datetime) else value]
    return words

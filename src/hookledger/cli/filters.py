"""The options that say which events are meant, the same for every command."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from ..filters import Filter
from ..states import State

F = TypeVar("F", bound=Callable[..., Any])

MOMENTS = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"])


def filters_events(command: F) -> F:
    """Adds the options; the command gets `where`, a Filter."""

    @click.option("--source", help="Only of this source.")
    @click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([state.value for state in State]),
        help="Only in this state; may be given again.",
    )
    @click.option("--type", "kind", help="Only of this type; it may end in *.")
    @click.option("--key", help="Only with this event key.")
    @click.option("--object", "object_id", help="Only about this object of the provider's.")
    @click.option("--text", help="Only with this text in the body.")
    @click.option("--error", help="Only with this text in the reason or the error.")
    @click.option("--since", type=MOMENTS, help="Only received then (UTC) or later.")
    @click.option("--until", type=MOMENTS, help="Only received before then (UTC).")
    @click.option("--attention", is_flag=True, help="Only those that a person should look at.")
    @functools.wraps(command)
    def wrapper(
        source: str | None,
        states: tuple[str, ...],
        kind: str | None,
        key: str | None,
        object_id: str | None,
        text: str | None,
        error: str | None,
        since: datetime | None,
        until: datetime | None,
        attention: bool,
        **rest: Any,
    ) -> Any:
        where = Filter(
            source=source,
            type=kind,
            states=tuple(map(State, states)),
            key=key,
            object_id=object_id,
            text=text,
            error=error,
            since=since and since.replace(tzinfo=UTC),
            until=until and until.replace(tzinfo=UTC),
            attention=attention,
        )
        return command(where=where, **rest)

    return wrapper  # type: ignore[return-value]

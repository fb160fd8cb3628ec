"""`hookledger prune` and `erase`: what is taken away, by rule or by decision."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..errors import ConfigError, WrongState
from ..filters import EVERYTHING, Filter
from ..inbox import Inbox
from ..operate.erasing import Erasing, erase_all, erase_one
from ..retention import NEVER, Limits, limits
from ..store.ops.pruning import Pruned
from .common import default_actor, looks_at_inbox, print_json, prints_json, run, status, table_console
from .decide import names_actor
from .filters import filters_events
from .table import Listing, number, whole


@click.command()
@click.option("--source", help="Only of this source.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--now", "anew", is_flag=True, help="Begin with the oldest, not where the last round ended.")
@click.option("--reason", default="retention", envvar="HOOKLEDGER_REASON", help="Why, for the audit.")
@click.option("--actor", default=default_actor, envvar="HOOKLEDGER_ACTOR", help="Who asks.")
@looks_at_inbox
@prints_json
def prune(
    inbox: Inbox, source: str | None, dry_run: bool, anew: bool, reason: str, actor: str, as_json: bool
) -> None:
    """Take away what retention says is over: payloads, history, finished events. Keys stay.

    Workers do it by themselves; this does it at once. Nothing goes unless [retention] or a source's own names it.
    """
    if source is not None and source not in inbox.sources:
        raise ConfigError(f"there is no source {source!r}; known are: {', '.join(sorted(inbox.sources)) or 'none'}")

    async def act(progress: Progress) -> Pruned:
        task = progress.add_task("looking", total=None)

        def tell(done: Pruned) -> None:
            progress.update(task, description=f"looked at {done.looked_at:,}, took {done.total:,}")

        async with inbox.opened() as store:
            pruner = inbox.pruner(store)
            return await pruner.round(
                source=source, anew=anew, dry=dry_run, actor=actor, reason=reason, progress=tell
            )

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=status, transient=True, disable=not status.is_terminal) as progress:
        done = run(act(progress))
    if as_json:
        print_json({"dry_run": dry_run, **msgspec.to_builtins(done)})
        return
    _print_rules(inbox)
    listing = Listing(whole("would go" if dry_run else "went", head=True), number("count"))
    for name in ("events", "payloads", "history", "deliveries"):
        listing.add(name, f"{getattr(done, name):,}")
    listing.print(table_console())


def _print_rules(inbox: Inbox) -> None:
    settings = inbox.settings.retention
    rules = {"(default)": limits(settings)}
    rules |= {name: limits(settings, source.retention) for name, source in inbox.sources.items()}
    if not any(rule.any for rule in rules.values()):
        status.print("Everything is kept for ever: no [retention] is set.")
    for name, rule in rules.items():
        status.print(f"{name}: {_rule(rule)}")


def _rule(rule: Limits) -> str:
    values = {name: getattr(rule, name) for name in rule.__struct_fields__}
    return ", ".join(f"{name} {_age(value)}" for name, value in values.items())


def _age(seconds: float) -> str:
    if seconds == NEVER:
        return "for ever"
    return f"{seconds / 86400:g} d" if seconds >= 86400 else f"{seconds:g} s"


@click.command()
@click.argument("event", required=False)
@filters_events
@click.option("--key-too", is_flag=True, help="Show digests in place of event and effect keys, too.")
@click.option("--whole-request", is_flag=True, help="With the other events that came in the same request.")
@click.option("--dry-run", is_flag=True, help="Only say what would be erased, or what refuses it.")
@click.option("--count", type=click.IntRange(0), help="How many events you mean: refused if there are more or fewer.")
@click.option("--yes", is_flag=True, help="Erase all that the filter finds, without a count.")
@names_actor
@looks_at_inbox
@prints_json
def erase(
    inbox: Inbox,
    event: str | None,
    where: Filter,
    key_too: bool,
    whole_request: bool,
    dry_run: bool,
    count: int | None,
    yes: bool,
    reason: str,
    actor: str,
    as_json: bool,
) -> None:
    """Forget what a finished EVENT, or all that the options find, said.

    That is bytes, headers, effect arguments, results and tracebacks. Keys and digests stay, so that nothing is
    accepted or done again. It cannot be undone. The audit says who and why.
    """
    if (event is None) == (where == EVERYTHING):
        raise click.UsageError("name one event, or say by options which ones")
    if event is None and not (dry_run or yes or count is not None):
        raise click.UsageError("say how many you mean (--count N), or --yes; --dry-run shows them first")
    options: dict[str, Any] = {"key_too": key_too, "whole_request": whole_request, "dry": dry_run}

    async def act() -> Erasing:
        async with inbox.opened() as store:
            insight, actions = inbox.insight(store), inbox.actions(store, actor)
            if event is not None:
                return await erase_one(insight, actions, event, reason, **options)
            return await erase_all(insight, actions, where, reason, count=count, **options)

    done = run(act())
    if as_json:
        print_json({"dry_run": dry_run, **msgspec.to_builtins(done)})
    else:
        would = "Would erase" if dry_run else "Erased"
        status.print(f"{would} {len(done.events):,} events, {done.requests:,} requests, {done.effects:,} effects.")
        for ident, why in done.refused.items():
            status.print(f"[yellow]not {ident}[/]: {why}", soft_wrap=True)
    if done.refused:
        raise WrongState(f"{len(done.refused):,} events stayed as they were")

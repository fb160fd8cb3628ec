"""`hookledger events` and `show`: what a person may see."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import msgspec
from rich.markup import escape
from rich.table import Table

from ..filters import EVERYTHING, Filter
from ..identities import operation_key
from ..inbox import Inbox
from ..ledger import Effect
from ..model import EventRow, History, unpack_headers
from ..operate.answers import Answers, answer
from ..operate.insight import Summary
from ..operate.preview import Preview
from ..operate.timeline import Entry, proved, timeline
from ..states import EffectState, KeyOrigin, State
from ..store.search import Page
from .common import (
    brief,
    looks_at_inbox,
    narrow_table,
    print_bytes,
    print_json,
    prints_json,
    run,
    second,
    status,
    table_console,
)
from .filters import filters_events

COLOURS = {
    State.PROCESSED: "green",
    State.FAILED: "red",
    State.NEEDS_REVIEW: "magenta",
    State.RETRYING: "yellow",
    State.PROCESSING: "cyan",
}


UNDECIDED = (EffectState.UNKNOWN, EffectState.FAILED)
EFFECT_COLOURS = {EffectState.DONE: "green", EffectState.FAILED: "red", EffectState.UNKNOWN: "magenta"}


def coloured(state: State | EffectState) -> str:
    colour = COLOURS.get(state) if isinstance(state, State) else EFFECT_COLOURS.get(state)
    return f"[{colour}]{state}[/]" if colour else str(state)


def moment(value: datetime | None) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if value else ""


@click.command()
@filters_events
@click.option("--before", type=click.UUID, help="Only older than this event: for the next page.")
@click.option("--limit", default=50, type=click.IntRange(1, 1000), help="How many.")
@click.option("--counts", is_flag=True, help="Only how many there are: in each state, or for the options given.")
@looks_at_inbox
@prints_json
def events(
    inbox: Inbox, where: Filter, before: UUID | None, limit: int, counts: bool, as_json: bool
) -> None:
    """List events, the newest first. A search that has to read much stops now and then, and says how to go on."""

    async def read() -> Any:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            if counts:
                return await (insight.summary() if where == EVERYTHING else insight.count(where))
            return await insight.page(where, before=before, limit=limit)

    found = run(read())
    if counts:
        _print_summary(found, as_json)
    elif as_json:
        print_json(found.events)
        _print_end(found)
    else:
        _print_events(found.events)
        _print_end(found)


def _print_summary(found: Summary | int, as_json: bool) -> None:
    if isinstance(found, int):
        print_json({"count": found}) if as_json else click.echo(found)
    elif as_json:
        print_json(found)
    else:
        _print_counts("events", found.events)
        _print_counts("deliveries", found.deliveries)


def _print_counts(title: str, counts: dict[str, int]) -> None:
    table = Table(title, "count")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    table_console().print(table)


def _print_events(found: Sequence[EventRow]) -> None:
    columns = ("event", "received (UTC)", "source", "type", "key", "state", "tries", "came", "why")
    table = narrow_table(*columns, folds="why")
    for row in found:
        table.add_row(
            brief(row.id),
            second(row.received_at),
            row.source,
            escape(row.type),
            escape(row.key),
            coloured(row.state) + (" [bold magenta]![/]" if row.attention or row.alert else ""),
            str(row.attempts),
            str(row.deliveries),
            escape((row.alert or row.reason or ("an effect needs a look: show" if row.attention else ""))[:60]),
        )
    table_console().print(table)


def _print_end(page: Page) -> None:
    """How far the search has come. The id of the last event is where to go on in any case."""
    if page.looked_at is not None:
        status.print(f"Looked at {page.looked_at:,} events and stopped; older ones: --before {page.next}")
    elif page.next is not None:
        status.print(f"There may be more: --before {page.next}")
    elif not page.events:
        status.print("No events.")


@click.command()
@click.argument("event")
@click.option("--body", is_flag=True, help="Print only the request's body, byte for byte.")
@click.option("--timeline", "only_timeline", is_flag=True, help="Print only what happened, in order, with every key.")
@looks_at_inbox
@prints_json
def show(inbox: Inbox, event: str, body: bool, only_timeline: bool, as_json: bool) -> None:
    """Everything known of one EVENT: by id, the beginning of one, key, or the provider's id."""
    history, preview = run(_history(inbox, event))
    if body:
        print_bytes(history.request.body if history.request else b"")
    elif only_timeline:
        print_json(timeline(history)) if as_json else table_console().print(_keyed(timeline(history)))
    elif as_json:
        print_json(_readable(history, preview))
    else:
        _print_history(history, preview)


def previewed(preview: Preview) -> dict[str, Any]:
    """A preview, with its verdict in words."""
    return {"words": preview.words, **msgspec.to_builtins(preview)}


def _readable(history: History, preview: Preview) -> Any:
    """Headers as names and values; the body stays base64, so that it is exact. Effects with what the remote knows
    them by. `replay`: what one would do."""
    values = msgspec.to_builtins(history)
    if history.request:
        values["request"]["headers"] = unpack_headers(history.request.headers)
    for known, shown in zip(history.effects, values["effects"], strict=True):
        if known.effect.repeat is not None:
            shown["effect"]["idempotency_key"] = operation_key(known.effect.identity, known.effect.generation)
        shown["effect"]["superseded"] = known.effect.superseded
    values["replay"] = previewed(preview)
    values["answers"] = msgspec.to_builtins(answer(history, preview))
    values["timeline"] = msgspec.to_builtins(timeline(history))
    return values


async def _history(inbox: Inbox, reference: str) -> tuple[History, Preview]:
    async with inbox.opened() as store:
        insight = inbox.insight(store)
        history = await insight.event(reference)
        return history, insight.preview(history)


def _answers(answers: Answers, preview: Preview) -> Table:
    """The six questions, each in a line."""
    tried = answers.attempts
    now = " and one just now" if tried.running else ""
    times = f"{tried.ended}{now}, in {tried.runs} run{'s' * (tried.runs > 1)}"
    ended = f"; the last: {tried.last}" if tried.last else ""
    came = f"{moment(answers.first_received)}, delivered {answers.deliveries} time{'s' * (answers.deliveries > 1)}"
    replays = "\n".join(f"{a.subject} by {a.actor}, {moment(a.at)}: {a.reason}" for a in answers.replays)
    table = Table(show_header=False, box=None)
    for question, said in (
        ("first received?", came),
        ("attempts?", times + ended),
        ("effects completed?", ", ".join(one.label for one in answers.completed) or "none"),
        ("pending or uncertain?", ", ".join(f"{one.label} ({one.state})" for one in answers.open) or "none"),
        ("replayed by whom?", replays or "nobody"),
        ("a replay now?", preview.words),
    ):
        table.add_row(f"[bold]{question}[/]", escape(said))
    return table


def _print_history(history: History, preview: Preview) -> None:
    console, event = table_console(), history.event
    admitted = event.key_origin is KeyOrigin.ADMITTED
    facts = Table(show_header=False, box=None)
    for name, value in (
        ("event", str(event.id)),
        ("source", event.source),
        ("type", escape(event.type)),
        ("key", f"{escape(event.key)} ({event.key_origin})"),
        ("provider id", escape(event.provider_id or "")),
        ("object", escape(event.object_id or "")),
        ("state", coloured(event.state) + (f": {escape(event.reason)}" if event.reason else "")),
        ("alert", f"[bold magenta]{escape(event.alert)}[/]" if event.alert else ""),
        ("admitted", f"by an operator, from delivery {event.request_id}:{event.item}" * admitted),
        ("attention", "[bold magenta]an effect failed, or nobody knows whether it happened[/]" * event.attention),
        ("result", escape(event.result or "")),
        ("cause", escape(event.cause or "")),
        ("run, attempts", f"{event.run}, {event.attempts}"),
        ("occurred", moment(event.occurred_at)),
        ("first processed", moment(event.first_processed_at)),
        ("due", moment(event.due_at)),
    ):
        if value:
            facts.add_row(f"[bold]{name}[/]", value)
    if history.request:
        proof = history.request
        facts.add_row("[bold]verified by[/]", proved(proof))
        body = f"{len(proof.body):,} bytes (--body prints them)"
        if proof.emptied_at is not None:
            erased = any(action.name == "erase" for action in history.actions)
            body = f"{'erased' if erased else 'pruned'} on {moment(proof.emptied_at)}"
        facts.add_row("[bold]body[/]", body)
    console.print(_answers(answer(history, preview), preview))
    console.print()
    console.print(facts)
    if history.effects:
        effects = [known.effect for known in history.effects]
        console.print(_effects(effects))
        for effect in effects:
            if effect.alert or (effect.state in UNDECIDED and effect.due_at is None):
                label = f"{effect.name}:{effect.key}" if " " not in effect.key else effect.name
                words = f"hookledger resolve {event.id} {label} --happened or --did-not-happen --reason …"
                status.print(f"To decide: {escape(words)}", soft_wrap=True)
    table = Table("when (UTC)", "what", "by", "details", title="Timeline")
    for entry in timeline(history):
        table.add_row(moment(entry.at), f"{entry.kind}: {entry.what}", escape(entry.by), escape(entry.words))
    console.print(table)


def _keyed(entries: Sequence[Entry]) -> Table:
    """The timeline with its keys."""
    table = Table("when (UTC)", "what", "by", "details", "keys")
    for entry in entries:
        named = {"delivery": entry.delivery, "event": entry.event_key, "claim": entry.claim}
        named |= {"effect": entry.effect, "idempotency key": entry.idempotency_key}
        keys = "\n".join(f"{name} {value}" for name, value in named.items() if value is not None)
        what = f"{entry.kind}: {entry.what}"
        table.add_row(moment(entry.at), what, escape(entry.by), escape(entry.words), escape(keys))
    return table


def _effects(effects: list[Effect]) -> Table:
    table = Table("effect", "key", "how", "state", "calls", "idempotency key", "done (UTC)", "why", title="Effects")
    for effect in effects:
        how = effect.kind if effect.repeat is None else f"{effect.kind}, {effect.repeat}"
        why = f"ALERT {effect.alert}" if effect.alert else (effect.error or "")
        again = f"; again {moment(effect.due_at)}" if effect.due_at else ""
        table.add_row(
            escape(effect.name),
            escape(effect.key),
            how,
            coloured(effect.state),
            str(effect.number) if effect.repeat else "",
            operation_key(effect.identity, effect.generation) if effect.repeat else "",
            moment(effect.finished_at),
            escape(why + again),
        )
    return table

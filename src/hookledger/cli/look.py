"""`hookledger events` and `show`: what a person may see."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import msgspec
from rich.markup import escape
from rich.table import Table

from ..filters import Filter
from ..inbox import Inbox
from ..ledger import Effect
from ..model import EventRow, History, operation_key, unpack_headers
from ..operate.preview import Preview
from ..states import BY_NAME, EffectState, KeyOrigin, State
from .common import brief, looks_at_inbox, narrow_table, print_json, prints_json, run, second, status, table_console

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
@click.option("--source", help="Only of this source.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only in this state.")
@click.option("--type", "kind", envvar="HOOKLEDGER_EVENTS_TYPE", help="Only of this type.")
@click.option("--before", type=click.UUID, help="Only older than this event: for the next page.")
@click.option("--limit", default=50, type=click.IntRange(1, 1000), help="How many.")
@click.option("--counts", is_flag=True, help="Only how many there are in each state.")
@looks_at_inbox
@prints_json
def events(
    inbox: Inbox,
    source: str | None,
    state: str | None,
    kind: str | None,
    before: UUID | None,
    limit: int,
    counts: bool,
    as_json: bool,
) -> None:
    """List events, the newest first."""

    async def read() -> Any:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            if counts:
                return await insight.summary()
            where = Filter(source=source, type=kind, states=(State(state),) if state else ())
            return await insight.events(where, before=before, limit=limit)

    found = run(read())
    if as_json:
        print_json(found)
    elif counts:
        _print_counts("events", found.events)
        _print_counts("deliveries", found.deliveries)
    else:
        _print_events(found, limit)


def _print_counts(title: str, counts: dict[str, int]) -> None:
    table = Table(title, "count")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    table_console().print(table)


def _print_events(found: list[EventRow], limit: int) -> None:
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
    if not found:
        status.print("No events.")
    elif len(found) == limit:
        status.print(f"There may be more: --before {found[-1].id}")


@click.command()
@click.argument("event")
@click.option("--body", is_flag=True, help="Print only the request's body, byte for byte.")
@looks_at_inbox
@prints_json
def show(inbox: Inbox, event: str, body: bool, as_json: bool) -> None:
    """Everything known of one EVENT: by id, the beginning of one, key, or the provider's id."""
    history, preview = run(_history(inbox, event))
    if body:
        sys.stdout.buffer.write(history.request.body if history.request else b"")
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
    return values


async def _history(inbox: Inbox, reference: str) -> tuple[History, Preview]:
    async with inbox.opened() as store:
        insight = inbox.insight(store)
        history = await insight.event(reference)
        return history, insight.preview(history)


def _replays(history: History) -> str:
    """Who replayed it."""
    replays = (action for action in history.actions if action.name == "replay")
    return "\n".join(f"{a.subject} by {a.actor}, {moment(a.at)}: {a.reason}" for a in replays)


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
        ("run, attempts", f"{event.run}, {event.attempts}"),
        ("replayed", escape(_replays(history))),
        ("a replay now", escape(preview.words) * (event.state in BY_NAME["replay"].sources)),
        ("occurred", moment(event.occurred_at)),
        ("first received", moment(event.received_at)),
        ("first processed", moment(event.first_processed_at)),
        ("due", moment(event.due_at)),
    ):
        if value:
            facts.add_row(f"[bold]{name}[/]", value)
    if history.request:
        proof = history.request
        signed = f", signed {moment(proof.signed_at)}" if proof.signed_at else ""
        facts.add_row("[bold]verified by[/]", f"{proof.scheme}, secret {proof.secret}{signed}")
        body = f"{len(proof.body):,} bytes (--body prints them)"
        if proof.emptied_at is not None:
            erased = any(action.name == "erase" for action in history.actions)
            body = f"{'erased' if erased else 'pruned'} on {moment(proof.emptied_at)}"
        facts.add_row("[bold]body[/]", body)
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
    for when, *cells in sorted(_timeline(history), key=lambda row: row[0]):
        table.add_row(moment(when), *map(escape, cells))
    console.print(table)


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


def _timeline(history: History) -> list[tuple[datetime, str, str, str]]:
    lines: list[tuple[datetime, str, str, str]] = []
    for delivery in history.deliveries:
        seen = f"the event was {delivery.event_state}" if delivery.event_state else ""
        kept = "" if delivery.kept else "bytes not kept"
        details = ", ".join(filter(None, (delivery.delivery_id, seen, kept)))
        lines.append((delivery.received_at, f"delivery: {delivery.outcome}", history.event.source, details))
    for attempt in history.attempts:
        took = (attempt.ended_at - attempt.started_at).total_seconds()
        last = (attempt.error or "").strip().splitlines()[-1:] or [""]
        details = f"run {attempt.run}, claim {attempt.claim}, {took:.3f} s {last[0]}".strip()
        lines.append((attempt.ended_at, f"attempt: {attempt.outcome}", attempt.worker or "", details))
    for known in history.effects:
        label = f"{known.effect.name} {known.effect.key}"
        if not known.calls:
            verb = "planned" if known.effect.finished_at is None else str(known.effect.state)
            later = f": {known.effect.error}" if known.effect.superseded else ""
            lines.append((known.effect.created_at, f"effect: {verb}", "", label + later))
        for call in known.calls:
            ended = f", {(call.ended_at - call.started_at).total_seconds():.3f} s" if call.ended_at else ""
            repeated = f" (generation {call.generation})" if call.generation > 1 else ""
            details = f"{label}: call {call.number}{repeated}{ended} {call.error or ''}".strip()
            outcome = call.outcome or "no answer recorded"
            lines.append((call.started_at, f"effect: {outcome}", call.worker, details))
    for action in history.actions:
        about = f"{action.subject}: " if action.subject else ""
        details = f"{about}{action.from_state} → {action.to_state}: {action.reason}"
        lines.append((action.at, f"action: {action.name}", action.actor, details))
    return lines

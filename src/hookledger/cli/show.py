"""`hookledger show`: one event in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec
from rich.text import Text

from ..ids import operation_key
from ..inbox import Inbox
from ..ledger import Effect
from ..model import unpack_headers
from ..operate import search
from ..operate.answers import Answers, answer
from ..operate.context import Context
from ..operate.effects import needs_result, result_form
from ..operate.quarantine.deliveries import conflicts
from ..operate.quarantine.difference import Conflict
from ..operate.replay.preview import Preview, Verdict
from ..operate.replay.replay import preview
from ..operate.timeline import Entry, answer_words, proved, timeline
from ..states import EffectState, KeyOrigin, State
from ..store.history import EventRow, History
from .common import inbox_options, print_bytes, print_json, prints_json, run_on, table_console
from .table import Fact, Listing, coloured, moment, number, print_command, print_facts, prose, say, unbroken, words
from .tracebacks import counted, newest_traceback, print_excerpt, print_traceback

UNDECIDED = (EffectState.UNKNOWN, EffectState.FAILED)
SAID = ("when (UTC)", "what", "by", prose("details"))
"""Columns of a timeline."""
ATTENTION = "an effect failed, or its outcome is unknown"


@click.command()
@click.argument("event")
@click.option("--body", is_flag=True, help="Print only the request body, byte for byte.")
@click.option("--timeline", "only_timeline", is_flag=True, help="Print only the timeline, with all keys.")
@click.option("--traceback", is_flag=True, help="Print only the newest traceback.")
@inbox_options
@prints_json
def show(inbox: Inbox, event: str, body: bool, only_timeline: bool, traceback: bool, as_json: bool) -> None:
    """Show an event's history and effects

    EVENT is an id, id prefix, event key or provider id; EVENT/STAGE is one of its stages.
    """
    shown = run_on(inbox, lambda context: _history(context, event))
    history = shown.history
    if body:
        print_bytes(history.request.body if history.request else b"")
    elif only_timeline:
        print_json(timeline(history)) if as_json else _print_keyed(timeline(history))
    elif traceback:
        print_json({"traceback": newest_traceback(history)}) if as_json else print_traceback(history)
    elif as_json:
        print_json(_readable(shown))
    else:
        _print_history(shown)


def previewed(preview: Preview) -> dict[str, Any]:
    """Return a preview as JSON values, with its verdict in one line."""
    return {"words": preview.words, **msgspec.to_builtins(preview)}


class Shown(NamedTuple):
    """What `show` prints of one event."""

    history: History
    preview: Preview
    """What a replay would do now."""
    forms: Mapping[bytes, str | None]
    """An example of each missing effect result, by effect identity; None where the application is not loaded."""
    conflicts: Sequence[Conflict]


def _readable(shown: Shown) -> Any:
    """Return an event as JSON values: headers as pairs, the body in base64, effects with their idempotency keys, and
    what a replay would do."""
    history, preview = shown.history, shown.preview
    values = msgspec.to_builtins(history)
    if history.request:
        values["request"]["headers"] = unpack_headers(history.request.headers)
    if history.answer:
        values["answer"]["headers"] = unpack_headers(history.answer.headers)
    for known, told in zip(history.effects, values["effects"], strict=True):
        if known.effect.repeat is not None:
            told["effect"]["idempotency_key"] = known.effect.idempotency_key
        told["effect"]["superseded"] = known.effect.superseded
    values["replay"] = previewed(preview)
    values["answers"] = msgspec.to_builtins(answer(history, preview))
    values["timeline"] = msgspec.to_builtins(timeline(history))
    values["conflicts"] = msgspec.to_builtins(shown.conflicts)
    return values


async def _history(context: Context, reference: str) -> Shown:
    history, application = await search.find(context, reference), context.application
    effects = [known.effect for known in history.effects if needs_result(application, known.effect)]
    forms = {effect.identity: result_form(application, effect) for effect in effects}
    return Shown(history, preview(context, history), forms, await conflicts(context, history))


def _print_answers(answers: Answers, preview: Preview) -> None:
    """Print the answers about an event, a line each."""
    tried = answers.attempts
    now = " and one just now" if tried.running else ""
    times = f"{tried.ended:,}{now}, in {tried.runs:,} run{'s' * (tried.runs > 1)}"
    ended = f"; the last: {tried.last}" if tried.last else ""
    came = f"{moment(answers.first_received)}, delivered {answers.deliveries:,} time{'s' * (answers.deliveries > 1)}"
    replays = "\n".join(f"{a.subject} by {a.actor}, {moment(a.at)}: {a.reason}" for a in answers.replays)
    reviews = "\n".join(f"{a.name} by {a.actor}, {moment(a.at)}: {a.reason}" for a in answers.reviews)
    opened = [f"{one.label} ({one.state})" for one in answers.open]
    opened += [f"stage {one.stage} ({one.state})" for one in answers.open_stages]
    facts = (
        ("first received?", came),
        ("attempts?", times + ended),
        ("effects completed?", _enumerated(one.label for one in answers.completed)),
        ("pending or uncertain?", _enumerated(opened)),
        ("replayed by whom?", replays or "never replayed"),
        ("reviewed by whom?", reviews),
        ("a replay now?", preview.words),
    )
    print_facts(table_console(), facts)


def _enumerated(labels: Iterable[str]) -> list[Text]:
    """Return the labels as whole words, so that each can be copied."""
    *others, last = [*labels] or ["none"]
    return [*(unbroken(f"{label},") for label in others), unbroken(last)]


def _next_look(event: EventRow) -> str:
    return moment(event.ready_at or event.due_at)


def _print_history(shown: Shown) -> None:
    console, history, event = table_console(), shown.history, shown.history.event
    admitted = event.key_origin is KeyOrigin.QUARANTINE
    state = [coloured(event.state) + Text(":"), *words(event.reason)] if event.reason else coloured(event.state)
    facts: list[Fact] = [
        ("event", str(event.id)),
        ("source", unbroken(event.source)),
        ("stage", f"{event.stage} of event {event.parent}" if event.stage else ""),
        ("type", unbroken(event.type)),
        ("version", unbroken(event.version)),
        ("key", [unbroken(event.key), Text(f"({event.key_origin})")]),
        ("provider id", unbroken(event.provider_id or "")),
        ("object", unbroken(event.object_id or "")),
        ("account", unbroken(event.account or "")),
        ("state", state),
        ("alert", [_marked(word) for word in words(event.alert or "")]),
        ("accepted", f"by an operator, from delivery {event.request_id}:{event.item}" * admitted),
        ("same body as", f"event {history.body_of}" if history.body_of else ""),
        ("attention", [_marked(word) for word in words(ATTENTION * event.attention)]),
        ("result", event.result or ""),
        ("answer", answer_words(history.answer) if history.answer else ""),
        ("cause", event.cause or ""),
        ("run, attempts", counted(history)),
        ("approved", _approved(history)),
        ("occurred", moment(event.occurred_at)),
        ("first processed", moment(event.first_processed_at)),
        ("entity", unbroken(event.entity or "")),
        ("waits for", f"an event of {event.waits_for}; looks again {_next_look(event)}" if event.waits_for else ""),
        ("turn", history.turn.words if history.turn else ""),
        ("due", "" if event.ready_at else moment(event.due_at)),
    ]
    if history.request:
        proof = history.request
        body = f"{len(proof.body):,} bytes (--body prints them)"
        if proof.emptied_at is not None:
            erased = any(action.name == "erase" for action in history.actions)
            body = f"{'erased' if erased else 'pruned'} on {moment(proof.emptied_at)}"
        facts += [("verified by", proved(proof)), ("body", body)]
    _print_answers(answer(history, shown.preview), shown.preview)
    console.print()
    print_facts(console, facts)
    if history.stages:
        console.print()
        _print_stages(history)
    if history.effects:
        console.print()
        effects = [known.effect for known in history.effects]
        _print_effects(effects)
        _suggest_decisions(event, effects, shown.forms)
    if history.guards:
        console.print()
        _print_guards(history)
    for conflict in shown.conflicts:
        console.print()
        say(f"Conflict {conflict.delivery} of {moment(conflict.received_at)} UTC, where it differs:", console)
        print_facts(console, [("", "\n".join(conflict.difference.first()))])
    console.print()
    listing = Listing(*SAID, heads=2, title="Timeline")
    for entry in timeline(history):
        listing.add(moment(entry.at), f"{entry.kind}: {entry.what}", entry.by, entry.words)
    listing.print(console)
    print_excerpt(history)
    if event.state is State.FAILED:
        print_command("To run it again", ["hookledger", "retry", str(event.id), "--reason", "WHY"])
    if event.state is State.NEEDS_REVIEW:
        _suggest_answers(event, shown.preview)


def _approved(history: History) -> str:
    """Return who approved the present run. An event has no other approval since."""
    found = [action for action in history.actions if action.name == "approve"]
    if history.event.approval_id is None or not found:
        return ""
    return f"run {history.event.run} by {found[-1].actor}, {moment(found[-1].at)}: {found[-1].reason}"


def _suggest_answers(event: EventRow, preview: Preview) -> None:
    """Print the answers to a review, as commands. An approval is not allowed before effects are decided."""
    answers = {"approve": "To let it pass", "reject": "To close it", "settle": "If you settled it by hand"}
    for name, label in answers.items():
        if name != "approve" or preview.verdict is not Verdict.NEEDS_A_DECISION:
            print_command(label, ["hookledger", name, str(event.id), "--reason", "WHY"])


def _print_stages(history: History) -> None:
    """Print the stages of an event, and how to act on one."""
    listing = Listing("stage", "state", number("run"), number("tries"), "id", prose("why"), heads=4, title="Stages")
    for row in history.stages:
        why = row.alert or row.reason or (ATTENTION if row.attention else row.result or "")
        listing.add(str(row.stage), coloured(row.state), str(row.run), f"{row.attempts:,}", str(row.id), why)
    listing.print()
    stage = next((row for row in history.stages if row.state is State.FAILED), history.stages[0])
    print_command(
        "A stage is shown, retried and replayed as EVENT/STAGE",
        ["hookledger", "show", f"{history.event.id}/{stage.stage}"],
    )


def _suggest_decisions(event: EventRow, effects: Sequence[Effect], forms: Mapping[bytes, str | None]) -> None:
    """Print both decisions for each effect that needs one, as commands. RESULT is a placeholder that `resolve` does
    not accept."""
    labels = Counter(effect.label for effect in effects)
    for effect in effects:
        if not effect.alert and (effect.state not in UNDECIDED or effect.due_at is not None):
            continue
        label = effect.label
        if labels[label] > 1 or not label.isprintable():  # a label with control characters cannot be typed
            label = operation_key(effect.identity, effect.generation)
        command = ["hookledger", "resolve", str(event.id), label]
        say(f"{label} is {effect.state}: find out from {effect.downstream or effect.name} whether it happened.")
        result: list[str] = []
        if effect.identity in forms:
            result = ["--result", "RESULT"]
            form = forms[effect.identity]
            which = f"of this form: {form}" if form else "; --app shows its form; null if the handler reads no result"
            say(f"The handler reads RESULT: what the call returned, as JSON {which}")
        print_command("If it did", [*command, "--happened", *result, "--reason", "WHY"])
        print_command("If not", [*command, "--did-not-happen", "--reason", "WHY"])


def _marked(word: Text) -> Text:
    word.stylize("bold magenta")
    return word


def _print_keyed(entries: Sequence[Entry]) -> None:
    """Print the timeline with its keys."""
    listing = Listing(*SAID, "delivery", "event", number("claim"), "effect or guard", "idempotency key", heads=2)
    for entry in entries:
        listing.add(
            moment(entry.at),
            f"{entry.kind}: {entry.what}",
            entry.by,
            entry.words,
            entry.delivery or "",
            entry.event_key or "",
            "" if entry.claim is None else str(entry.claim),
            entry.effect or entry.guard or "",
            entry.idempotency_key or "",
        )
    listing.print()


def _print_guards(history: History) -> None:
    """Print the last answer of each guard that the event asked, and what the guard has now."""
    listing = Listing("guard", "key", "answer", "version", "now", prose("why"), heads=3, title="Guards")
    for known in {one.answer.identity: one for one in history.guards}.values():
        answer, guard = known.answer, known.guard
        mine = Text("applied", "green") if answer.applied else Text("stale", "yellow")
        now = "" if guard is None else f"{guard.version} by {guard.event_key}"
        listing.add(
            answer.name, answer.key, mine + ", tie" * (answer.tie is not None), answer.version, now, answer.words
        )
    listing.print(table_console())


def _print_effects(effects: list[Effect]) -> None:
    facts = (number("calls"), "key", "idempotency key", "done (UTC)", prose("why"))
    listing = Listing("effect", "state", "how", *facts, heads=3, title="Effects")
    for effect in effects:
        why = f"ALERT {effect.alert}" if effect.alert else (effect.error or "")
        again = f"; again {moment(effect.due_at)}" if effect.due_at else ""
        listing.add(
            effect.name,
            coloured(effect.state),
            effect.kind if effect.repeat is None else f"{effect.kind}, {effect.repeat}",
            f"{effect.number:,}" if effect.repeat else "",
            effect.key,
            effect.idempotency_key or "",
            moment(effect.finished_at),
            why + again,
        )
    listing.print()

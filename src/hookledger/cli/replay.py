"""`hookledger replay` and `discard`: process an event again, or close it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click
from rich.text import Text

from ..errors import WrongState
from ..inbox import Inbox
from ..operate import audit, decide, search
from ..operate.context import Context
from ..operate.replay import replay as replaying
from ..operate.replay.dry_run import DryRunReport
from ..operate.replay.preview import InReplay, Preview, Verdict
from ..operate.replay.stages import replay_stage
from ..operate.review import review_of
from ..states import EffectState
from ..store.history import EventRow, History
from ..store.ops.audit import Audit
from ..store.ops.reviews import Approval
from . import exits
from .common import (
    actor_option,
    audited,
    inbox_options,
    print_json,
    prints_json,
    reason_option,
    run,
    run_on,
    status,
    table_console,
)
from .next_steps import Next, next_of, say_next
from .show import previewed
from .table import Listing, coloured, moment, print_facts, prose, say

COLOURS = {Verdict.SAFE: "green", Verdict.WILL_DO: "yellow", Verdict.NEEDS_A_DECISION: "magenta"}
OPEN = (EffectState.PLANNED, EffectState.STARTED, EffectState.UNKNOWN)


@click.command()
@click.argument("event")
@click.option("--preview", "only_preview", is_flag=True, help="Print the preview; change nothing.")
@click.option("--dry-run", is_flag=True, help="Run the handler, roll back, report.")
@click.option(
    "--repeat-effect",
    "repeat",
    multiple=True,
    metavar="NAME[:KEY]",
    help="Perform a finished effect again; repeatable.",
)
@click.option("--stage", metavar="NAME", help="Replay this stage; add it if EVENT lacks it.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@reason_option(unless="--preview or --dry-run")
@actor_option
@inbox_options
@prints_json
def replay(
    inbox: Inbox,
    event: str,
    only_preview: bool,
    dry_run: bool,
    repeat: tuple[str, ...],
    stage: str | None,
    yes: bool,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Process an event again as a new run

    EVENT is an id, id prefix, event key or provider id. It must be processed, skipped, failed, discarded or in
    review. Effects that are done are skipped. The preview's verdict is one of:

    \b
    safe: no recorded effect runs; the event was processed before and its
      handler declares "converges"
    will do: the listed actions happen
    needs a decision: not allowed until you resolve the listed items

    --dry-run runs the handler here, in a transaction that is rolled back. It stops at the first call without a
    recorded result, and exits 12 unless the event would be processed or skipped.

    --repeat-effect takes a name, NAME:KEY where the event has several, or an idempotency key. The effect is performed
    when the new run asks for it; a call gets a new idempotency key.

    The stages of an event are not replayed with it. --stage replays one, as EVENT/STAGE does; a processed event from
    before the application had the stage gets it.
    """
    if stage is not None:
        event = _with_stage(inbox, event, stage, only_preview or dry_run, reason, actor, as_json)
        if not event:
            return
    if dry_run:
        if only_preview or repeat:
            raise click.UsageError("--dry-run excludes --preview and --repeat-effect: give one of them")
        run_dry(inbox, event, yes, as_json)
        return
    if not only_preview and not reason:
        raise click.UsageError("--reason is required unless --preview or --dry-run")

    async def look(context: Context) -> tuple[History, Preview]:
        history = await search.find(context, event)
        return history, replaying.preview(context, history, repeat)

    history, preview = run_on(inbox, look)
    if not as_json:
        print_preview(preview)
    if only_preview:
        if as_json:
            print_json(previewed(preview))
        return
    if preview.verdict is Verdict.NEEDS_A_DECISION:
        raise WrongState(f"event {history.event.id} cannot be replayed now: {preview.words}")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Replay it as run {preview.run}?", abort=True, err=True)

    async def act(context: Context) -> tuple[EventRow, Next]:
        by = audit.by(actor, reason or "")
        after = (await replaying.replay(context, by, history.event, repeat, shown=preview)).event
        return after, await next_of(context, after)

    after, follows = run_on(inbox, act)
    if as_json:
        print_json({"preview": previewed(preview), "event": after})
    else:
        say_next(after, follows, run=True)


def _with_stage(
    inbox: Inbox, event: str, stage: str, only_look: bool, reason: str | None, actor: str, as_json: bool
) -> str:
    """Return the reference of an event's stage; empty if the event lacked the stage and has it now."""
    history = run_on(inbox, lambda context: search.find(context, event))
    if any(row.stage == stage for row in history.stages):
        return f"{history.event.id}/{stage}"
    if only_look or not reason:
        raise click.UsageError(f"event {event} has no stage {stage!r}: --reason adds it, and --preview shows nothing")

    async def act(context: Context) -> tuple[EventRow, Next]:
        after = (await replay_stage(context, audit.by(actor, reason), history.event, stage)).event
        return after, await next_of(context, after)

    after, follows = run_on(inbox, act)
    if as_json:
        print_json({"preview": None, "event": after})
    else:
        say_next(after, follows, run=True)
    return ""


def run_dry(inbox: Inbox, event: str, yes: bool, as_json: bool, approved: Approval | None = None) -> None:
    """Run the handler here, roll back and report. `approved`: as if the event, which is in review, had been."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("--dry-run cannot ask for confirmation: stdin is not a terminal; give --yes")

    async def look() -> tuple[History, str]:
        async with inbox.opened() as store:
            history = await search.find(inbox.context(store), event)
            if approved is not None:
                review_of(history, "approve")
            return history, inbox.dry_run(store).handler(history).name

    async def act() -> DryRunReport:
        async with inbox.opened(handlers=1) as store:
            now = await search.find(inbox.context(store), str(known.event.id))
            return await inbox.dry_run(store).run(now, approved)

    known, handler = run(look())
    say(
        f"The code of {handler} runs here. What it writes in event.tx is rolled back; anything else it does, "
        "such as a request outside event.call, really happens."
    )
    if not yes:
        click.confirm(f"Run {handler} on event {known.event.id}?", abort=True, err=True)
    with redirect_stdout(sys.stderr):  # what the handler prints is not data
        report = run(act())
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if not report.succeeds:
        raise SystemExit(exits.NOT_PROCESSED)


def _print_report(report: DryRunReport) -> None:
    console = table_console()
    ended = Text("stopped at a call", "yellow") if report.state is None else coloured(report.state)
    console.print(Text.assemble(f"Dry run of {report.handler} as run {report.run}: ", ended), soft_wrap=True)
    listing = Listing("effect", "how", "key", prose("answer"), heads=2)
    for step in report.steps:
        listing.add(step.name, step.kind, step.key, step.answer)
    listing.print(console)
    if report.state is not None:  # else the last step shows it
        print_facts(console, [("reason", report.reason or ""), ("result", report.result or "")])
    if report.error:
        say(report.error.rstrip(), console)
    if report.alert:
        status.error(report.alert)
    else:
        say("Rolled back: the database is unchanged.")


def print_preview(preview: Preview, how: str = "Replay") -> None:
    """Print the verdict, the reasons, and each effect. `how` the run would begin."""
    console, colour = table_console(), COLOURS[preview.verdict]
    console.print(f"{how} as run {preview.run}: [bold {colour}]{preview.verdict}[/]{':' if preview.items else ''}")
    for item in preview.items:
        say(f"- {item}", console)
    for reason in preview.reasons:
        say(reason, console)
    if preview.guards:
        _print_guards(preview)
    if not preview.effects:
        say("The ledger has no effect of this event.", console)
        return
    facts = ("in a replay", "done (UTC)", "requested by", "key", "idempotency key")
    listing = Listing("effect", "state", "how", *facts, heads=3)
    for effect in preview.effects:
        asked = f"claim {effect.claim}" if effect.run is None else f"run {effect.run}, claim {effect.claim}"
        listing.add(
            effect.name,
            coloured(effect.state),
            effect.kind,
            Text(effect.in_replay, "" if effect.in_replay is InReplay.SKIPPED else "bold"),
            moment(effect.done_at),
            asked,
            effect.key,
            effect.idempotency_key or "",
        )
    listing.print(console)


def _print_guards(preview: Preview) -> None:
    listing = Listing("guard", "key", "in a replay", "version", prose("why"), heads=2)
    for guard in preview.guards:
        answer = Text("stale", "yellow") if guard.stale else Text("newest")
        listing.add(guard.name, guard.key, answer, guard.version, guard.words)
    listing.print(table_console())


@click.command()
@click.argument("event")
@audited
@inbox_options
@prints_json
def discard(inbox: Inbox, event: str, by: Audit, as_json: bool) -> None:
    """Close an event without processing it

    EVENT is an id, id prefix, event key or provider id. It must be pending, retrying, failed or in review; it can be
    replayed later. Its effects stay as they are: those in the outbox are performed, unless `hookledger resolve
    --cancel` cancels them.
    """

    async def act(context: Context) -> History:
        known = await search.find(context, event)
        return await decide.discard(context, by, known.event)

    print_closed(run_on(inbox, act), as_json)


def print_closed(history: History, as_json: bool) -> None:
    """Print an event that is over, and its effects that are not."""
    if as_json:
        print_json(history.event)
        return
    status.print(f"Event {history.event.id} is {history.event.state}.")
    for effect in (known.effect for known in history.effects if known.effect.state in OPEN):
        say(f"Effect {effect.name} {effect.key} stays {effect.state}.")

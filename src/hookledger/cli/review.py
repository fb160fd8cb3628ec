"""`hookledger approve`, `reject` and `settle`: answer an event in review, with a reason."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from ..inbox import Inbox
from ..operate import audit, review, search
from ..operate.context import Context
from ..operate.replay.preview import Preview
from ..operate.replay.replay import check_preview
from ..operate.review import Review
from ..store.history import EventRow, History
from ..store.ops.audit import Audit
from ..store.ops.reviews import Approval
from .common import actor_option, audited, inbox_options, print_json, prints_json, reason_option, run_on
from .next_steps import Next, next_of, say_next
from .replay import print_closed, print_preview, run_dry
from .show import previewed
from .table import moment, say


@click.command()
@click.argument("event")
@click.option("--preview", "only_preview", is_flag=True, help="Print the preview; change nothing.")
@click.option("--dry-run", is_flag=True, help="Run the handler as approved, roll back, report.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@reason_option(unless="--preview or --dry-run")
@actor_option
@inbox_options
@prints_json
def approve(
    inbox: Inbox,
    event: str,
    only_preview: bool,
    dry_run: bool,
    yes: bool,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Let an event in review pass, for one run

    EVENT is an id, id prefix, event key or provider id. It runs again as a new run, in which its handler finds who
    approved it, when and why (event.approved). The approval answers the review that the command prints: it ends with
    that run, and another review voids it. Effects that are done are skipped; an unknown outcome is decided first,
    with `hookledger resolve`.

    --preview and --dry-run tell what the run would do, as those of `hookledger replay` do.
    """
    if dry_run:
        if only_preview:
            raise click.UsageError("--dry-run excludes --preview: give one of them")
        run_dry(inbox, event, yes, as_json, Approval(actor, datetime.now(UTC), reason or "a dry run"))
        return
    if not only_preview and not reason:
        raise click.UsageError("--reason is required unless --preview or --dry-run")

    async def look(context: Context) -> tuple[EventRow, Review, Preview]:
        history = await search.find(context, event)
        return history.event, review.review_of(history, "approve"), review.preview_approval(context, history)

    known, asked, preview = run_on(inbox, look)
    if not as_json:
        _print_review(asked)
        print_preview(preview, "Approve")
    if only_preview:
        if as_json:
            print_json({"review": asked, "preview": previewed(preview)})
        return
    check_preview(known, preview, None, done="approved")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Approve it as run {preview.run}?", abort=True, err=True)

    async def act(context: Context) -> tuple[EventRow, Next]:
        by = audit.by(actor, reason or "")
        after = (await review.approve(context, by, known, shown=preview)).event
        return after, await next_of(context, after)

    after, follows = run_on(inbox, act)
    if as_json:
        print_json({"review": asked, "preview": previewed(preview), "event": after})
    else:
        say_next(after, follows, run=True)


@click.command()
@click.argument("event")
@audited
@inbox_options
@prints_json
def reject(inbox: Inbox, event: str, by: Audit, as_json: bool) -> None:
    """Close an event in review without processing it

    EVENT is an id, id prefix, event key or provider id. The audit log has the review that you answer. The event's
    effects stay as they are. It can be replayed later.
    """

    async def act(context: Context) -> tuple[Review, History]:
        known = await search.find(context, event)
        return review.review_of(known, "reject"), await review.reject(context, by, known.event)

    _print_answer(*run_on(inbox, act), as_json)


@click.command()
@click.argument("event")
@audited
@inbox_options
@prints_json
def settle(inbox: Inbox, event: str, by: Audit, as_json: bool) -> None:
    """Record that an event in review was settled by hand

    EVENT is an id, id prefix, event key or provider id. It becomes processed, and its handler does not run; --reason
    says what you did instead. The event's effects stay as they are. It can be replayed later.
    """

    async def act(context: Context) -> tuple[Review, History]:
        known = await search.find(context, event)
        return review.review_of(known, "settle"), await review.settle(context, by, known.event)

    _print_answer(*run_on(inbox, act), as_json)


def _print_answer(asked: Review, history: History, as_json: bool) -> None:
    if not as_json:
        _print_review(asked)
    print_closed(history, as_json)


def _print_review(asked: Review) -> None:
    place = "at intake" if asked.claim is None else f"at claim {asked.claim}"
    say(f"Review {place}, {moment(asked.at)} UTC: {asked.reason}")

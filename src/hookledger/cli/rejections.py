"""`hookledger rejections`: rejected requests and why, and verifying them again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
from msgspec.structs import asdict
from rich.text import Text

from ..inbox import Inbox
from ..model import unpack_headers
from ..operate import audit
from ..operate import rejections as operate
from ..operate.context import Context
from ..operate.rejections import Rechecked, RejectionCount
from ..receive.endpoint import with_secrets
from ..receive.reasons import in_words
from ..receive.rejections import EVERY
from ..store.ops.rejections import RejectionRow
from . import exits
from .common import (
    actor_option,
    inbox_options,
    print_bytes,
    print_json,
    prints_json,
    reason_option,
    run_on,
    second,
    status,
)
from .filters import limit_option, source_option
from .groups import ListsByDefault
from .table import Listing, number, print_command, print_facts, prose, say


@click.group(cls=ListsByDefault)
def rejections() -> None:
    """List or re-verify rejected requests

    All are counted, and a sample is kept, without the secrets presented in them.
    """


@rejections.command("list")
@source_option
@click.option("--reason", "code", help="Only with this reason.")
@click.option("--before", type=click.UUID, help="Only older than this request: the next page.")
@limit_option(50)
@click.option("--counts", is_flag=True, help="Print only counts, by source and reason.")
@click.option("--body", metavar="ID", help="Print only the body of this request, byte for byte.")
@inbox_options
@prints_json
def list_rejections(
    inbox: Inbox,
    source: str | None,
    code: str | None,
    before: UUID | None,
    limit: int,
    counts: bool,
    body: str | None,
    as_json: bool,
) -> None:
    """List the sample of rejected requests, newest first"""
    if body is not None:
        print_bytes(run_on(inbox, lambda context: operate.find(context, body)).body)
        return

    async def read(context: Context) -> tuple[list[RejectionRow], list[RejectionCount]]:
        counted = await operate.counts(context)
        if counts:
            return [], counted
        sample = await operate.rejections(context, source=source, reason=code, before=before, limit=limit)
        return sample, counted

    found, counted = run_on(inbox, read)
    counted = [c for c in counted if source in (None, c.source) and code in (None, c.reason)]
    if as_json:
        print_json(counted if counts else [_row(row) for row in found])
    elif counts:
        _print_counts(counted)
    else:
        _print_sample(found, counted, limit)
        if source is not None and not found and source not in inbox.sources:
            say(f"No source {source} is configured here.")


def _row(row: RejectionRow) -> dict[str, Any]:
    """Return a rejected request as JSON values; the body in base64."""
    text = {"query": row.query.decode("latin-1"), "headers": unpack_headers(row.headers)}
    return {**asdict(row), **text, "words": in_words(row.reason), "size": len(row.body)}


def _print_counts(counted: list[RejectionCount]) -> None:
    numbers = (number("rejected"), number("kept"))
    listing = Listing("source", "reason", *numbers, "last (UTC)", prose("in words"), heads=2)
    for one in counted:
        figures = (f"{one.count:,}", f"{one.kept:,}", second(one.last_at))
        listing.add(one.source or "-", one.reason, *figures, one.words)
    listing.print(empty="No request was rejected.")


def _print_sample(found: list[RejectionRow], counted: list[RejectionCount], limit: int) -> None:
    if not found:
        total = sum(count.count for count in counted)
        rest = f" {total:,} were counted: --counts." if total else ""
        status.print(f"No rejected request is in the sample.{rest}")
        if not total:
            status.print(f"Requests rejected within the last {EVERY:g} s may not be written yet: try again.")
        return
    listing = Listing("id", "when (UTC)", "reason", "source", number("bytes"), "from", heads=4)
    for row in found:
        size = f"{len(row.body):,}"
        listing.add(str(row.id), second(row.received_at), row.reason, row.source, size, row.remote or "")
    listing.print()
    _explain({row.reason for row in found})
    if len(found) == limit:
        say(f"There may be more: --before {found[-1].id}")


def _explain(codes: set[str]) -> None:
    print_facts(status, [(code, in_words(code)) for code in sorted(codes)])


# ── recheck ──────────────────────────────────────────────────────────────────


@rejections.command()
@click.argument("source")
@click.option("--accept", is_flag=True, help="Record those that are authentic now.")
@reason_option(only_with="--accept")
@actor_option
@inbox_options
@prints_json
def recheck(inbox: Inbox, source: str, accept: bool, reason: str | None, actor: str, as_json: bool) -> None:
    """Verify the rejected requests of a source again

    Uses the secrets configured now and the time at which each request arrived. --accept records those that are
    authentic as if they arrived now, and removes them from the sample; an event recorded since then gets a duplicate.
    Exits 7 if none is authentic.
    """
    if accept and not (reason and reason.strip()):
        raise click.UsageError("--accept needs --reason")

    with_secrets(inbox.examiner.endpoint(source))  # raises if one is missing

    async def act(context: Context) -> list[Rechecked]:
        try:
            if accept:
                return await operate.accept(context, audit.by(actor, reason or ""), source)
            return await operate.recheck(context, source)
        finally:
            await inbox.keyring.close()

    found = run_on(inbox, act)
    if as_json:
        print_json([_verdict(one) for one in found])
    else:
        _print_verdicts(found)
    good = sum(one.authentic for one in found)
    if not found:
        say(f"The sample holds no rejected request of {source}.")
    elif accept:
        status.print(f"{good:,} accepted, {len(found) - good:,} still rejected.")
    else:
        status.print(f"{good:,} would be accepted now, {len(found) - good:,} would still be rejected.")
        if good:
            command = ["hookledger", "rejections", "recheck", source, "--accept", "--reason", "WHY"]
            print_command("To accept them", command)
    if found and not good:
        raise SystemExit(exits.NOT_ALLOWED)


def _verdict(one: Rechecked) -> dict[str, Any]:
    values = asdict(one)
    del values["arrival"]  # the request itself
    recorded = [{"outcome": each.outcome, "event": each.event_id} for each in one.recorded]
    return {**values, "words": in_words(one.reason_now) if one.reason_now else None, "recorded": recorded}


def _print_verdicts(found: list[Rechecked]) -> None:
    if not found:
        return
    listing = Listing("id", "when (UTC)", "was rejected for", prose("now"), heads=2)
    for one in found:
        listing.add(str(one.id), second(one.received_at), one.reason, _now(one))
    listing.print()
    _explain({one.reason_now for one in found if one.reason_now is not None})


def _now(one: Rechecked) -> Text:
    if one.reason_now is not None:
        return Text.assemble(("still rejected", "red"), f": {one.reason_now}")
    if not one.recorded:
        return Text("would be accepted", "green")
    kinds = dict.fromkeys((each.outcome, each.event_id) for each in one.recorded)
    return Text("; ").join(Text.assemble((outcome, "green"), f": event {ident}") for outcome, ident in kinds)

"""`hookledger doctor`: what an experienced operator would look at, and what to do about it."""

from __future__ import annotations

from datetime import datetime

import click
from rich.text import Text

from ..errors import ConfigError, HookledgerError
from ..inbox import Inbox
from ..operate.doctor import examine
from ..operate.finding import Finding, Level
from . import exits
from .common import default_actor, looks_at_inbox, print_json, prints_json, run, status, table_console
from .reconcile import When
from .table import print_facts

COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "problem": "bold red"}


@click.command()
@looks_at_inbox
@click.option("--deep", is_flag=True, help="Let the database check its own file as well.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="How long the books, or the file, may be looked at.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["problem", "warn", "never"]),
    default="problem",
    help="The level from which the exit code is 11.",
)
@click.option("--after-restore", is_flag=True, help="The database was restored from a backup: see docs.")
@click.option("--backup-at", type=When(), metavar="WHEN", help="With --after-restore: when the backup was taken.")
@click.option("--done", is_flag=True, help="With --after-restore: the gap is reconciled.")
@click.option("--reason", help="With --after-restore: why, for the audit.")
@click.option("--actor", default=default_actor, envvar="HOOKLEDGER_ACTOR", help="Who asks.")
@prints_json
def doctor(
    inbox: Inbox,
    deep: bool,
    limit: float,
    fail_on: str,
    after_restore: bool,
    backup_at: datetime | None,
    done: bool,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Check data, database, clocks, workers and what is in trouble.

    A problem: a failed event or one in review, an effect that failed for good, an unknown outcome that waits for an
    operator or is older than 5 minutes, an alert, an open circuit, due events or effects without a live worker, data
    that does not add up, a database that cannot be written. A warning: what may become one, such as retries, a
    tripped circuit, no live worker while nothing is due.

    Exits with 11 if there is a problem; `--fail-on warn` also if there is a warning.
    """
    if after_restore != (reason is not None) or after_restore != (done or backup_at is not None):
        raise click.UsageError("--after-restore needs --reason, and --backup-at or --done; nothing else does")
    if done and backup_at is not None:
        raise click.UsageError("--done closes the gap of the restore that is open: it takes no --backup-at")
    if reason is not None:
        status.print(run(_after_restore(inbox, backup_at, actor, reason)))
    found = run(_examine(inbox, deep, limit))
    if as_json:
        print_json(found)
    else:
        _print(found)
    problems = sum(finding.level == "problem" for finding in found)
    warnings = sum(finding.level == "warn" for finding in found)
    status.print(f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}.")
    if (problems and fail_on != "never") or (warnings and fail_on == "warn"):
        raise SystemExit(exits.PROBLEM)


async def _after_restore(inbox: Inbox, backup_at: datetime | None, actor: str, reason: str) -> str:
    async with inbox.opened() as store:
        actions = inbox.actions(store, actor)
        if backup_at is None:
            await actions.close_gap(reason)
            return "The gap is closed: effects are performed as declared."
        lease = inbox.settings.work.lease
        _, number = await actions.after_restore(backup_at, reason, lease=lease)
        return f"{number:,} effects that were planned or started became unknown; the gap is open."


async def _examine(inbox: Inbox, deep: bool, limit: float) -> list[Finding]:
    try:
        async with inbox.opened(check=False) as store:
            insight = inbox.insight(store)
            return await examine(insight, lease=inbox.settings.work.lease, deep=deep, limit=limit)
    except ConfigError:
        raise
    except HookledgerError as error:
        return [Finding("problem", "database", str(error), "see that it runs, and that its URL is right")]


def _print(found: list[Finding]) -> None:
    print_facts(table_console(), [(Text(one.level, COLOURS[one.level]), _words(one)) for one in found])


def _words(finding: Finding) -> str:
    return f"{finding.about}: {finding.says}" + (f"\n→ {finding.do}" if finding.do else "")

"""`hookledger doctor`: check a live inbox and say what to do."""

from __future__ import annotations

from datetime import datetime

import click
from rich.text import Text

from ..errors import ConfigError, HookledgerError
from ..inbox import Inbox
from ..operate import audit, restore
from ..operate.doctor.checks import examine
from ..operate.doctor.finding import Finding, Level
from ..store.ops.audit import Audit
from . import exits
from .common import actor_option, inbox_options, print_json, prints_json, reason_option, run_on, status, table_console
from .reconcile import When
from .table import print_facts

COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "problem": "bold red"}


@click.command()
@inbox_options
@click.option("--deep", is_flag=True, help="Have the database check its file too.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="Time limit of the consistency check and of --deep.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["problem", "warn", "never"]),
    default="problem",
    help="Exit 11 from this level on.",
)
@click.option("--after-restore", is_flag=True, help="Open or close the gap after restoring a backup.")
@click.option("--backup-at", type=When(), metavar="WHEN", help="With --after-restore: the time of the backup.")
@click.option("--done", is_flag=True, help="With --after-restore: the gap is reconciled.")
@reason_option(only_with="--after-restore")
@actor_option
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
    """Check data, database, clocks and workers

    A problem is a failed event or one in review, a failed effect, an unknown outcome that waits for an operator or is
    older than 5 minutes, an alert, an open circuit, due events or effects without a live worker, a violation of
    consistency, or a database that cannot be written. A warning is what may become one, such as retries, a tripped
    circuit, or no live worker while nothing is due.

    Exits 11 if there is a problem; warnings exit 0. With --fail-on warn, warnings exit 11 too.
    """
    if after_restore != (reason is not None) or after_restore != (done or backup_at is not None):
        raise click.UsageError(
            "give --after-restore with --reason and one of --backup-at and --done; each of these needs the others"
        )
    if done and backup_at is not None:
        raise click.UsageError(
            "--done and --backup-at exclude each other: --backup-at opens the gap, --done closes it"
        )
    if reason is not None:
        status.print(_after_restore(inbox, backup_at, audit.by(actor, reason)))
    found = _examine(inbox, deep, limit)
    if as_json:
        print_json(found)
    else:
        print_facts(table_console(), [(Text(one.level, COLOURS[one.level]), _words(one)) for one in found])
    problems = sum(finding.level == "problem" for finding in found)
    warnings = sum(finding.level == "warn" for finding in found)
    status.print(f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}.")
    if (problems and fail_on != "never") or (warnings and fail_on == "warn"):
        raise SystemExit(exits.PROBLEM)


def _after_restore(inbox: Inbox, backup_at: datetime | None, by: Audit) -> str:
    if backup_at is None:
        run_on(inbox, lambda context: restore.close_gap(context, by))
        return "The gap is closed: effects are performed as declared."
    _, number = run_on(inbox, lambda context: restore.after_restore(context, by, backup_at))
    return f"{number:,} effects that were planned or started became unknown; the gap is open."


def _examine(inbox: Inbox, deep: bool, limit: float) -> list[Finding]:
    try:
        return run_on(inbox, lambda context: examine(context, deep=deep, limit=limit), check=False)
    except ConfigError:
        raise
    except HookledgerError as error:
        return [Finding("problem", "database", str(error), "check that it runs and that its URL is right")]


def _words(finding: Finding) -> str:
    return f"{finding.about}: {finding.says}" + (f"\n→ {finding.do}" if finding.do else "")

"""`hookledger migrate`: create or update the schema."""

from __future__ import annotations

import click
from rich.markup import escape

from ..inbox import Inbox
from ..operate.doctor.proof import schema_warnings
from .common import inbox_options, print_json, prints_json, run, run_on, status


@click.command()
@click.option("--show-sql", is_flag=True, help="Print the SQL; run nothing.")
@inbox_options
@prints_json
def migrate(inbox: Inbox, show_sql: bool, as_json: bool) -> None:
    """Create or update the database schema

    Safe to run again, and concurrently.
    """
    if show_sql:
        steps = inbox.store().migrations()
        if as_json:
            print_json([{"name": name, "sql": sql} for name, sql in steps])
        else:
            click.echo("\n".join(f"-- {name}\n{sql}" for name, sql in steps))
        return
    applied = run(inbox.migrate())
    for finding in run_on(inbox, schema_warnings, check=False):
        status.print(f"[yellow]Warning:[/] {escape(f'{finding.says}: {finding.do}')}")
    if as_json:
        print_json({"applied": applied})
    elif applied:
        status.print(f"Applied {', '.join(applied)}.")
    else:
        status.print("The schema is up to date.")

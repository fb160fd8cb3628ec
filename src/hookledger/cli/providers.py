"""`hookledger providers`: what is known of each provider, and how a source of it is set up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from ..errors import ConfigError
from ..providers import generic, words
from ..providers.catalogue import contracts, find
from ..providers.contract import Contract
from .common import print_json, prints_json, status, table_console


@click.command()
@click.argument("name", required=False)
@click.option(
    "--new-test-key",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a new key to this file, to sign test deliveries of a provider that signs with a key of its own.",
)
@prints_json
def providers(name: str | None, new_test_key: Path | None, as_json: bool) -> None:
    """List the providers that are known, or everything about the one called NAME.

    What was only remembered, and not confirmed by anything, is marked as unconfirmed.
    """
    if name is None:
        if new_test_key is not None:
            raise click.UsageError("--new-test-key needs the NAME of a provider")
        _list(as_json)
        return
    contract = _contract(name)
    if new_test_key is not None:
        _write_test_key(contract, new_test_key)
    elif as_json:
        print_json(_as_json(contract))
    else:
        _print(contract)


def _contract(name: str) -> Contract:
    if name == generic.NAME:
        return generic.contract({"header": "X-Signature", "id": "body:id", "type": ["body:type"]})
    return contracts().get(name) or find(name)


def _list(as_json: bool) -> None:
    known = [contract for _, contract in sorted(contracts().items())]
    if as_json:
        print_json([_summary(contract) for contract in known])
        return
    rows = [
        (
            contract.name,
            escape(contract.title),
            words.kind(contract.scheme),
            words.SHORT[contract.scheme.coverage],
            words.id_signed(contract),
            words.retry_window(contract),
            words.weakest(contract),
        )
        for contract in known
    ]
    columns = ("name", "provider", "proved by", "covers", "id", "retries", "confirmed")
    widths = [max(map(len, (column, *cells))) for column, cells in zip(columns, zip(*rows, strict=True), strict=True)]
    console, table = table_console(), Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    rest = console.width - sum(widths) + widths[1] - 2 * len(widths)
    widths[1] = max(8, min(widths[1], rest))  # the titles are cut where the screen is narrow
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, no_wrap=True, width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    status.print(
        f"{len(known)} providers; `hookledger providers NAME` tells all of one, and `hookledger providers hmac` how "
        "to describe another. Confirmed: the weaker of signature and event.",
        soft_wrap=True,
    )


def _summary(contract: Contract) -> dict[str, Any]:
    return {
        "name": contract.name,
        "title": contract.title,
        "proof": words.kind(contract.scheme),
        "covers": contract.scheme.coverage,
        "id_signed": contract.id_authenticated,
        "retry_hours": contract.retries.hours,
        "retries": contract.retries.automatic,
        "confirmed": {fact.name: fact.value for fact in words.confirmed(contract)},
    }


def _as_json(contract: Contract) -> dict[str, Any]:
    facts: dict[str, list[str]] = {}
    for fact in words.facts(contract):
        facts.setdefault(fact.name.replace(" ", "_"), []).append(fact.value)
    return {
        **_summary(contract),
        "facts": facts,
        "sources": contract.confirmed.sources,
        "example": words.example(contract),
    }


def _print(contract: Contract) -> None:
    console = table_console()
    console.print(f"[bold]{escape(contract.title)}[/] (provider = \"{contract.name}\")\n")
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for fact in words.facts(contract):
        grid.add_row(f"[bold]{fact.name}[/]", escape(fact.value))
    console.print(grid)
    graded = words.confirmed(contract)
    if graded:
        console.print("\n[bold]How this is known[/]")
        grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for fact in graded:
            grid.add_row(fact.name, f"[yellow]{fact.value}[/]" if fact.value == "unconfirmed" else fact.value)
        console.print(grid)
        if contract.confirmed.sources:
            console.print(f"read in: {escape('; '.join(contract.confirmed.sources))}", style="dim")
    console.print("\n[bold]In hookledger.toml[/]")
    click.echo(words.example(contract), nl=False)


def _write_test_key(contract: Contract, file: Path) -> None:
    if not hasattr(contract.scheme, "test_key"):
        raise ConfigError(f"{contract.title} proves itself with the secret: `hookledger send` needs no test key")
    from ..providers.schemes.testing_keys import new_test_key

    key = new_test_key(contract.scheme)  # type: ignore[arg-type]
    try:
        file.touch(mode=0o600, exist_ok=False)
        file.write_bytes(key)
    except FileExistsError:
        raise ConfigError(f"{file} exists already, and is not overwritten") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    status.print(f"Wrote {file}. For the source that takes what it signs, never in production:", markup=False)
    click.echo(f'[sources.{contract.name}.options]\ntest_key = "file:{file}"')

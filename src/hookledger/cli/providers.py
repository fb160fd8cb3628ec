"""`hookledger providers`: the catalogue, and how to set up a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from ..errors import ConfigError
from ..providers import generic, words
from ..providers.catalogue import contracts, find, known
from ..providers.contract import Contract
from .common import print_json, prints_json, status, table_console
from .table import Listing, print_facts, prose, say


@click.command()
@click.argument("name", required=False)
@click.option(
    "--new-test-key",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a new key for signing test deliveries to this file.",
)
@prints_json
def providers(name: str | None, new_test_key: Path | None, as_json: bool) -> None:
    """List providers or describe one

    Facts that no source confirms are marked as unconfirmed.
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
    return known(name) or find(name)


def _list(as_json: bool) -> None:
    listed = [contract for _, contract in sorted(contracts().items())]
    if as_json:
        print_json([_summary(contract) for contract in listed])
        return
    listing = Listing("name", "proved by", "covers", "id", "retries", "confirmed", prose("provider"), heads=1)
    for contract in listed:
        listing.add(
            contract.name,
            words.kind(contract.scheme),
            contract.scheme.coverage,
            words.id_signed(contract),
            words.retry_window(contract),
            words.weakest(contract),
            contract.title,
        )
    listing.print()
    say(
        f"{len(listed)} providers; `hookledger providers NAME` describes one, and `hookledger providers hmac` shows "
        "how to describe another. Confirmed: the weaker of signature and event."
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
    say(f'{contract.title} (provider = "{contract.name}")\n', console)
    print_facts(console, [(fact.name, fact.value) for fact in words.facts(contract)])
    graded = words.confirmed(contract)
    if graded:
        console.print("\n[bold]Sources of these facts[/]")
        print_facts(console, [(fact.name, _grade(fact.value)) for fact in graded])
        if contract.confirmed.sources:
            say(f"read in: {'; '.join(contract.confirmed.sources)}", console)
    console.print("\n[bold]In hookledger.toml[/]")
    click.echo(words.example(contract), nl=False)


def _grade(value: str) -> str | Text:
    return Text(value, "yellow") if value == "unconfirmed" else value


def _write_test_key(contract: Contract, file: Path) -> None:
    if not hasattr(contract.scheme, "test_key"):
        raise ConfigError(f"{contract.title} needs no test key: `hookledger send` signs with the source's secret")
    from ..providers.schemes.testing_keys import new_test_key

    key = new_test_key(contract.scheme)  # type: ignore[arg-type]
    try:
        file.touch(mode=0o600, exist_ok=False)
        file.write_bytes(key)
    except FileExistsError:
        raise ConfigError(f"{file} already exists: name another file, or delete it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    status.print(f"Wrote {file}. Add to the source's settings; never in production:", markup=False)
    click.echo(f'[sources.{contract.name}.options]\ntest_key = "file:{file}"')

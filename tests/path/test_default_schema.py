"""A role that is called like our schema makes it the place of every table without a schema: `$user`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hookledger.cli import exits, main
from tests.services.postgres import Databases

ROLE = "hooks-of-tests"


@pytest.fixture
def url(postgres: Databases) -> Iterator[str]:
    """A database's URL, for a role that is made for it."""
    parts = urlsplit(postgres.create_database("hookledger_test_default_schema"))
    postgres.execute(f"CREATE ROLE \"{ROLE}\" LOGIN SUPERUSER PASSWORD 'made-up'")
    yield parts._replace(netloc=f"{ROLE}:made-up@{parts.hostname}:{parts.port}").geturl()
    postgres.drop_database(parts.path[1:])
    postgres.execute(f'DROP ROLE "{ROLE}"')


@pytest.mark.parametrize(("schema", "warned"), [(ROLE, True), ("hookledger", False)])
def test_migrate_and_doctor_warn(
    url: str,
    schema: str,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hookledger.toml").write_text(f'database = "{url}"\nschema = "{schema}"\n')

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["hookledger", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (None, exits.OK)
        told = capfd.readouterr()
        return " ".join((told.out + told.err).split())

    says = f"tables without a schema are created in {schema}, which is Hookledger's own"
    assert (says in run("migrate")) is warned
    assert (says in run("migrate")) is warned  # also when there is nothing to do
    assert (says in run("doctor")) is warned

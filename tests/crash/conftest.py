"""Installations that end with their test, and whose logs are shown when it fails."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.processes import Installation
from tests.soak import amount

Install = Callable[..., Installation]
INSTALLED = pytest.StashKey[list[Installation]]()


@pytest.fixture
def install(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Install]:
    """Makes an installation on a database URL; settings of `[work]` as keywords."""
    installed: list[Installation] = []
    request.node.stash[INSTALLED] = installed

    def make(url: str, **work: Any) -> Installation:
        installation = Installation(tmp_path, url, **work)
        installed.append(installation)
        installation.prepare()
        return installation

    yield make
    for installation in installed:
        installation.end()


@pytest.fixture
def installation(install: Install, database_url: str) -> Installation:
    """One on each store in turn."""
    return install(database_url)


@pytest.fixture
def rounds() -> int:
    """How many times a process is killed."""
    return int(os.environ.get("HOOKLEDGER_SOAK_ROUNDS") or amount(1, 5, 50))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for installation in item.stash.get(INSTALLED, []):
            for process in installation.processes:
                text = process.log[-6000:]
                report.sections.append((f"{process.log_file.name} (process {process.pid})", text))
    return report

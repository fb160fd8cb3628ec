"""What the tests of deploy/ need besides the repository."""

from __future__ import annotations

import pytest

from tests.services.brought import brought
from tests.services.prometheus import program


@pytest.fixture(scope="session")
def promtool() -> str:
    return brought(lambda: program("promtool"))

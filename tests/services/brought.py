"""Programs that cannot be brought everywhere: their tests say so, and fail where everything must run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests import soak
from tests.services.postgres import ServiceError

T = TypeVar("T")


def brought(bring: Callable[[], T]) -> T:
    """What `bring` returns. Without it the test is skipped and says why; under CI=true it fails."""
    try:
        return bring()
    except ServiceError as failure:
        if os.environ.get("CI") == "true" or soak.ANY:
            pytest.fail(f"not shown: {failure}", pytrace=False)
        warnings.warn(f"not shown: {failure}", stacklevel=1)
        pytest.skip(str(failure))

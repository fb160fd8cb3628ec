"""How an SDK is asked, and what its answer is worth.

The clock is the process's own while a verdict is made, so one process makes one verdict at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import time_machine
from msgspec import Struct

from tests.oracles.delivery import Delivery


class OracleMissing(Exception):
    """An SDK is not installed; never a verdict."""


class Verdict(Struct, frozen=True):
    accepted: bool
    raised: str | None = None
    """The last exception that the SDK does not document, by class name: a refusal, but not a deliberate one.
    `NotOffered`: the SDK has no way to take such a body and was not asked."""


class Oracle(Struct, frozen=True, kw_only=True):
    package: str
    """Distribution and the oldest version that was tried."""
    verify: Callable[[Delivery, str], object]
    """One secret against one delivery: refuses by a false result or by raising."""
    documented: tuple[str, ...] = ()
    """Class names of the exceptions that the SDK documents as a refusal."""
    past: int | None = None
    """Seconds after which a delivery is refused as old; None: the SDK does not look."""
    future: int | None = None
    """Seconds ahead of the clock from which a delivery is refused; None: the SDK does not look."""
    wants: str = ""
    """What the body must be for the SDK to accept it, signature apart."""
    covers_body: bool = True
    notes: tuple[str, ...] = ()

    def accepts(self, request: Delivery, secrets: Sequence[str], now: float) -> bool:
        """Whether the SDK accepts the delivery at `now` with any one of the secrets."""
        return self.judge(request, secrets, now).accepted

    def judge(self, request: Delivery, secrets: Sequence[str], now: float) -> Verdict:
        raised: str | None = None
        with time_machine.travel(now, tick=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for secret in secrets:
                try:
                    if self.verify(request, secret):
                        return Verdict(True)
                except OracleMissing:
                    raise
                except Exception as error:
                    if type(error).__name__ not in self.documented:
                        raised = type(error).__name__
        return Verdict(False, raised)


@cache
def sdk(module: str, package: str) -> Any:
    """SDKs are loaded by name, so that a missing one fails by its distribution's name, and only where it is asked."""
    try:
        return import_module(module)
    except ImportError as error:
        raise OracleMissing(f"the oracle needs {package}: install the dependency group `oracles`") from error

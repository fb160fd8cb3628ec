"""Errors of the guard. It also raises ClaimLost, UnknownOutcome, BadResult, WrongState and ConfigError."""

from __future__ import annotations

from ...errors import HookledgerError


class GuardError(HookledgerError):
    """The guard has no answer for this call."""


class InFlight(GuardError):
    """Another caller is running the work of this key: try again after `after` seconds."""

    def __init__(self, message: str | None = None, *, after: float = 1.0) -> None:
        super().__init__(message)
        self.after = after


class KeyConflict(GuardError):
    """This key was used before with another request: a new request needs a new key."""


class GuardUnavailable(GuardError):
    """Redis cannot guard the work now: try again later."""


class NotStored(GuardUnavailable):
    """The work ran and its answer could not be stored: a duplicate may run it again.

    `answer` is what the work returned.
    """

    def __init__(self, message: str | None = None, *, answer: object = None) -> None:
        super().__init__(message)
        self.answer = answer

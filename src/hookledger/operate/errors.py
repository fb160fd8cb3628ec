"""Errors of finding something by an operator's reference."""

from __future__ import annotations

from ..errors import HookledgerError


class NotFound(HookledgerError):
    """Nothing has that id or key."""


class Ambiguous(HookledgerError):
    """Several begin like this."""

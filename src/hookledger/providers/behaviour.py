"""What a provider expects as a response, and what it does without one: parts of a contract."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Answer(Struct, frozen=True):
    """The response that the provider accepts as success."""

    status: int = 202
    body: bytes | None = None
    """None: a short JSON about what was recorded, visible in the provider's log."""
    content_type: str | None = None


class LateForm(Struct, frozen=True, kw_only=True):
    """The provider's own form of "working on it", for handlers that answer."""

    types: tuple[str, ...]
    """Types and patterns that have it."""
    answer: Answer
    deferrable: bool = True
    """False: the request cannot be answered later, so this is its last answer, and no other form fits."""


class Retries(Struct, frozen=True, kw_only=True):
    """What the provider does after a failed delivery."""

    automatic: bool | None = None
    """None: unknown."""
    hours: float | None = None
    """From the first delivery to the last automatic retry; None: unknown."""
    schedule: str = ""
    disables: str = ""
    """What it does with an endpoint that keeps failing, and when: a clause that begins with the verb."""
    signs_each_attempt: Literal["yes", "no", "unknown"] = "unknown"
    """Whether it signs each attempt again, with the time of that attempt; only `yes` allows a narrow window for the
    signed time. Relevant only if a time is signed."""
    why: str = ""
    """How that is known, or what is unknown."""
    advice: str = ""
    """What to set at the provider so that an outage loses no events, as `what happens: what to do`; logged at
    start-up."""

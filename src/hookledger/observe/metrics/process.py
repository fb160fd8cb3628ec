"""The metrics of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .samples import Samples


APP = "app"
"""The kind of a process of the user's own."""


class ProcessMetrics:
    """`kind`: one of PROCESSES. Read in any thread."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[Callable[[Samples], None]] = []
        """Each adds what it counted."""

    def text(self) -> str:
        """Return them as Prometheus reads them."""
        from .samples import Samples, in_text

        samples = Samples(self.kind)
        samples.add("up", 1)
        for part in self.parts:
            part(samples)
        return in_text(samples)


def silent(kind: str) -> str:
    """Return the metrics of a process that does not answer."""
    from .samples import Samples, in_text

    samples = Samples(kind)
    samples.add("up", 0)
    return in_text(samples)

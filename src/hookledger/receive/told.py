"""What logs and traces say of a request: one line where it is answered, and nothing at all where it is not wanted."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from ..errors import Rejected, UnknownSource
from ..model import Headers, Item, Recorded
from ..observe import lines, spans
from ..observe.correlation import origin_of
from ..observe.logs import Limit
from ..states import DeliveryOutcome
from .endpoint import Endpoint

_ACCEPTED, _DUPLICATE = DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE
"""Their lines are DEBUG. Looking a member up on the class costs a call each time."""
_LINES = {
    DeliveryOutcome.ACCEPTED: lines.ACCEPTED,
    DeliveryOutcome.RECONCILED: lines.ACCEPTED,
    DeliveryOutcome.DUPLICATE: lines.DUPLICATE,
    DeliveryOutcome.CONFLICT: lines.QUARANTINED,
    DeliveryOutcome.SAME_BODY: lines.QUARANTINED,
    DeliveryOutcome.INVALID: lines.INVALID,
}


class Told:
    """Logs and traces answered requests."""

    def __init__(self) -> None:
        self._each = False
        """Whether each delivery is logged or traced."""
        self._logs = False
        self._tracer: Any | None = None
        self._began = 0
        self._authentic: dict[str, Limit] = {}
        self._strangers: dict[str, Limit] = {}

    def begin(self) -> None:
        """Ask once, for deliveries that arrive together, what is wanted of each."""
        self._logs, self._tracer = lines.wanted(), spans.tracer()
        self._each = self._logs or self._tracer is not None
        if self._tracer is not None:
            self._began = time.time_ns()

    def wants(self, result: Sequence[Recorded]) -> bool:
        """Whether to call `recorded`. Called for each delivery."""
        if self._each:
            return True
        for kept in result:  # noqa: SIM110 - a generator costs more
            if kept.outcome is not _ACCEPTED and kept.outcome is not _DUPLICATE:
                return True
        return False

    def recorded(
        self,
        endpoint: Endpoint,
        headers: Headers,
        items: Sequence[Item],
        result: Sequence[Recorded],
        status: int,
        *,
        received: float | None = None,
        stored: bool = False,
    ) -> None:
        """The delivery was answered, and `result` is committed. `received`: when it came, by `perf_counter`, where
        others may have come since. `stored`: the answer is that of an earlier one."""
        origin, pairs = origin_of(headers), list(zip(items, result, strict=False))
        if self._tracer is not None:
            began = self._began
            if received is not None:
                began = time.time_ns() - int((time.perf_counter() - received) * 1e9)
            spans.received(self._tracer, endpoint.name, origin, pairs, began, status)
        for item, kept in pairs:
            left_out = None
            if kept.outcome is not _ACCEPTED and kept.outcome is not _DUPLICATE:
                left_out = self._authentic.setdefault(endpoint.name, Limit()).left_out()
                if left_out is None:
                    continue
            elif not self._logs:
                continue
            lines.tell(
                _LINES[kept.outcome],
                source=endpoint.name,
                event_id=kept.event_id,
                event_key=item.key,
                event_type=item.type,
                object_id=item.object_id,
                correlation_id=origin.given or kept.event_id,
                trace_id=origin.trace.trace_id if origin.trace else None,
                status=status,
                outcome=kept.outcome.value,
                state=kept.state.value if kept.state else None,
                left_out=left_out or None,
            )
            if stored:
                lines.tell(
                    lines.ANSWERED,
                    source=endpoint.name,
                    event_id=kept.event_id,
                    event_key=item.key,
                    event_type=item.type,
                    status=status,
                )

    def rejected(self, error: Rejected, endpoint: Endpoint | None, status: int) -> None:
        """The request was answered with 4xx. Strangers may send any number of them."""
        name = endpoint.name if endpoint else ""
        level = logging.WARNING if endpoint else logging.INFO
        if not lines.wanted(level):
            return
        left_out = self._strangers.setdefault(name, Limit()).left_out()
        if left_out is not None:
            path = str(error) if isinstance(error, UnknownSource) else None
            lines.tell(
                lines.REJECTED,
                level=level,
                source=name or None,
                reason=error.reason,
                status=status,
                path=path,
                left_out=left_out or None,
            )

"""Deliveries whose handlers answer: the deadline is kept here, whatever the handlers do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from ..answer import AnswerRule
from ..errors import Unavailable
from ..model import Arrival, Recorded
from . import respond
from .duplicates import DuplicateRules
from .endpoint import Endpoint
from .told import Told

if TYPE_CHECKING:
    from .app import Delivery

log: logging.Logger = logging.getLogger(__name__)

BUSY_AFTER = 1
"""Seconds after which a sender may try again that got 409 or 429."""


class Reply(Struct, frozen=True, array_like=True):
    """What a delivery of a recorded event is answered."""

    kind: Literal["run", "stored", "refused", "busy", "failed", "known", "retry", "later"]
    """`run`: the handler's answer; `stored`: the same again; `refused`: the 4xx that the handler named; `busy`:
    another delivery is handled; `failed`: no attempt follows without an operator; `known`: nothing to run, and no
    answer is kept; `retry`: an attempt failed, and the next delivery repeats it; `later`: a worker will run it, or
    another process does."""
    status: int = 0
    headers: bytes = b""
    """In wire form."""
    body: bytes = b""
    retry_after: int = 0
    lookup: bool | None = None
    """Whether a duplicate found an answer; None: it was none."""


Done = Callable[[Reply | Exception], None]


class Answerer(Protocol):
    """Records deliveries and runs their handlers."""

    def ask(self, arrival: Arrival, left: float, told: Callable[[Recorded], None], done: Done) -> None:
        """Record the one event of an arrival and answer it. `left`: seconds until the answer comes too late. `told`
        is called once its delivery is on disk, before a handler runs; `done` at the end, unless that comes too late.

        Raises Unavailable when the queue is full.
        """


class Answering:
    """Answers what an `Answerer` has recorded, at the latest when the deadline is over."""

    def __init__(
        self,
        answerer: Answerer,
        told: Told,
        duplicates: DuplicateRules | None,
        error_response: Callable[[Exception, Endpoint], respond.Response],
    ) -> None:
        self._answerer = answerer
        self._told = told
        self._duplicates = duplicates
        self._error_response = error_response
        self._loop = asyncio.get_running_loop()

    def take(self, delivery: Delivery, arrival: Arrival, rule: AnswerRule) -> None:
        """Take a delivery over; it is answered once."""
        left = max(0.0, rule.deadline - (perf_counter() - delivery.received))
        pending = _Pending(self, delivery, rule)
        self._answerer.ask(arrival, left, pending.told, pending.done)
        pending.timer = self._loop.call_later(left, pending.too_late)

    def recorded(self, delivery: Delivery, recorded: Recorded, *, late: bool) -> None:
        """Count a delivery that is on disk, and apply the source's rules. `late`: its request has got 503."""
        counts = delivery.endpoint.counts
        counts.outcomes[recorded.outcome] += 1
        if late:
            self._tell(delivery, recorded, 503)
        else:
            counts.ack.observe(perf_counter() - delivery.received)
        if self._duplicates is not None:
            self._duplicates.look(delivery.endpoint, [recorded], delivery.items)

    def unrecorded(self, delivery: Delivery, error: Exception) -> None:
        delivery.answer(self._error_response(error, delivery.endpoint))

    def answer(self, delivery: Delivery, recorded: Recorded, rule: AnswerRule, reply: Reply | None) -> None:
        """Send what a reply comes to. None: the deadline is over, or the reply is lost."""
        endpoint = delivery.endpoint
        response, result = response_of(endpoint, recorded, rule, reply)
        endpoint.counts.answers[result] += 1
        if reply is not None and reply.lookup is not None:
            endpoint.counts.lookups["hit" if reply.lookup else "miss"] += 1
        self._tell(delivery, recorded, response.status, stored=result == "stored")
        delivery.answer(response)

    def _tell(self, delivery: Delivery, recorded: Recorded, status: int, *, stored: bool = False) -> None:
        kept, headers = [recorded], delivery.request.headers
        if self._told.wants(kept):
            given = (delivery.endpoint, headers, delivery.items, kept, status)
            self._told.recorded(*given, received=delivery.received, stored=stored)


class _Pending:
    """One delivery, until it is answered."""

    __slots__ = ("_answering", "_delivery", "_over", "_recorded", "_rule", "timer")

    def __init__(self, answering: Answering, delivery: Delivery, rule: AnswerRule) -> None:
        self._answering = answering
        self._delivery = delivery
        self._rule = rule
        self._recorded: Recorded | None = None
        self._over = False
        self.timer: asyncio.TimerHandle | None = None

    def told(self, recorded: Recorded) -> None:
        if self._recorded is None:
            self._recorded = recorded  # past the deadline, too: it counts, although the sender was told otherwise
            self._answering.recorded(self._delivery, recorded, late=self._over)

    def done(self, reply: Reply | Exception) -> None:
        if isinstance(reply, Exception):
            self._finish(None, reply)
        else:
            self._finish(reply, Unavailable("answered without being recorded").because("internal"))

    def too_late(self) -> None:
        self._finish(None, Unavailable("not recorded within the deadline of its answer").because("answers"))

    def _finish(self, reply: Reply | None, error: Exception) -> None:
        """`error`: why it is not known to be recorded, if that is so."""
        if self._over:
            return
        self._over = True
        if self.timer is not None:
            self.timer.cancel()
        try:
            if self._recorded is None:
                self._answering.unrecorded(self._delivery, error)
            else:
                self._answering.answer(self._delivery, self._recorded, self._rule, reply)
        except Exception as failure:
            self._answering.unrecorded(self._delivery, failure)


def response_of(
    endpoint: Endpoint, recorded: Recorded, rule: AnswerRule, reply: Reply | None
) -> tuple[respond.Response, str]:
    """The response to a recorded delivery, and what it counts as."""
    if reply is not None and reply.kind in ("run", "stored", "refused"):
        return respond.answered(reply.status, reply.headers, reply.body), reply.kind
    if reply is not None and reply.kind == "busy":
        return respond.busy(reply.status, BUSY_AFTER), "refused"
    if reply is not None and reply.kind == "failed" and rule.failed is not None:
        failed = rule.failed
        return respond.Response(failed.status, failed.body, failed.headers, authentic=True), "rule"
    if reply is not None and reply.kind in ("failed", "known"):
        return respond.recorded(endpoint.contract, [recorded]), "rule"
    # An attempt that failed is repeated by the next delivery. Where none comes, a worker repeats it, and the sender
    # is told what it is told past the deadline.
    if rule.late is not None and (reply is None or reply.kind == "later" or not rule.redelivered):
        late = rule.late
        return respond.Response(late.status, late.body, late.headers, authentic=True), "late"
    return respond.busy(503, max(respond.RETRY_AFTER, 0 if reply is None else reply.retry_after)), "refused"

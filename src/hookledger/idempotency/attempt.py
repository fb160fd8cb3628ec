"""One attempt of a guarded request: the route runs in its event's transaction and commits with its answer."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any
from uuid import UUID

from ..effects.attempt import AttemptEffects
from ..effects.model import is_async
from ..effects.pending import Pending
from ..effects.version import AnyVersion
from ..errors import ClaimLost, ConfigError, HandlerCommitted, Permanent, Review, SchemaBreak, Signal, Skip, Wait
from ..model import Claimed, Outcome
from ..observe.attempt import Watched
from ..observe.second_connection import in_handler
from ..retry import clean, message_of
from ..states import AttemptOutcome
from ..store.ops.reviews import Approval
from ..store.protocol import Transaction
from ..work.check import Checked
from ..work.event import Event, Renew, SyncEvent
from ..work.handle import Handling
from ..work.route import Handler
from ..work.run import Runner
from .capture import Captured, Exchange, NotStorable
from .routes import Route

EVENT = "hookledger.event"
"""Where a route finds its event, in the ASGI scope."""
REASON = 300


class RouteEvent(Event[Any]):
    """The event of a guarded request, for async routes. It notes whether the route has used its transaction."""

    in_transaction: bool = False
    endpoint: object = None
    """The route's function, where the application's router tells it."""

    @property
    def tx(self) -> Any:
        self.in_transaction = True
        # A plain function cannot await: it would write nothing, and its answer would be stored.
        if inspect.isfunction(self.endpoint) and not is_async(self.endpoint) and not _on_event_loop():
            raise ConfigError(
                f"{self.type} is a plain function, whose event needs no await: declare the guard with plain=True, or "
                "make the route async"
            )
        return super().tx

    def once(self, name: str, key: str | int | UUID) -> Pending[bool]:
        self.in_transaction = True
        return super().once(name, key)

    def newer(self, name: str, key: str | int | UUID, version: AnyVersion | None) -> Pending[bool]:
        self.in_transaction = True
        return super().newer(name, key, version)


def _on_event_loop() -> bool:
    return asyncio._get_running_loop() is not None


class SyncRouteEvent(SyncEvent[Any]):
    """The same for plain functions."""

    in_transaction: bool = False

    @property
    def tx(self) -> Any:
        self.in_transaction = True
        return super().tx

    def once(self, name: str, key: str | int | UUID) -> bool:
        self.in_transaction = True
        return super().once(name, key)

    def newer(self, name: str, key: str | int | UUID, version: AnyVersion | None) -> bool:
        self.in_transaction = True
        return super().newer(name, key, version)


class Attempt:
    """One execution of a route, and how it ended."""

    def __init__(self, route: Route, exchange: Exchange, *, keep: float, store_4xx: bool) -> None:
        """`keep`: seconds for which an answer is stored, and for which a request that was rolled back may come
        again."""
        self.route: Route = route
        self.exchange: Exchange = exchange
        self.keep: float = keep
        self.store_4xx: bool = store_4xx
        self.event: RouteEvent | SyncRouteEvent | None = None
        self.answer: Captured | None = None
        """What the application answered."""
        self.raised: Exception | None = None
        """What the application raised."""
        self.error: Exception | None = None
        """Why there is no outcome of its answer."""
        self.outcome: AttemptOutcome | None = None
        """What is recorded; None: unknown, or nothing."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once its claim is lost."""

    def storable(self, answer: Captured) -> bool:
        """Whether this answer is final: its key gets it from now on."""
        if self.store_4xx and 400 <= answer.status < 500:
            return answer.status not in (401, 408, 409, 425, 429)
        return 200 <= answer.status < 300

    def decided(self, error: Exception) -> Exception:
        """What an attempt comes to that ended so, after its transaction was rolled back.

        No attempt that ends here counts as one: an attempt that does count ended without a decision.
        """
        words = clean(f"{type(error).__name__}: {message_of(error)}", REASON)
        if isinstance(error, _Refused):
            return Wait(f"{error}: not stored, so the next request with its key runs it again", after=self.keep)
        if isinstance(error, SchemaBreak):  # the route did not run: once the schema is corrected, the request passes
            return Wait(str(error), after=self.keep)
        if isinstance(error, ClaimLost | HandlerCommitted | Review | Permanent | Skip):
            return error
        if isinstance(error, Signal) and not isinstance(error, NotStorable):
            return Wait(f"rolled back: {words}", after=self.keep)
        used = self.event is not None and self.event.in_transaction
        if self.event is None or used or self.route.repeat != "never":
            return Wait(f"rolled back, so the next request with its key runs it again: {words}", after=self.keep)
        return Review(
            f"{self.route.name} ended without an answer that is stored, and wrote nothing in the event's "
            f"transaction: what it did elsewhere is unknown: {words}"
        )


class _Refused(Exception):
    """The route refused the request: it says itself that nothing was done."""


class _Failed(Exception):
    """The route answered 5xx."""


class Attempts:
    """The attempts that run in this process, by event."""

    def __init__(self) -> None:
        self._running: dict[UUID, Attempt] = {}

    def begin(self, claimed: Claimed, attempt: Attempt) -> None:
        self._running[claimed.id] = attempt

    def end(self, claimed: Claimed) -> None:
        self._running.pop(claimed.id, None)

    def of(self, claimed: Claimed) -> Attempt:
        return self._running[claimed.id]

    def get(self, event_id: UUID) -> Attempt | None:
        return self._running.get(event_id)

    def lost(self, event_id: UUID, error: Exception) -> None:
        """Abandon the run of one event."""
        if attempt := self._running.get(event_id):
            attempt.exchange.abandon(error)
            if not attempt.lost.done():
                attempt.lost.set_result(None)

    def all(self) -> list[UUID]:
        return list(self._running)


class RouteRunner(Runner):
    """Runs the application instead of a handler."""

    attempts: Attempts

    async def run(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Transaction,
        effects: AttemptEffects,
        renew: Renew,
        approved: Approval | None,
        checked: Checked | None = None,
    ) -> Outcome:
        del checked
        attempt = self.attempts.of(claimed)
        with in_handler(handler.name):
            attempt.event = event = self._event(handler, claimed, tx, effects, renew, approved)
            attempt.exchange.scope[EVENT] = event
            try:
                answer = await attempt.exchange.run()
            except BaseException as error:
                if isinstance(error, Exception):
                    attempt.raised = error
                await asyncio.shield(asyncio.ensure_future(attempt.exchange.stop()))
                raise
        attempt.answer = answer
        await effects.finish()
        if not attempt.storable(answer):
            words = f"the route answered {answer.status}"
            raise _Refused(words) if answer.status < 500 else _Failed(words)
        words = f"answered {answer.status}, {len(answer.body)} bytes"
        return Outcome(claimed.id, claimed.claim, "complete", result=words, answer=answer.stored(attempt.keep))

    def _event(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Transaction,
        effects: AttemptEffects,
        renew: Renew,
        approved: Approval | None,
    ) -> RouteEvent | SyncRouteEvent:
        given = self.statements(handler, tx, effects)
        if not handler.plain:
            return RouteEvent(claimed, self._read, given, effects, renew, self._current, approved)
        loop = asyncio.get_running_loop()
        return SyncRouteEvent(claimed, self._read, given, effects, renew, self._current, loop, approved)


class RouteHandling(Handling):
    """Decides how an attempt of a route ended that did not commit, and tells the request."""

    attempts: Attempts

    async def _failed(
        self, handler: Handler, claimed: Claimed, error: Exception, seen: Watched, began: float
    ) -> None:
        attempt = self.attempts.of(claimed)
        if not isinstance(error, _Refused | _Failed):
            attempt.error = error
        decision = attempt.decided(error)
        if decision is not error:
            decision.__cause__ = error  # its traceback is what operators look for
        await super()._failed(handler, claimed, decision, seen, began)

    def count(self, handler: Handler, claimed: Claimed, outcome: AttemptOutcome | None, began: float | None) -> None:
        self.attempts.of(claimed).outcome = outcome
        super().count(handler, claimed, outcome, began)

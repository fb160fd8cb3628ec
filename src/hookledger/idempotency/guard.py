"""The guard of an application's own routes, as ASGI middleware."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..errors import ConfigError, HookledgerError, NotGuarded, Unavailable
from ..model import Request
from ..observe import lines
from ..observe.logs import Limit, RateLimitedLogger
from ..observe.metrics.counts import IntakeCounts, WorkCounts
from ..observe.metrics.rollup import Totals
from ..receive.endpoint import Endpoint
from ..receive.metrics import IntakeMetrics
from ..receive.request import Message, Receive, Scope, Send
from ..store.opening import PAUSE, PerLoop
from ..work.metrics import WorkMetrics
from ..work.route import Handler
from . import problems
from .after import handler_of
from .attempt import EVENT, RouteEvent
from .capture import Captured, Exchange, send_whole
from .events import Guarded, arrival
from .key import BadKey, read_key
from .ledger import GuardLedger, Reraise
from .opened import open_guard
from .routes import Route, find_route
from .settings import GuardSettings

if TYPE_CHECKING:
    from ..inbox import Inbox

log: logging.Logger = logging.getLogger(__name__)

Caller = Callable[[Scope], object]
"""Returns who sent a request, from its ASGI scope: text, a number or a UUID, or an awaitable of it; None if it is not
authenticated."""


class Disconnected(Exception):
    """The client left before its body was there."""


class Held:
    """What one request holds."""

    bytes = 0


class Idempotent:
    """What `Inbox.idempotent` declares: call it with an ASGI application to get that application guarded.

    It fits `app.add_middleware(…)` of FastAPI and Starlette, too. All applications that it guards share the ledger.
    """

    __name__ = "Idempotent"

    def __init__(
        self,
        inbox: Inbox,
        endpoint: Endpoint,
        caller: Caller,
        routes: tuple[Route, ...],
        settings: GuardSettings,
    ) -> None:
        self.inbox = inbox
        self._endpoint = endpoint
        self.routes = routes
        self.settings = settings
        self.handlers: dict[Route, Handler] = {
            route: handler_of(route, timeout=settings.timeout, plain=settings.plain) for route in routes
        }
        self._caller = caller
        self._opened: PerLoop[GuardLedger] = PerLoop()
        self._not_before = float("-inf")
        """When the database may be asked again after it did not answer."""
        self._warnings = RateLimitedLogger(log)
        self._rejections = Limit()
        self._tasks: set[asyncio.Task[Captured]] = set()
        self.counts: WorkCounts = WorkCounts()
        """What its routes come to, as handlers do."""
        self.intake_counts: IntakeCounts = IntakeCounts()
        for handler in self.handlers.values():
            self.counts.expect(self.name, handler.label)
        self._held = 0
        """Bytes of all bodies that are not answered yet."""

    @property
    def name(self) -> str:
        """The source of its events."""
        return self._endpoint.name

    @property
    def endpoint(self) -> Endpoint:
        """Its source, as the inbox has it now."""
        source = self.inbox.sources.get(self.name)
        return self._endpoint if source is None else source.endpoint

    @property
    def metrics(self) -> IntakeMetrics:
        """What its requests came to."""
        return IntakeMetrics([self.endpoint], self.intake_counts, lambda: 0, guarded=True)

    def totals(self) -> Totals:
        """Return what charts show, since the start."""
        return {**self.metrics.totals(), **WorkMetrics([self.counts], self.inbox.effects).totals()}

    def __call__(self, app: Any) -> GuardedApp:
        return GuardedApp(self, app)

    async def start(self) -> GuardLedger:
        """Open the ledger on the running event loop, as the server's start-up and the first request do."""
        return await self._opened.open(self._open)

    async def _open(self, stack: contextlib.AsyncExitStack) -> GuardLedger:
        if time.monotonic() < self._not_before:
            raise Unavailable("the database did not answer a moment ago")
        try:
            return await open_guard(self, stack)
        except Unavailable:
            # Those who wait for their turn now need not wait for the same answer once more.
            self._not_before = time.monotonic() + PAUSE
            raise

    async def stop(self) -> None:
        """Let the routes that run end, then close the ledger on the running event loop."""
        await self._opened.close()

    # ── one request ──

    async def serve(self, app: Any, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application if it is not guarded."""
        if (known := scope.get(EVENT)) is not None and known.source == self.name:
            del scope[EVENT]  # of an earlier request; another guard's belongs to this one
        found = find_route(self.routes, scope)
        caller = None if found is None else await self._who(scope)
        if found is None or caller is None:
            await app(scope, receive, send)
            return
        try:
            key = read_key(tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"]))
        except BadKey as error:
            rejected = self._rejected("idempotency_key_malformed", problems.malformed(str(error)))
            await send_whole(rejected, send)
            return
        if key is None:
            if self.settings.required:
                await send_whole(self._rejected("idempotency_key_missing", problems.missing()), send)
            else:
                await app(scope, receive, send)
            return
        if known is not None and known.source != self.name:
            raise ConfigError(
                f"{found[0].name} is guarded twice, by {known.source!r} and by {self.name!r}: a request has one "
                "event and one stored answer; name the route in one of them, or let caller= of one return None"
            )
        held = Held()
        try:
            body = await self._body(scope, receive, held)
            if isinstance(body, Captured):
                await send_whole(body, send)
            else:
                route, path = found
                await self._answer(app, Guarded(route, caller, key, _request(scope, path, body)), scope, send)
        except Disconnected:
            return
        finally:
            self._held -= held.bytes

    async def _answer(self, app: Any, guarded: Guarded, scope: Scope, send: Send) -> None:
        try:
            ledger = self._opened.here() or await self.start()
        except HookledgerError as error:
            self._warnings.warning("guarded requests get 503: the ledger cannot be opened: %s", error)
            await send_whole(self._unavailable(error.cause if isinstance(error, Unavailable) else "internal"), send)
            return

        def begin() -> Exchange:
            return Exchange(app, scope, guarded.request.body, self.settings.max_answer)

        # In a separate task: some servers cancel a request whose client has left, and the route is to finish.
        task = asyncio.create_task(ledger.answer(guarded, arrival(self.endpoint, guarded), begin))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            response = await asyncio.shield(task)
        except Reraise as raised:
            raise raised.error from raised.error.__cause__
        await send_whole(response, send)

    def _ended(self, task: asyncio.Task[Captured]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the request raises it, if it is still there

    def _rejected(self, reason: str, response: Captured) -> Captured:
        self.intake_counts.rejections[self.name, reason] += 1
        left_out = self._rejections.left_out()
        if left_out is not None:
            status, left_out = response.status, left_out or None
            lines.tell(lines.REJECTED, source=self.name, reason=reason, status=status, left_out=left_out)
        return response

    def _unavailable(self, cause: str) -> Captured:
        self.endpoint.counts.unavailable += 1
        self.intake_counts.unavailable[cause] += 1
        return problems.unavailable()

    async def _who(self, scope: Scope) -> str | None:
        """Return who sent the request; None if it is not authenticated."""
        found: object = self._caller(scope)
        if isinstance(found, Awaitable):
            found = await found
        if found is None or found == "":
            return None
        if isinstance(found, bool) or not isinstance(found, str | int | UUID):
            raise TypeError(
                f"caller= of {self.name!r} returned {type(found).__name__}: return the caller's id as text, number "
                "or UUID, or None for a request without authentication"
            )
        return str(found)

    async def _body(self, scope: Scope, receive: Receive, held: Held) -> bytes | Captured:
        """Return the whole body, or the response to one that is refused."""
        limit, parts = self.settings.max_body, []
        for name, value in scope["headers"]:
            if bytes(name).lower() == b"content-length" and value.isdigit() and int(value[:20]) > limit:
                return self._rejected("body_too_large", problems.too_large(limit))
        try:
            async with asyncio.timeout(self.settings.upload):
                while True:
                    message: Message = await receive()
                    if message["type"] != "http.request":
                        raise Disconnected()
                    part = message.get("body", b"")
                    held.bytes += len(part)
                    self._held += len(part)
                    if held.bytes > limit:
                        return self._rejected("body_too_large", problems.too_large(limit))
                    if self._held > self.settings.body_bytes:
                        return self._unavailable("no_room")
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return self._rejected("body_too_slow", problems.too_slow())


class GuardedApp:
    """An ASGI application with some of its routes guarded."""

    def __init__(self, guard: Idempotent, app: Any) -> None:
        self._guard = guard
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard.serve(self._app, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, self._stopping(receive), self._starting(send))
        else:
            await self._app(scope, receive, send)

    def _starting(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                try:
                    await self._guard.start()
                except ConfigError:
                    raise
                except HookledgerError as error:  # an application with other routes, too: it can start
                    log.warning("guarded requests get 503 until the ledger can be opened: %s", error)
            await send(message)

        return sending

    def _stopping(self, receive: Receive) -> Receive:
        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._guard.stop()
            return message

        return receiving


def _request(scope: Scope, path: str, body: bytes) -> Request:
    client = scope.get("client")
    headers = tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"])
    query = scope.get("query_string", b"")
    return Request(scope["method"], path, query, headers, body, client[0] if client else None)


def current_event(request: Any) -> Any:
    """Return the event of a guarded request, with its transaction `tx`. `request`: a Starlette or FastAPI request, or
    an ASGI scope. Raises NotGuarded if the request is not guarded."""
    scope = getattr(request, "scope", request)
    event = scope.get(EVENT)
    if event is None:
        raise NotGuarded(
            f"{scope.get('method')} {scope.get('path')} has no event: it is not among the routes of "
            "inbox.idempotent(…), its caller is not authenticated, or the middleware is not installed"
        )
    if isinstance(event, RouteEvent):
        event.endpoint = scope.get("endpoint")
    return event

"""The receiver as an ASGI application: the intake and the health checks, opened with the store at server start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ..answer import AnswerRule
from ..errors import ConfigError, HookledgerError, Unavailable
from ..ids import process_name
from ..model import Kind, Request
from ..observe.logs import RateLimitedLogger
from ..observe.metrics.counts import IntakeCounts
from ..observe.metrics.rollup import RateWriter, Written
from ..observe.watchdog import Watchdog
from ..providers.schemes.base import Where
from ..store.opening import Opener, PerLoop
from ..store.protocol import Store
from . import respond
from .answering import Answerer
from .app import Delivery, Intake
from .duplicates import DuplicateRules
from .endpoint import Endpoint
from .health import ALIVE, HEALTH, PROBE, Readiness, may_see_details
from .kept_keys import KeptKeys
from .metrics import IntakeMetrics
from .record import Recorder
from .rejections import RejectionSampler, secrets_of
from .request import Limits, Receive, Scope, Send, local_paths
from .respond import Answer

if TYPE_CHECKING:
    from ..inbox import Inbox

log: logging.Logger = logging.getLogger(__name__)

OpenAnswerer = Callable[[contextlib.AsyncExitStack], Awaitable[Answerer]]
"""Opens an answerer, which is closed with the stack."""


class OpenIntake:
    """The intake on one event loop, with its store: what `hookledger receive` serves."""

    def __init__(self, intake: Intake, readiness: Readiness, limits: Limits, metrics: IntakeMetrics) -> None:
        self._intake = intake
        self.metrics = metrics
        self._readiness = readiness
        self.limits = limits
        """Raised, if needed, to fit the largest body."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Answer a request. `path`: that of a health check; empty for a delivery."""
        if path:
            await respond.send(await self._health(path, dict(scope["headers"]).get(PROBE)), send)
        else:
            await self._intake(scope, receive, send)

    def max_body(self, method: str, path: str) -> int:
        return 0 if path in HEALTH else self._intake.endpoint(method, path).max_body

    def take(self, requests: Sequence[tuple[Request, Answer, float]]) -> None:
        deliveries = []
        for request, answer, received in requests:
            if request.path in HEALTH:
                self._answer_health(request, answer)
            else:
                endpoint = self._intake.endpoint(request.method, request.path)
                deliveries.append(Delivery(endpoint, request, answer, received))
        self._intake.take(deliveries)

    def _answer_health(self, request: Request, answer: Answer) -> None:
        async def respond_to() -> None:
            try:
                response = await self._health(request.path, request.value(PROBE))
            except Exception as error:
                response = self.error_response(error)
            answer(response)

        task = asyncio.create_task(respond_to())
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    def error_response(self, error: Exception) -> respond.Response:
        return self._intake.error_response(error)

    async def ready(self) -> respond.Response:
        """Return whether deliveries can be recorded, and why not."""
        return respond.health(await self._readiness.answer("/readyz", why=True))

    async def _health(self, path: str, presented: bytes | None) -> respond.Response:
        return respond.health(await self._readiness.answer(path, why=may_see_details(presented)))


class Asgi:
    """Opens the store when the server starts, or at the first request if the server sends no lifespan events."""

    def __init__(self, inbox: Inbox, answers_here: OpenAnswerer) -> None:
        """`answers_here`: opens what runs the handlers that answer, in this process."""
        self._inbox = inbox
        self._answers_here = answers_here
        self._opener = Opener(inbox.store)
        self._opened: PerLoop[OpenIntake] = PerLoop()
        self._answer_process: OpenAnswerer | None = None
        self._rejections: RejectionSampler | None = None
        self.metrics: IntakeMetrics = IntakeMetrics((), IntakeCounts(), lambda: 0)
        """What the intake of this process counts, once it is open."""
        self._limited_log = RateLimitedLogger(log)
        self.limits: Limits = inbox.settings.intake.limits
        """Raised at start, if needed, to fit the largest body."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it runs on; None while it does not run."""
        return self._opened.loop

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many requests were rejected since the start, by reason."""
        return {} if self._rejections is None else self._rejections.reasons

    async def start(self, *, writer_process: bool = False, answerer: OpenAnswerer | None = None) -> OpenIntake:
        """Open the intake. `writer_process`: on SQLite, record deliveries in a separate process. `answerer`: opens
        what runs the handlers that answer, if any are declared; default: they run here."""
        self._answer_process = answerer
        return await self._opened.open(partial(self._open, writer_process))

    async def stop(self) -> None:
        """Answer every request that was accepted on this event loop, then close the store."""
        await self._opened.close()

    async def _open(self, writer_process: bool, stack: contextlib.AsyncExitStack) -> OpenIntake:
        inbox, settings = self._inbox, self._inbox.settings.intake
        inbox.read_secrets()
        inbox.read_schemas()
        sources = [source for source in inbox.sources.values() if source.delivered]
        store = await self._opener.open(stack, writer_process=writer_process)
        counts = IntakeCounts()
        recorder = Recorder(
            store,
            batch=settings.batch,
            queue=settings.queue,
            parallel=settings.parallel,
            queues=store.queues,
            counts=counts,
        )
        endpoints = [_with_answers(source.endpoint, inbox) for source in sources]
        metrics = self.metrics = IntakeMetrics(endpoints, counts, lambda: recorder.queued)
        if inbox.settings.monitor.rates:
            await stack.enter_async_context(Written(RateWriter(store.rates, process_name(), metrics.totals)))
        stack.push_async_callback(recorder.drain)
        secrets = secrets_of(source.endpoint for source in sources)
        rejections = RejectionSampler(store.rejections, settings.rejections, inbox.clock.time, secrets, counts)
        stack.push_async_callback(rejections.flush)
        readiness = Readiness(store.health, rejected=lambda: rejections.reasons)
        recorded = await self._record_sources(store)
        keys = KeptKeys(inbox.keyring, store.published)
        await keys.sync()
        stack.push_async_callback(keys.sync)
        stack.push_async_callback(inbox.keyring.close)
        duplicates = DuplicateRules(store, store.alerts)
        for task in (self._watch(store, readiness, recorded), rejections.run(), keys.run(), duplicates.run()):
            stack.callback(asyncio.create_task(task).cancel)
        watchdog = Watchdog("no delivery is answered")
        watchdog.start()
        stack.callback(watchdog.stop)
        largest = max((source.endpoint.max_body for source in sources), default=0)
        limits = settings.limits.fitting(largest)
        if (fitting := limits.body_bytes) > settings.limits.body_bytes:
            log.warning("intake.limits.body_bytes is too small for a max_body of %d: using %d", largest, fitting)
        answerer = None
        if any(endpoint.answers is not None for endpoint in endpoints):
            answerer = await (self._answer_process or self._answers_here)(stack)
        intake = Intake(
            {endpoint.path: endpoint for endpoint in endpoints},
            recorder,
            rejections,
            duplicates=duplicates,
            fetcher=inbox.keyring,
            limits=limits,
            clock=inbox.clock,
            skew=lambda: readiness.skew,
            answerer=answerer,
        )
        self._rejections, self.limits = rejections, limits
        return OpenIntake(intake, readiness, limits, metrics)

    async def _record_sources(self, store: Store) -> bool:
        """Record which sources are served; False if the database is down or not migrated yet."""
        try:
            await store.know_sources(list(self._inbox.sources))
        except HookledgerError:
            return False
        return True

    async def _watch(self, store: Store, readiness: Readiness, recorded: bool) -> None:
        """Keep the measured clock skew up to date, and record the sources as soon as possible."""
        while True:
            await readiness.ask()
            recorded = recorded or await self._record_sources(store)
            await asyncio.sleep(15 if recorded else 1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        path = next(filter(HEALTH.__contains__, local_paths(scope)), "")
        try:
            opened = self._opened.here() or await self.start()
        except (Unavailable, ConfigError) as error:
            self._limited_log.warning("deliveries get 503: the intake cannot start: %s", error)
            alive = path == "/healthz"  # the process is alive even if the database is down
            await respond.send(respond.Response(200, ALIVE) if alive else respond.unavailable(), send)
            return
        await opened.answer(scope, receive, send, path)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    log.exception("the intake cannot start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _with_answers(endpoint: Endpoint, inbox: Inbox) -> Endpoint:
    """Return the endpoint with the rules of its handlers that answer, if there are any."""
    if endpoint.settings.mode != "run" or not inbox.routes.answering(endpoint.name):
        return endpoint

    def rule_of(kind: Kind) -> AnswerRule | None:
        handler = inbox.routes.find(kind)
        return None if handler is None or handler.answers is None else handler.answers.of(kind.type)

    return msgspec.structs.replace(endpoint, answers=rule_of)


class KeyFetches:
    """Fetches published keys on the intake's loop while that runs: what many ask for together is fetched once."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def fetch(self, where: Where, *, provider: str, again: bool = False, who: str = "") -> None:
        home = self._inbox.asgi.loop
        fetching = self._inbox.keyring.fetch(where, provider=provider, again=again, who=who)
        if home is None or home is asyncio.get_running_loop():
            await fetching
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fetching, home))

    async def visit(self, url: str) -> None:
        await self._inbox.keyring.visit(url)

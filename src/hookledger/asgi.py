"""The front door: the intake and the health checks, opened with the store when a server starts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .errors import ConfigError, HookledgerError, Unavailable
from .model import Request
from .observe.logs import Seldom
from .observe.watchdog import Watchdog
from .operate.health import ALIVE, HEALTH, PROBE, Readiness, asks_why
from .receive import respond
from .receive.aftercare import Aftercare
from .receive.app import Delivery, Intake
from .receive.kept_keys import KeptKeys
from .receive.record import Recorder
from .receive.refusals import Refusals, secrets_of
from .receive.request import Limits, Receive, Scope, Send, local_paths
from .receive.respond import Answer
from .store.opening import Opener, PerLoop
from .store.protocol import Store

if TYPE_CHECKING:
    from .inbox import Inbox

log = logging.getLogger(__name__)


class OpenIntake:
    """The intake on one event loop, with the store that it records in: what `hookledger receive` serves."""

    def __init__(self, intake: Intake, readiness: Readiness, limits: Limits) -> None:
        self._intake = intake
        self._readiness = readiness
        self.limits = limits
        """With room for the largest body."""
        self._telling: set[asyncio.Task[None]] = set()

    async def answer(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """`path`: that of a health check; empty for a delivery."""
        if path:
            await respond.send(await self._health(path, dict(scope["headers"]).get(PROBE)), send)
        else:
            await self._intake(scope, receive, send)

    def max_body(self, method: str, path: str) -> int:
        return 0 if path in HEALTH else self._intake.endpoint(method, path).max_body

    def take(self, requests: Sequence[tuple[Request, Answer]]) -> None:
        deliveries = []
        for request, answer in requests:
            if request.path in HEALTH:
                self._tell_health(request, answer)
            else:
                deliveries.append(Delivery(self._intake.endpoint(request.method, request.path), request, answer))
        self._intake.take(deliveries)

    def _tell_health(self, request: Request, answer: Answer) -> None:
        async def tell() -> None:
            try:
                response = await self._health(request.path, request.value(PROBE))
            except Exception as error:
                response = self.refuse(error)
            answer(response)

        task = asyncio.create_task(tell())
        self._telling.add(task)  # the loop itself would let it be collected
        task.add_done_callback(self._telling.discard)

    def refuse(self, error: Exception) -> respond.Response:
        return self._intake.refuse(error)

    async def _health(self, path: str, presented: bytes | None) -> respond.Response:
        return respond.found(await self._readiness.answer(path, why=asks_why(presented)))


class Asgi:
    """Opens the store when the server starts, or at the first request on an event loop if nobody told us."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._opener = Opener(inbox.store)
        self._opened: PerLoop[OpenIntake] = PerLoop()
        self._refusals: Refusals | None = None
        self._seldom = Seldom(log)
        self.limits = inbox.settings.intake.limits
        """With room for the largest body, once it has started."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Where it runs, while it does."""
        return self._opened.loop

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many requests were refused since the start, by reason."""
        return {} if self._refusals is None else self._refusals.reasons

    async def start(self, *, apart: bool = False) -> OpenIntake:
        """`apart`: what is received is recorded by a process of its own, where the database is no server."""
        return await self._opened.open(partial(self._open, apart))

    async def stop(self) -> None:
        """Answer everything that was taken in on this event loop, then let go of the database."""
        await self._opened.close()

    async def _open(self, apart: bool, stack: contextlib.AsyncExitStack) -> OpenIntake:
        inbox, settings = self._inbox, self._inbox.settings.intake
        inbox.read_secrets()
        sources = list(inbox.sources.values())
        store = await self._opener.open(stack, apart=apart)
        recorder = Recorder(
            store,
            batch=settings.batch,
            queue=settings.queue,
            parallel=settings.parallel,
            queues=store.queues,
        )
        stack.push_async_callback(recorder.drain)
        secrets = secrets_of(source.endpoint for source in sources)
        refusals = Refusals(store.cases, settings.rejections, inbox.clock.time, secrets)
        stack.push_async_callback(refusals.flush)
        readiness = Readiness(store.health, rejected=lambda: refusals.reasons)
        told = await self._tell_sources(store)
        keys = KeptKeys(inbox.keyring, store.published)
        await keys.sync()
        stack.push_async_callback(keys.sync)
        stack.push_async_callback(inbox.keyring.close)
        aftercare = Aftercare(store, store.cases)
        for chore in (self._watch(store, readiness, told), refusals.run(), keys.run(), aftercare.run()):
            stack.callback(asyncio.create_task(chore).cancel)
        watchdog = Watchdog("no delivery is answered")
        watchdog.start()
        stack.callback(watchdog.stop)
        largest = max((source.endpoint.max_body for source in sources), default=0)
        limits = settings.limits.fitting(largest)
        if (fitting := limits.body_bytes) > settings.limits.body_bytes:
            log.warning("intake.limits.body_bytes has no room for a max_body of %d: %d is used", largest, fitting)
        intake = Intake(
            {source.endpoint.path: source.endpoint for source in sources},
            recorder,
            refusals,
            aftercare=aftercare,
            fetches=inbox.keyring,
            limits=limits,
            clock=inbox.clock,
            skew=lambda: readiness.skew,
        )
        self._refusals, self.limits = refusals, limits
        return OpenIntake(intake, readiness, limits)

    async def _tell_sources(self, store: Store) -> bool:
        """Whether the database knows which sources are served; it may be down, or not migrated yet."""
        try:
            await store.know_sources(list(self._inbox.sources))
        except HookledgerError:
            return False
        return True

    async def _watch(self, store: Store, readiness: Readiness, told: bool) -> None:
        """Knows how far the clocks are apart."""
        while True:
            await readiness.ask()
            told = told or await self._tell_sources(store)
            await asyncio.sleep(15 if told else 1)

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
            self._seldom.warning("deliveries get 503: the intake cannot start: %s", error)
            alive = path == "/healthz"  # the process is, whatever the database is
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

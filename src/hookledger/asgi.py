"""The front door: the intake and the health checks, opened with the store when a server starts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .config import IntakeSettings
from .errors import HookledgerError, Unavailable
from .model import Request
from .operate.health import ALIVE, HEALTH, Readiness
from .receive import respond
from .receive.aftercare import Aftercare
from .receive.app import Delivery, Intake
from .receive.record import Recorder
from .receive.refusals import Refusals
from .receive.request import Receive, Scope, Send
from .receive.respond import Answer
from .store.opening import Opener
from .store.protocol import Store

if TYPE_CHECKING:
    from .inbox import Inbox

log = logging.getLogger(__name__)


class Asgi:
    """Opens the store when the server starts, or at the first request if nobody told us."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._opener = Opener(inbox.store)
        self._intake: Intake | None = None
        self._readiness: Readiness | None = None
        self._refusals: Refusals | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it runs, while it does."""
        self._recorder: Recorder | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def start(self, *, apart: bool = False) -> None:
        """`apart`: what is received is recorded by a process of its own, where the database is no server."""
        async with self._opening:
            if self._intake is not None:
                return
            store = await self._opener.open(self._stack, apart=apart)
            settings: IntakeSettings = self._inbox.settings.intake
            self._recorder = Recorder(
                store,
                batch=settings.batch,
                queue=settings.queue,
                parallel=settings.parallel,
                queues=store.queues,
            )
            self._stack.push_async_callback(self._recorder.drain)
            refusals = Refusals(store.cases, settings.rejections, self._inbox.clock.time)
            self._stack.push_async_callback(refusals.flush)
            self._refusals = refusals
            self.loop = asyncio.get_running_loop()
            self._readiness = Readiness(store.health, rejected=lambda: refusals.reasons)
            told = await self._tell_sources(store)
            self._stack.push_async_callback(self._inbox.keyring.close)
            aftercare = Aftercare(store, store.cases)
            for chore in (self._watch(store, self._readiness, told), refusals.run(), aftercare.run()):
                self._stack.callback(asyncio.create_task(chore).cancel)
            self._intake = Intake(
                {source.endpoint.path: source.endpoint for source in self._inbox.sources.values()},
                self._recorder,
                refusals,
                aftercare=aftercare,
                fetches=self._inbox.keyring,
                limits=settings.limits,
                clock=self._inbox.clock,
                skew=lambda readiness=self._readiness: readiness.skew,  # type: ignore[misc]
            )

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many requests were refused since the start, by reason."""
        return {} if self._refusals is None else self._refusals.reasons

    async def stop(self) -> None:
        """Answer everything that was taken in, then let go of the database."""
        await self._stack.aclose()
        self._intake = self.loop = None

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
        path = _local(scope)
        if self._intake is None:
            try:
                await self.start()
            except Unavailable as error:
                log.warning("the store cannot be opened: %s", error)
                alive = path == "/healthz"  # the process is, whatever the database is
                await respond.send(respond.Response(200, ALIVE) if alive else respond.unavailable(), send)
                return
        assert self._intake is not None
        if path in HEALTH:
            await respond.send(await self._health(path), send)
        else:
            await self._intake(scope, receive, send)

    # What `hookledger receive` serves: started before the first request, health checks included.

    def max_body(self, method: str, path: str) -> int:
        assert self._intake is not None
        return 0 if path in HEALTH else self._intake.endpoint(method, path).max_body

    def take(self, requests: Sequence[tuple[Request, Answer]]) -> None:
        intake = self._intake
        assert intake is not None
        deliveries = []
        for request, answer in requests:
            if request.path in HEALTH:
                self._tell_health(request.path, answer)
            else:
                deliveries.append(Delivery(intake.endpoint(request.method, request.path), request, answer))
        intake.take(deliveries)

    def _tell_health(self, path: str, answer: Answer) -> None:
        async def tell() -> None:
            try:
                response = await self._health(path)
            except Exception as error:
                response = self.refuse(error)
            answer(response)

        task = asyncio.create_task(tell())
        self._telling.add(task)  # the loop itself would let it be collected
        task.add_done_callback(self._telling.discard)

    def refuse(self, error: Exception) -> respond.Response:
        assert self._intake is not None
        return self._intake.refuse(error)

    async def _health(self, path: str) -> respond.Response:
        assert self._readiness is not None
        return respond.found(await self._readiness.answer(path))

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


def _local(scope: Scope) -> str:
    """The path below where we are mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))

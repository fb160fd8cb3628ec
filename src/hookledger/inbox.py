"""The composition root: joins sources, handlers and store into a receiver and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from .clock import Clock, Seconds
from .config import Config, IntakeSettings, SecretSettings, WorkSettings
from .errors import ConfigError, HookledgerError, Rejected, SchemaMismatch, Unavailable
from .model import Claimed, Expired, Kind, Request
from .operate.actions import Actions
from .operate.health import ALIVE, Readiness
from .operate.insight import Insight
from .providers.catalogue import find
from .providers.contract import contents, decode
from .receive import respond
from .receive.app import Intake
from .receive.endpoint import Endpoint, Secret, configure, load_secret
from .receive.record import Recorder
from .receive.request import Receive, Scope, Send
from .store.connect import connect
from .store.protocol import Store
from .upkeep.rescue import Rescuer
from .work.event import Event, SyncEvent
from .work.loop import Worker
from .work.retry import RetryPolicy
from .work.route import AsyncFunction, Handler, PlainFunction, Result, Routes, covers

log = logging.getLogger(__name__)

HEALTH = ("/healthz", "/readyz")

A = TypeVar("A", bound=Callable[[Event], Awaitable[Result]])
P = TypeVar("P", bound=Callable[[SyncEvent], Result])


class Source:
    """One configured endpoint, and where its handlers are declared."""

    def __init__(self, inbox: Inbox, endpoint: Endpoint) -> None:
        self._inbox = inbox
        self.endpoint = endpoint

    @property
    def name(self) -> str:
        return self.endpoint.name

    def on(
        self,
        *types: str,
        retry: RetryPolicy | None = None,
        timeout: float | str | None = None,
        batch: int = 1,
    ) -> Registration:
        """Declare the handler of these event types; a type may end in `*`, and an exact one beats a pattern.

        `batch`: run up to so many events in one transaction. If one of them fails, each is run alone.
        """
        if not types:
            raise ConfigError(f"source {self.name!r}: a handler names the event types it takes, or '*'")
        if batch < 1:
            raise ConfigError(f"source {self.name!r}: batch is at least 1")
        limit = None if timeout is None else Seconds(timeout)

        def add(function: AsyncFunction | PlainFunction) -> None:
            for pattern in types:
                self._inbox.routes.add(self.name, pattern, Handler(function, retry, limit, batch))

        return Registration(add)


class Registration:
    """The decorator that `Source.on` returns; its overloads tell async handlers from plain functions."""

    def __init__(self, add: Callable[[AsyncFunction | PlainFunction], None]) -> None:
        self._add = add

    @overload
    def __call__(self, function: A) -> A: ...
    @overload
    def __call__(self, function: P) -> P: ...
    def __call__(self, function: AsyncFunction | PlainFunction) -> AsyncFunction | PlainFunction:
        self._add(function)
        return function


class Inbox:
    """A webhook inbox on one database. There is no silent default: name it, or give it by `bind`."""

    def __init__(
        self, database: str | None = None, *, settings: Config | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or Config()
        self.database = database or self.settings.database
        self.clock = clock or Clock()
        self.routes = Routes()
        self.sources: dict[str, Source] = {}
        self._asgi: Asgi | None = None
        self._add_sources(self.settings)

    def bind(self, settings: Config) -> None:
        """Take the settings of a file, for an inbox that was made without them; its sources are added."""
        self.settings = settings
        self.database = settings.database or self.database
        self._add_sources(settings)

    def _add_sources(self, settings: Config) -> None:
        for name, given in settings.sources.items():
            self.source(
                name,
                provider=given.provider,
                secrets=[_secret(secret, given.provider, given.options) for secret in given.secrets],
                types=given.types,
                other_types=given.other_types,
                key_required=given.key_required,
                tolerance=given.tolerance,
                max_body=given.max_body,
                public_url=given.public_url,
                options=given.options,
            )

    def source(
        self,
        name: str,
        *,
        provider: str,
        secrets: Iterable[str | Secret],
        types: Iterable[str] | None = None,
        other_types: Literal["skip", "refuse"] = "skip",
        key_required: bool = False,
        tolerance: float | str | None = None,
        max_body: int | None = None,
        public_url: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        """Add an endpoint. Its deliveries are POSTed to `/NAME`."""
        if name in self.sources:
            raise ConfigError(f"there are two sources called {name!r}")
        if f"/{name}" in HEALTH:
            raise ConfigError(f"no source can be called {name!r}: /{name} answers health checks")
        endpoint = configure(
            name,
            find(provider, options),
            secrets,
            types=types,
            other_types=other_types,
            key_required=key_required,
            tolerance=None if tolerance is None else Seconds(tolerance),
            max_body=max_body,
            public_url=public_url,
        )
        self.sources[name] = Source(self, endpoint)
        return self.sources[name]

    # ── parts ──

    def store(self) -> Store:
        """A store for this inbox's database, not open yet."""
        if not self.database:
            raise ConfigError(
                "no database: give Inbox(…) a URL; on the command line --database, HOOKLEDGER_DATABASE, or database "
                "in hookledger.toml"
            )
        work = self.settings.work
        return connect(
            self.database,
            clock=self.clock,
            schema=self.settings.db_schema,
            pooler=self.settings.pooler,
            lease=work.lease,
            transaction_limit=work.transaction_limit,
        )

    @contextlib.asynccontextmanager
    async def opened(self, *, handlers: int = 0, check: bool = True) -> AsyncIterator[Store]:
        """An open store. `check`: refuse a database whose schema this release does not work with."""
        store = self.store()
        await store.open(handlers=handlers)
        try:
            if check:
                health = await store.health()
                if not health.writable:
                    fits = health.problem and "schema version" in health.problem
                    raise (SchemaMismatch if fits else Unavailable)(health.problem)
            yield store
        finally:
            await store.close()

    async def migrate(self) -> list[str]:
        """Bring the database's schema up to date; returns the migrations applied."""
        async with self.opened(check=False) as store:
            return await store.migrate()

    def insight(self, store: Store) -> Insight:
        return Insight(store)

    def actions(self, store: Store, actor: str) -> Actions:
        return Actions(store, actor)

    def worker(
        self, store: Store, work: WorkSettings | None = None, *, stuck: Callable[[], None] = lambda: None
    ) -> Worker:
        return Worker(store, self.routes, self.read, work or self.settings.work, stuck=stuck)

    def rescuer(self, store: Store, work: WorkSettings | None = None) -> Rescuer:
        work = work or self.settings.work

        def policy(event: Expired) -> RetryPolicy:
            handler = self.routes.find(Kind(event.source, event.type))
            return (handler.retry if handler else None) or work.retry

        return Rescuer(store, policy, covers, lease=work.lease, unhandled_after=work.unhandled_after)

    def read(self, claimed: Claimed) -> Any:
        """The content of one event: its own part where its request held several."""
        source = self.sources.get(claimed.source)
        if source is None:
            raise ConfigError(f"there is no source {claimed.source!r} any more")
        contract = source.endpoint.contract
        return contents(contract, decode(contract, claimed.body))[claimed.item]

    # ── running ──

    async def work(
        self,
        *,
        drain: bool = False,
        settings: WorkSettings | None = None,
        started: Callable[[Worker], None] | None = None,
        stuck: Callable[[], None] = lambda: None,
    ) -> None:
        """Run a worker, and the upkeep beside it, until stopped or, with `drain`, until nothing is due.

        `stuck` is called, in another thread, when a handler has blocked the event loop beyond every time-out.
        """
        settings = settings or self.settings.work
        async with self.opened(handlers=settings.concurrency) as store:
            worker = self.worker(store, settings, stuck=stuck)
            if started is not None:
                started(worker)
            upkeep = asyncio.create_task(self.rescuer(store, settings).run())
            try:
                await worker.run(drain=drain)
            finally:
                upkeep.cancel()
                await asyncio.gather(upkeep, return_exceptions=True)

    @property
    def asgi(self) -> Asgi:
        """The intake and the health checks, to be served or mounted in any ASGI application."""
        if self._asgi is None:
            self._asgi = Asgi(self)
        return self._asgi


def _local(scope: Scope) -> str:
    """The path below where we are mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _secret(given: str | SecretSettings, provider: str, options: Mapping[str, Any]) -> str | Secret:
    if isinstance(given, str):
        return given
    if given.expires.tzinfo is None:
        raise ConfigError(f"a secret expires at a moment with a time zone, not at {given.expires}")
    return load_secret(given.secret, find(provider, options), expires_at=given.expires.timestamp())


class Asgi:
    """Opens the store when the server starts, or at the first request if nobody told us."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._not_before = float("-inf")
        self._intake: Intake | None = None
        self._readiness: Readiness | None = None
        self._recorder: Recorder | None = None

    async def start(self) -> None:
        async with self._opening:
            if self._intake is not None:
                return
            if time.monotonic() < self._not_before:
                raise Unavailable("the database did not answer a moment ago")
            store = self._inbox.store()
            try:
                await store.open()
            except Unavailable:
                # Those who wait for the lock now need not wait for the same answer once more.
                self._not_before = time.monotonic() + 1.0
                raise
            self._stack.push_async_callback(store.close)
            settings: IntakeSettings = self._inbox.settings.intake
            self._recorder = Recorder(
                store, batch=settings.batch, queue=settings.queue, parallel=settings.parallel
            )
            self._stack.push_async_callback(self._recorder.drain)
            self._readiness = Readiness(store.health, rejected=lambda: self._intake.rejected if self._intake else {})
            told = await self._tell_sources(store)
            watch = asyncio.create_task(self._watch(store, self._readiness, told))
            self._stack.callback(watch.cancel)
            self._intake = Intake(
                {name: source.endpoint for name, source in self._inbox.sources.items()},
                self._recorder,
                limits=settings.limits,
                clock=self._inbox.clock,
                skew=lambda readiness=self._readiness: readiness.skew,  # type: ignore[misc]
            )

    async def stop(self) -> None:
        """Answer everything that was taken in, then let go of the database."""
        await self._stack.aclose()
        self._intake = None

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
            await self.health(scope, receive, send)
        else:
            await self._intake(scope, receive, send)

    # What `hookledger receive` serves: started before the first request, health checks included.

    def max_body(self, method: str, path: str) -> int:
        assert self._intake is not None
        return 0 if path in HEALTH else self._intake.endpoint(method, path.strip("/")).max_body

    def take(self, request: Request, answer: Callable[[respond.Response], object]) -> None:
        assert self._intake is not None
        if request.path in HEALTH:
            asyncio.create_task(self._health(request.path)).add_done_callback(lambda task: answer(task.result()))
        else:
            self._intake.take(self._intake.endpoint(request.method, request.path.strip("/")), request, answer)

    def refuse(self, error: Rejected) -> respond.Response:
        assert self._intake is not None
        return self._intake.refuse(error)

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only the health checks: what the operator's listener serves for now."""
        if scope["type"] != "http":
            return
        await respond.send(await self._health(_local(scope)), send)

    async def _health(self, path: str) -> respond.Response:
        assert self._readiness is not None
        return respond.Response(*(await self._readiness.answer(path) or (404, b'{"error":"not found"}')))

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

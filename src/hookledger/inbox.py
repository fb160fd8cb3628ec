"""The composition root: joins sources, handlers and store into a receiver and a worker."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import msgspec

from .clock import Clock
from .config import Config, WorkSettings, source_settings
from .effects.circuit import Breakers
from .effects.declare import EffectDecorators
from .effects.signatures import check_takes
from .errors import ConfigError, SchemaMismatch, Unavailable
from .idempotency.after import decider_of
from .idempotency.declare import GuardOptions, declare
from .idempotency.events import GuardedSource
from .idempotency.guard import Caller, Idempotent
from .idempotency.routes import Repeat
from .inline.opened import open_answerer
from .ledger import MIDDLE
from .model import Claimed, base_source
from .observe.metrics.counts import WorkCounts
from .observe.metrics.process import APP, ProcessMetrics
from .observe.metrics.rollup import RateWriter, Written
from .operate.alerts.declare import AlertDecorators
from .operate.api.listener import Operator
from .operate.context import Application, Context
from .operate.examine import Examiner
from .operate.maintenance import maintained
from .operate.replay.dry_run import DryRun
from .providers.catalogue import find, with_options
from .providers.contract import Contract
from .providers.reading import contents, decode
from .receive.asgi import Asgi, KeyFetches
from .receive.endpoint import configure, with_secrets
from .receive.health import HEALTH
from .receive.keyring import Fetched
from .receive.settings import KeyFunction, SourceOptions, SourceSettings, naming
from .schemas.folder import Schemas, load
from .schemas.settings import SchemaSettings
from .source import Source, is_repair
from .store.connect import connect
from .store.protocol import Store, Transactions
from .work.check import Checks
from .work.current import Currents, CurrentStates
from .work.loop import Worker
from .work.metrics import WorkMetrics
from .work.reclaim import LeaseReclaimer
from .work.route import Routes
from .work.run import Runner
from .work.slots import small_pools


class Inbox(EffectDecorators, AlertDecorators):
    """A webhook inbox on one database. There is no silent default: name it, or give it by `bind`."""

    def __init__(
        self,
        database: str | None = None,
        *,
        transactions: Transactions | Sequence[Transactions] = (),
        settings: Config | None = None,
        clock: Clock | None = None,
        schemas: str | Path | None = None,
    ) -> None:
        """`transactions`: what `event.tx` is, on PostgreSQL, if not asyncpg: see `hookledger.contrib`. `schemas`: the
        folder of schemas, instead of `[schemas] path`."""
        super().__init__()
        self.settings: Config = settings or Config()
        self.database = database or self.settings.database
        self.clock: Clock = clock or Clock()
        self.transactions: tuple[Transactions, ...] = (
            tuple(transactions) if isinstance(transactions, Sequence) else (transactions,)
        )
        if len({given.plain for given in self.transactions}) < len(self.transactions):
            raise ConfigError("transactions= takes one adapter for async handlers and one for plain functions")
        self.routes: Routes = Routes()
        self.work_counts: WorkCounts = WorkCounts()
        """What the workers of this process have counted."""
        self.answer_counts: WorkCounts = WorkCounts()
        """The same of handlers that answer and ran here for a request."""
        self.currents: Currents = Currents()
        self.sources: dict[str, Source] = {}
        self.keyring: Fetched = Fetched()
        self._schemas_at = None if schemas is None else str(schemas)
        self._schemas: Schemas | None = None
        self._asgi: Asgi | None = None
        self._guards: list[Idempotent] = []
        self._operator: Operator | None = None
        self._add_sources(self.settings)

    def bind(self, settings: Config) -> None:
        """Take the settings of a file, for an inbox that was made without them; its sources are added."""
        self.settings = settings
        self._schemas = None
        self.database = settings.database or self.database
        for source in self.sources.values():
            source.endpoint = msgspec.structs.replace(source.endpoint, proxies=settings.intake.proxies)
        self._add_sources(settings)

    def _add_sources(self, settings: Config) -> None:
        for name, given in settings.sources.items():
            self._add_source(name, given)

    def source(self, name: str, **options: Unpack[SourceOptions]) -> Source:
        """Add an endpoint. Its deliveries are POSTed to `/NAME`, or to `path`.

        `provider`: a name of the catalogue, or a contract of your own. `secrets`: each `env:NAME`, `file:/path` or
        the secret itself. `key`: the fields that make two deliveries one event, or a function of the event's content
        and the request's headers. `retention`: such as `{"payloads": "30d", "events": "never"}`. The options are
        those of `[sources.NAME]` in hookledger.toml.
        """
        given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
        contract = key_function = None
        if isinstance(given.get("provider"), Contract):
            contract = given["provider"]
            given["provider"] = contract.name
        if callable(given.get("key")):
            key_function = given.pop("key")
            check_takes(key_function, f"source {name!r}: key", "content", "headers")
        return self._add_source(name, source_settings(name, given), contract, key_function)

    def _add_source(
        self,
        name: str,
        settings: SourceSettings,
        contract: Contract | None = None,
        key_function: KeyFunction | None = None,
    ) -> Source:
        if name in self.sources:
            raise ConfigError(f"there are two sources called {name!r}")
        with naming(name):
            if contract is None:
                contract = find(settings.provider, settings.options)
            else:
                contract = with_options(contract, settings.options)
        endpoint = configure(
            name,
            contract,
            settings,
            key_function=key_function,
            proxies=self.settings.intake.proxies,
            keyring=self.keyring,
        )
        taken = {source.endpoint.path: source.name for source in self.sources.values()}
        if endpoint.path in taken:
            raise ConfigError(f"the sources {taken[endpoint.path]!r} and {name!r} have the same path {endpoint.path}")
        if endpoint.path in HEALTH:
            raise ConfigError(f"source {name!r} cannot be at {endpoint.path}: that answers health checks")
        self._schemas = None
        self.sources[name] = Source(endpoint, self.routes, self.currents)
        return self.sources[name]

    def idempotent(
        self,
        name: str,
        *,
        caller: Caller,
        routes: Sequence[str] | Mapping[str, Repeat],
        repeat: Repeat = "never",
        **options: Unpack[GuardOptions],
    ) -> Idempotent:
        """Guard routes of your own that take `Idempotency-Key`: `app = guard(app)`, or `app.add_middleware(guard)`.

        `caller`: a function of the ASGI scope, run after your authentication: the caller's id, or None for a request
        that is not authenticated, which is passed on unguarded. `routes`: such as "POST /orders/{id}/refunds", with
        the policy of each if it is a mapping; of two that match a path the narrower decides, ConfigError if none is.
        `repeat`: what follows an attempt whose outcome is unknown: "never", "transaction", "safe" or "accept".
        """
        guard = declare(self, name, caller, routes, repeat, options)
        if name in self.sources:
            raise ConfigError(f"there are two sources called {name!r}")
        self.sources[name] = GuardedSource(guard.endpoint, self.routes, self.currents)
        self._guards.append(guard)
        for route in guard.routes:
            self.routes.add(name, route.name, decider_of(route, guard.settings.keep))
        return guard

    def advice(self) -> list[str]:
        """What is allowed and yet may surprise, about each source."""
        return [line for source in self.sources.values() for line in source.advice()]

    def read_secrets(self, *, required: bool = True) -> None:
        """Read the secrets that `env:` and `file:` name, as the receiver does when it starts. ConfigError names the
        source and the place of one that is missing; with `required=False` that one proves nothing."""
        for source in self.sources.values():
            source.endpoint = with_secrets(source.endpoint, required=required)

    # ── parts ──

    def store(self, database: str | None = None, *, lease: float | None = None) -> Store:
        """A store for this inbox's database, or another one with the same settings; not open yet. `lease`: of its
        handlers, if that is not the workers'."""
        if not (database := database or self.database):
            raise ConfigError(
                "no database: give Inbox(…) a URL; on the command line --database, HOOKLEDGER_DATABASE, or database "
                "in hookledger.toml"
            )
        work = self.settings.work
        return connect(
            database,
            clock=self.clock,
            schema=self.settings.db_schema,
            pooler=self.settings.pooler,
            lease=work.lease if lease is None else lease,
            transaction_limit=work.transaction_limit,
        )

    @contextlib.asynccontextmanager
    async def opened(
        self, database: str | None = None, *, handlers: int = 0, check: bool = True
    ) -> AsyncIterator[Store]:
        """An open store. `check`: refuse a database whose schema this release does not work with."""
        self.read_secrets(required=False)
        store = self.store(database)
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

    def context(self, store: Store, work: WorkSettings | None = None) -> Context:
        """What the functions of `hookledger.operate` work on."""
        work = work or self.settings.work
        advice = tuple(small_pools(self.transactions, work.concurrency))
        return Context(
            store,
            self.examiner,
            Application(self.routes, self.effects, advice, tuple(self.alert_functions)),
            lease=work.lease,
            retention=self.settings.retention,
            alerts=self.settings.alerts,
            consistency=self.settings.consistency,
            notes_fields=self.settings.schemas.drift,
            clock=self.clock,
        )

    @contextlib.asynccontextmanager
    async def operating(self, *, check: bool = True) -> AsyncIterator[Context]:
        """The context of an open store. `check` as for `opened`."""
        async with self.opened(check=check) as store:
            yield self.context(store)

    @property
    def examiner(self) -> Examiner:
        """The sources, for operators, and the intake's judgement of requests that were kept."""
        return Examiner(self.sources, KeyFetches(self))

    def dry_run(self, store: Store) -> DryRun:
        self.effects.verify()
        work = self.settings.work
        current = CurrentStates(self.currents, store.tickets, Breakers(store.circuits, work.circuit))
        return DryRun(
            store, self.routes, self.effects, Runner(self.checks(), self.transactions, current, self.rank), work
        )

    def worker(
        self,
        store: Store,
        work: WorkSettings | None = None,
        *,
        routes: Routes | None = None,
        stuck: Callable[[], None] = lambda: None,
    ) -> Worker:
        """`routes`: the handlers to run; default: all."""
        self.effects.verify()
        for source, handler in (routes or self.routes).served():
            self.work_counts.expect(base_source(source), handler.label)
        rules = {name: source.settings for name, source in self.sources.items()}
        return Worker(
            store,
            routes or self.routes,
            self.effects,
            self.checks(),
            work or self.settings.work,
            transactions=self.transactions,
            currents=self.currents,
            weights={name: rule.weight for name, rule in rules.items()},
            max_running={name: rule.max_running for name, rule in rules.items() if rule.max_running is not None},
            rank=self.rank,
            stuck=stuck,
            counts=self.work_counts,
        )

    def lease_reclaimer(
        self, store: Store, work: WorkSettings | None = None, counts: WorkCounts | None = None
    ) -> LeaseReclaimer:
        counts = self.work_counts if counts is None else counts
        return LeaseReclaimer(store, self.routes, self.effects, work or self.settings.work, counts)

    @property
    def work_metrics(self) -> WorkMetrics:
        """What the workers of this process have counted, as metrics."""
        return WorkMetrics([self.work_counts], self.effects)

    def metrics(self) -> str:
        """Return the metrics of this process as Prometheus reads them, for an application of yours that mounts the
        intake, guards routes or runs a worker. Call it in any thread. Those of the database are `hookledger api`'s.
        """
        own, guards = ProcessMetrics(APP), [guard.metrics for guard in self._guards]
        counts = [self.work_counts, self.answer_counts, *(guard.counts for guard in self._guards)]
        own.parts = [partial(self.asgi.metrics.collect, guards=guards), WorkMetrics(counts, self.effects).collect]
        return own.text()

    @property
    def answer_metrics(self) -> WorkMetrics:
        """The same of handlers that answer and ran here for a request."""
        return WorkMetrics([self.answer_counts], self.effects)

    def read(self, claimed: Claimed) -> Any:
        """The content of one event: its own part where its request held several."""
        if is_repair(claimed):
            return msgspec.json.decode(claimed.body)
        source = self.sources.get(base_source(claimed.source))
        if source is None:
            raise ConfigError(f"source {claimed.source!r} is not declared: its events cannot be read; declare it")
        contract = source.endpoint.contract
        return contents(contract, decode(contract, claimed.body))[claimed.item]

    def schemas(self) -> Schemas:
        """The schemas of its sources, compiled; ConfigError names file and place of one that is wrong."""
        if self._schemas is None:
            versioned = {name for name, source in self.sources.items() if source.endpoint.version is not None}
            self._schemas = load(self.schema_settings, self.sources, versioned)
        return self._schemas

    @property
    def schema_settings(self) -> SchemaSettings:
        """Where its schemas are."""
        given, path = self.settings.schemas, self._schemas_at
        return given if path is None else msgspec.structs.replace(given, path=path)

    def read_schemas(self) -> None:
        """Give the intake the schemas of the sources that check content there."""
        for source in self.sources.values():
            if source.settings.schema_check == "intake":
                schemas = self.schemas().of(source.name)
                source.endpoint = msgspec.structs.replace(source.endpoint, schemas=schemas)

    def checks(self) -> Checks:
        """What workers check of an event before its handler runs."""
        return Checks(self.read, self.schemas())

    def rank(self, claimed: Claimed) -> int:
        """The rank of an event's type, by which a guard orders events with the same version."""
        source = self.sources.get(base_source(claimed.source))
        return MIDDLE if source is None else source.endpoint.contract.rank(claimed.type)

    # ── running ──

    async def work(
        self,
        *,
        drain: bool = False,
        sources: Sequence[str] = (),
        types: Sequence[str] = (),
        settings: WorkSettings | None = None,
        started: Callable[[Worker], None] | None = None,
        stuck: Callable[[], None] = lambda: None,
    ) -> None:
        """Run a worker, and maintenance beside it, until stopped or, with `drain`, until nothing is due.

        `sources`, `types`: dedicate it to events of these sources and of these types or patterns. It performs the
        outbox of all.
        `stuck` is called, in another thread, when a handler has blocked the event loop beyond every timeout.
        """
        settings = settings or self.settings.work
        routes = self.routes.only(sources, types)
        async with self.opened(handlers=settings.concurrency) as store:
            worker = self.worker(store, settings, routes=routes, stuck=stuck)
            context, reclaimer = self.context(store, settings), self.lease_reclaimer(store, settings)
            async with contextlib.AsyncExitStack() as stack:
                if self.settings.monitor.rates:
                    writer = RateWriter(store.rates, worker.name, self.work_metrics.totals)
                    await stack.enter_async_context(Written(writer))
                await stack.enter_async_context(maintained(context, reclaimer, scheduled=not drain))
                if started is not None:
                    started(worker)
                await worker.run(drain=drain)

    @property
    def asgi(self) -> Asgi:
        """The intake and the health checks, to be served or mounted in any ASGI application."""
        if self._asgi is None:
            self._asgi = Asgi(self, partial(open_answerer, self))
        return self._asgi

    @property
    def operator(self) -> Operator:
        """The JSON API under `/api/v1` and the health checks, for operators: served separately from the intake."""
        if self._operator is None:
            self._operator = Operator(self)
        return self._operator

"""The composition root: joins sources, handlers and store into a receiver and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from .asgi import Asgi
from .clock import Clock, Seconds
from .config import Config, WorkSettings
from .declared import Declarations
from .errors import ConfigError, SchemaMismatch, Unavailable
from .examine import Examiner
from .ledger import Effect
from .model import Claimed, Evidence, Expired, Kind, covers
from .operate.actions import Actions
from .operate.bulk import objection
from .operate.handlers import UnhandledWatch
from .operate.health import HEALTH
from .operate.insight import Insight
from .operate.receiving import Plan
from .operate.reconcile import LEASE, Window, carry_out
from .operator import Operator
from .providers.catalogue import find, with_options
from .providers.contract import Contract
from .providers.listing.base import ReconcileSettings
from .providers.reading import contents, decode
from .receive.endpoint import KeyFunction, Rules, configure, require_secrets, with_secrets
from .receive.keyring import Fetched
from .receive.secrets import Place, Secret
from .retention import SourceRetention, limits, source_retention
from .source import Source, is_repair
from .states import CallOutcome
from .store.connect import connect
from .store.protocol import Store, Transactions
from .upkeep.jobs import JobRunner
from .upkeep.prune import Pruner
from .upkeep.rescue import Rescuer
from .upkeep.schedule import Daily, Schedule
from .work.current import Currents
from .work.declare import Effects
from .work.loop import Worker, worker_name
from .work.perform import Ending
from .work.policy import may_go_on
from .work.retry import RetryPolicy
from .work.route import Routes
from .work.signatures import check_takes

log = logging.getLogger(__name__)

RETRY_AFTER, TRIES = 1800.0, 5
"""Seconds before a planned comparison that failed is tried again, and how often it is begun in all."""


class Inbox:
    """A webhook inbox on one database. There is no silent default: name it, or give it by `bind`."""

    def __init__(
        self,
        database: str | None = None,
        *,
        transactions: Transactions | Sequence[Transactions] = (),
        settings: Config | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`transactions`: what `event.tx` is, on PostgreSQL, if not asyncpg: see `hookledger.contrib`."""
        self.settings = settings or Config()
        self.database = database or self.settings.database
        self.clock = clock or Clock()
        self.transactions = tuple(transactions) if isinstance(transactions, Sequence) else (transactions,)
        if len({given.plain for given in self.transactions}) < len(self.transactions):
            raise ConfigError("transactions= takes one adapter for async handlers and one for plain functions")
        self.routes = Routes()
        self.effects = Effects()
        self.effect = self.effects.effect
        self.ensure = self.effects.ensure
        self.currents = Currents()
        self.sources: dict[str, Source] = {}
        self.keyring = Fetched()
        self._asgi: Asgi | None = None
        self._operator: Operator | None = None
        self._add_sources(self.settings)

    def bind(self, settings: Config) -> None:
        """Take the settings of a file, for an inbox that was made without them; its sources are added."""
        self.settings = settings
        self.database = settings.database or self.database
        for source in self.sources.values():
            source.endpoint = msgspec.structs.replace(source.endpoint, proxies=settings.intake.proxies)
        self._add_sources(settings)

    def _add_sources(self, settings: Config) -> None:
        for name, given in settings.sources.items():
            contract = find(given.provider, given.options)
            self.source(
                name,
                provider=contract,
                secrets=given.places,
                path=given.path,
                types=given.types,
                other_types=given.other_types,
                mode=given.mode,
                key=given.key or None,
                key_required=given.key_required,
                repeatable=given.repeatable,
                on_failed=given.on_failed,
                bounces=given.bounces,
                horizon=given.horizon,
                tolerance=given.tolerance,
                max_body=given.max_body,
                public_url=given.public_url,
                verify_token=given.verify_token,
                origins=given.origins,
                reconciled=given.reconciled,
                reconcile=given.reconcile,
                retention=given.retention,
            )

    def source(
        self,
        name: str,
        *,
        provider: str | Contract,
        secrets: Iterable[str | Place | Secret] = (),
        path: str | None = None,
        types: Iterable[str] | None = None,
        other_types: Literal["skip", "refuse"] = "skip",
        mode: Literal["run", "observe"] = "run",
        key: Sequence[str] | KeyFunction | None = None,
        key_required: bool = False,
        repeatable: Iterable[str] | None = None,
        on_failed: Literal["record", "retry", "alert"] = "record",
        bounces: int = 3,
        horizon: float | str | None = None,
        tolerance: float | str | None = None,
        max_body: int | None = None,
        public_url: str | None = None,
        verify_token: str | None = None,
        origins: Iterable[str] = (),
        reconciled: bool = False,
        reconcile: ReconcileSettings | None = None,
        retention: SourceRetention | Mapping[str, float | str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Source:
        """Add an endpoint. Its deliveries are POSTed to `/NAME`, or to `path`.

        `provider`: a name of the catalogue, or a contract of your own. `key`: the fields that make two deliveries one
        event, or a function of the event's content and the request's headers. `retention`: such as
        `{"payloads": "30d", "events": "never"}`. The rest is as in `hookledger.toml`.
        """
        if name in self.sources:
            raise ConfigError(f"there are two sources called {name!r}")
        if callable(key):
            check_takes(key, f"source {name!r}: key", "content", "headers")
        contract = find(provider, options) if isinstance(provider, str) else with_options(provider, options or {})
        endpoint = configure(
            name,
            contract,
            secrets,
            rules=Rules(
                types=None if types is None else frozenset(types),
                other_types=other_types,
                key_required=key_required,
                mode=mode,
                on_failed=on_failed,
                bounces=bounces,
                horizon=None if horizon is None else Seconds(horizon),
                origins=frozenset(origins),
            ),
            verify_token=verify_token,
            path=path,
            tolerance=None if tolerance is None else Seconds(tolerance),
            max_body=max_body,
            public_url=public_url,
            proxies=self.settings.intake.proxies,
            key=key,
            repeatable=repeatable,
            keyring=self.keyring,
        )
        taken = {source.endpoint.path: source.name for source in self.sources.values()}
        if endpoint.path in taken:
            raise ConfigError(f"the sources {taken[endpoint.path]!r} and {name!r} have the same path {endpoint.path}")
        if endpoint.path in HEALTH:
            raise ConfigError(f"source {name!r} cannot be at {endpoint.path}: that answers health checks")
        self.sources[name] = Source(
            endpoint,
            self.routes,
            self.currents,
            reconciled=reconciled,
            reconcile=reconcile,
            retention=source_retention(name, retention),
        )
        return self.sources[name]

    def advice(self) -> list[str]:
        """What is allowed and yet may surprise, about each source."""
        return [line for source in self.sources.values() for line in source.advice()]

    def read_secrets(self, *, required: bool = True) -> None:
        """Read the secrets that `env:` and `file:` name, as the receiver does when it starts. ConfigError names the
        source and the place of one that is missing; with `required=False` that one proves nothing."""
        for source in self.sources.values():
            source.endpoint = with_secrets(source.endpoint, required=required)

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
        self.read_secrets(required=False)
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

    @property
    def receiving(self) -> Examiner:
        """The intake's judgements, for what operators do with requests that were kept."""
        return Examiner(self.sources, self.keyring)

    def insight(self, store: Store) -> Insight:
        declared = Declarations(self.routes, self.effects, self.transactions, self.settings.work.concurrency)
        return Insight(store, self.receiving, declared)

    def actions(self, store: Store, actor: str) -> Actions:
        return Actions(store, actor, self.insight(store))

    def worker(
        self, store: Store, work: WorkSettings | None = None, *, stuck: Callable[[], None] = lambda: None
    ) -> Worker:
        self.effects.verify()
        return Worker(
            store,
            self.routes,
            self.effects,
            self.read,
            work or self.settings.work,
            transactions=self.transactions,
            current=self.currents.fetch,
            stuck=stuck,
        )

    def rescuer(self, store: Store, work: WorkSettings | None = None) -> Rescuer:
        work = work or self.settings.work

        def policy(event: Expired) -> RetryPolicy:
            handler = self.routes.find(Kind(event.source, event.type))
            return (handler.retry if handler else None) or work.retry

        def again(effect: Effect) -> float | None:
            declared = self.effects.find(effect.name)
            if declared is None:
                return 0.0  # a worker that knows it will follow its policy
            return may_go_on(declared, effect, Ending(CallOutcome.UNKNOWN))

        return Rescuer(store, policy, covers, again, lease=work.lease, unhandled_after=work.unhandled_after)

    def job_runner(self, store: Store, work: WorkSettings | None = None) -> JobRunner:
        """Goes on with bulk work."""
        declared = Declarations(self.routes, self.effects)

        def against(evidence: Evidence) -> str | None:
            return objection(evidence, declared)

        return JobRunner(store, against, worker=worker_name(), lease=(work or self.settings.work).lease)

    def schedule(self, store: Store) -> Schedule:
        """The comparisons with providers' logs that are made every day, by whichever worker comes first."""
        plans = [(name, source.plan()) for name, source in self.sources.items()]
        for name, plan in plans:
            if plan.at and not plan.lister:
                raise ConfigError(f"source {name!r} is to be compared every day, and nobody lists its events")
            if plan.at and self.sources[name].endpoint.tolerance is None:  # what is listed is verified, too
                require_secrets(self.sources[name].endpoint)
        daily = [self._daily(store, name, plan) for name, plan in plans if plan.at and plan.lister]
        return Schedule(daily, self.clock.now)

    def _daily(self, store: Store, source: str, plan: Plan) -> Daily:
        assert plan.at is not None and plan.lister is not None
        lister, actor, reason = plan.lister, "hookledger", f"every day at {plan.at:%H:%M} UTC"

        async def run(slot: datetime) -> None:
            since = slot - timedelta(seconds=plan.look_back)
            begun = await store.reconciling.begin(source, since, slot, actor, reason, lease=LEASE, slot=slot)
            if begun is None:
                return
            window = Window(begun.since, begun.until)
            comparison = self.actions(store, actor).comparison(source, window, reason)
            again_in = RETRY_AFTER if begun.fence < TRIES else None
            report = await carry_out(store, begun, comparison, lister, again_in=again_in)
            level = logging.WARNING if report.problem else logging.INFO
            log.log(level, "reconcile %s: %s", source, report.problem or report.counts.words())

        return Daily(f"reconcile {source}", plan.at, run)

    def pruner(self, store: Store) -> Pruner:
        settings = self.settings.retention
        by_source = {name: limits(settings, source.retention) for name, source in self.sources.items()}
        return Pruner(store, settings, by_source, limits(settings), self.clock, worker_name())

    def read(self, claimed: Claimed) -> Any:
        """The content of one event: its own part where its request held several."""
        if is_repair(claimed):
            return msgspec.json.decode(claimed.body)
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
            unhandled = UnhandledWatch(store, self.receiving, self.routes.handles(), settings)
            await unhandled.start()
            if started is not None:
                started(worker)
            schedule = None if drain else self.schedule(store)  # says what cannot be done before anything runs
            chores = [
                self.rescuer(store, settings).run(),
                self.job_runner(store, settings).run(),
                self.pruner(store).run(),
                unhandled.run(),
            ]
            if schedule is not None:
                chores.append(schedule.run())
            upkeep = [asyncio.create_task(chore) for chore in chores]
            try:
                await worker.run(drain=drain)
            finally:
                for task in upkeep:
                    task.cancel()
                await asyncio.gather(*upkeep, return_exceptions=True)

    @property
    def asgi(self) -> Asgi:
        """The intake and the health checks, to be served or mounted in any ASGI application."""
        if self._asgi is None:
            self._asgi = Asgi(self)
        return self._asgi

    @property
    def operator(self) -> Operator:
        """The JSON API under `/api` and the health checks, for operators: to be served apart from the intake."""
        if self._operator is None:
            self._operator = Operator(self)
        return self._operator

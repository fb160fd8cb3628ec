"""The composition root: joins sources, handlers and store into a receiver and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from .asgi import HEALTH, Asgi
from .clock import Clock, Seconds
from .config import Config, SecretSettings, WorkSettings
from .declared import Declarations
from .errors import ConfigError, SchemaMismatch, Unavailable
from .examine import Examiner
from .ledger import Effect
from .model import Claimed, Expired, Kind
from .operate.actions import Actions
from .operate.insight import Insight
from .providers.catalogue import find, with_options
from .providers.contract import Contract
from .providers.reading import contents, decode
from .receive.advice import advice
from .receive.endpoint import Endpoint, KeyFunction, Rules, Secret, configure, load_secret, load_token
from .receive.keyring import Fetched
from .retention import Keep, SourceRetention, limits
from .states import CallOutcome
from .store.connect import connect
from .store.protocol import Store, Transactions
from .upkeep.prune import Pruner
from .upkeep.rescue import Rescuer
from .work.declare import Effects
from .work.event import Event, SyncEvent
from .work.ledger import may_go_on
from .work.loop import Worker, worker_name
from .work.perform import Ending
from .work.retry import RetryPolicy
from .work.route import AsyncFunction, Handler, PlainFunction, Result, Routes, covers

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Callable[[Event[Any]], Awaitable[Result]])
P = TypeVar("P", bound=Callable[[SyncEvent[Any]], Result])


class Source:
    """One configured endpoint, and where its handlers are declared."""

    def __init__(
        self,
        inbox: Inbox,
        endpoint: Endpoint,
        *,
        reconciled: bool = False,
        retention: SourceRetention | None = None,
    ) -> None:
        self._inbox = inbox
        self.endpoint = endpoint
        self.retention = retention or SourceRetention()
        self._reconciled = reconciled

    def advice(self) -> list[str]:
        """What is allowed and yet may surprise."""
        return advice(self.endpoint, reconciled=self._reconciled)

    @property
    def name(self) -> str:
        return self.endpoint.name

    def on(
        self,
        *types: str,
        retry: RetryPolicy | None = None,
        timeout: float | str | None = None,
        batch: int = 1,
        transaction: bool = True,
        replay: Literal["converges"] | None = None,
    ) -> Registration:
        """Declare the handler of these event types; a type may end in `*`, and an exact one beats a pattern.

        `batch`: run up to so many events in one transaction. If one of them fails, each is run alone.
        `transaction=False`: for a handler that takes long. It has no `event.tx` and no `event.once`; each step it
        takes is an effect, and `event.renew()` proves that the event is still its own.
        `replay="converges"`: your word that whatever it does outside `event.once` and the effects may be repeated, as
        setting a status may and adding to a balance may not. Only then a preview calls a replay safe.
        """
        if not types:
            raise ConfigError(f"source {self.name!r}: a handler names the event types it takes, or '*'")
        if batch < 1:
            raise ConfigError(f"source {self.name!r}: batch is at least 1")
        if replay not in (None, "converges"):
            raise ConfigError(f'source {self.name!r}: replay is "converges" or nothing, not {replay!r}')
        limit = None if timeout is None else Seconds(timeout)

        def add(function: AsyncFunction | PlainFunction) -> None:
            handler = Handler(function, retry, limit, batch, transaction, replay)
            for pattern in types:
                self._inbox.routes.add(self.name, pattern, handler)

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
        self.sources: dict[str, Source] = {}
        self.keyring = Fetched()
        self._asgi: Asgi | None = None
        self._add_sources(self.settings)

    def bind(self, settings: Config) -> None:
        """Take the settings of a file, for an inbox that was made without them; its sources are added."""
        self.settings = settings
        self.database = settings.database or self.database
        self._add_sources(settings)

    def _add_sources(self, settings: Config) -> None:
        for name, given in settings.sources.items():
            contract = find(given.provider, given.options)
            self.source(
                name,
                provider=contract,
                secrets=[_secret(secret, contract) for secret in given.secrets],
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
                retention=given.retention,
            )

    def source(
        self,
        name: str,
        *,
        provider: str | Contract,
        secrets: Iterable[str | Secret] = (),
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
                verify_token=None if verify_token is None else load_token(verify_token),
                origins=frozenset(origins),
            ),
            path=path,
            tolerance=None if tolerance is None else Seconds(tolerance),
            max_body=max_body,
            public_url=public_url,
            trusted_proxies=self.settings.intake.trusted_proxies,
            key=key,
            repeatable=repeatable,
            keyring=self.keyring,
        )
        taken = {source.endpoint.path: source.name for source in self.sources.values()}
        if endpoint.path in taken:
            raise ConfigError(f"the sources {taken[endpoint.path]!r} and {name!r} have the same path {endpoint.path}")
        if endpoint.path in HEALTH:
            raise ConfigError(f"source {name!r} cannot be at {endpoint.path}: that answers health checks")
        self.sources[name] = Source(self, endpoint, reconciled=reconciled, retention=_retention(name, retention))
        return self.sources[name]

    def advice(self) -> list[str]:
        """What is allowed and yet may surprise, about each source."""
        return [line for source in self.sources.values() for line in source.advice()]

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

    @property
    def receiving(self) -> Examiner:
        """The intake's judgements, for what operators do with requests that were kept."""
        return Examiner(self.sources, self.keyring)

    def insight(self, store: Store) -> Insight:
        return Insight(store, self.receiving, Declarations(self.routes, self.effects))

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

    def pruner(self, store: Store) -> Pruner:
        settings = self.settings.retention
        by_source = {name: limits(settings, source.retention) for name, source in self.sources.items()}
        return Pruner(store, settings, by_source, limits(settings), self.clock, worker_name())

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
            upkeep = asyncio.gather(self.rescuer(store, settings).run(), self.pruner(store).run())
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


def _retention(name: str, given: SourceRetention | Mapping[str, float | str] | None) -> SourceRetention:
    if not isinstance(given, Mapping):
        return given or SourceRetention()
    unknown = given.keys() - set(SourceRetention.__struct_fields__)
    if unknown:
        known = ", ".join(SourceRetention.__struct_fields__)
        raise ConfigError(f"source {name!r}: retention knows {known}, not {min(unknown)!r}")
    return SourceRetention(**{key: Keep(value) for key, value in given.items()})


def _secret(given: str | SecretSettings, contract: Contract) -> str | Secret:
    if isinstance(given, str):
        return given
    if given.expires.tzinfo is None:
        raise ConfigError(f"a secret expires at a moment with a time zone, not at {given.expires}")
    return load_secret(given.secret, contract, expires_at=given.expires.timestamp())

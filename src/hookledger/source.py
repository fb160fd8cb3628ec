"""One source of an inbox: where its handlers, its lister and its view of the truth are declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Generic, Literal, TypeVar, overload

from .answer import Answer
from .clock import Seconds
from .effects.attempt import Stale
from .effects.model import is_async
from .effects.signatures import check_lists, check_takes, without_parentheses
from .errors import ConfigError, Skip
from .model import REPAIR, REPAIR_KEY, Claimed, check_stage_name
from .operate.reconcile.plan import Plan
from .providers.fetching.fetcher import ReadyFetcher
from .providers.fetching.settings import CurrentSettings, current_settings
from .providers.listing.base import Lister, ReconcileSettings
from .providers.listing.ready import lister as ready_made
from .receive.advice import advice
from .receive.answer_rule import answer_rule
from .receive.endpoint import Endpoint
from .receive.secrets import text_of
from .receive.settings import SourceSettings, naming
from .retry import RetryPolicy
from .schemas.typed import Body
from .states import KeyOrigin
from .work.current import Currents, Present
from .work.event import Event, Facts, SyncEvent
from .work.route import AsyncFunction, Handler, PlainFunction, Result, Routes, check_version_pattern

AnswerAsync = Callable[[Event[Any]], Awaitable[Answer]]
AnswerPlain = Callable[[SyncEvent[Any]], Answer]
AA = TypeVar("AA", bound=AnswerAsync)
AP = TypeVar("AP", bound=AnswerPlain)
A = TypeVar("A", bound=Callable[[Event[Any]], Awaitable[Result]])
P = TypeVar("P", bound=Callable[[SyncEvent[Any]], Result])
C = TypeVar("C", bound=Present)
L = TypeVar("L", bound=Lister)
B = TypeVar("B")
F = TypeVar("F", bound=Callable[[Any], Any])


class Source:
    """One configured endpoint, and where its handlers are declared."""

    delivered: bool = True
    """Whether a receiver serves it."""

    def __init__(self, endpoint: Endpoint, routes: Routes, currents: Currents) -> None:
        self.endpoint = endpoint
        self._routes = routes
        self._currents = currents
        self._lister: Lister | None = None
        self._reconcile = ReconcileSettings()
        self._repairs = False
        if self.settings.reconcile is not None:
            self._configure(self.settings.reconcile)
        if self.settings.current is not None:
            self._fetch(self.settings.current)

    @property
    def settings(self) -> SourceSettings:
        return self.endpoint.settings

    def advice(self) -> list[str]:
        """What is allowed and yet may surprise."""
        return advice(self.endpoint, reconciled=self.settings.reconciled or self._lister is not None)

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def _variable(self) -> str:
        """What an application may call it."""
        return self.name if self.name.isidentifier() else "source"

    @overload
    def on(
        self,
        *types: str,
        retry: RetryPolicy | None = None,
        timeout: float | str | None = None,
        batch: int = 1,
        transaction: bool = True,
        replay: Literal["converges"] | None = None,
        stale: Stale | None = None,
        stage: str | None = None,
        version: str | None = None,
        body: None = None,
    ) -> Registration: ...
    @overload
    def on(
        self,
        *types: str,
        retry: RetryPolicy | None = None,
        timeout: float | str | None = None,
        batch: int = 1,
        transaction: bool = True,
        replay: Literal["converges"] | None = None,
        stale: Stale | None = None,
        stage: str | None = None,
        version: str | None = None,
        body: type[B],
    ) -> TypedRegistration[B]: ...
    def on(
        self,
        *types: str,
        retry: RetryPolicy | None = None,
        timeout: float | str | None = None,
        batch: int = 1,
        transaction: bool = True,
        replay: Literal["converges"] | None = None,
        stale: Stale | None = None,
        stage: str | None = None,
        version: str | None = None,
        body: type[Any] | None = None,
    ) -> Registration | TypedRegistration[Any]:
        """Declare the handler of these event types; a type may end in `*`, and an exact one beats a pattern.

        `batch`: run up to so many events in one transaction. If one of them fails, each is run alone.
        `transaction=False`: for a handler that takes long. It has no `event.tx` and no `event.once`; each step it
        takes is an effect, and `event.renew()` proves that the event is still its own.
        `replay="converges"`: your word that whatever it does outside `event.once` and the effects may be repeated, as
        setting a status may and adding to a balance may not. Only then a preview calls a replay safe.
        `stale`: "skip" or "review": the first `event.newer` that finds a newer version ends the handler, rolls its
        transaction back and skips the event, or sends it to review. Calls that were made stay recorded.
        `stage`: one of several independent handlers of an event, with its own state, attempts, retry and replay. The
        stages of an event begin when it is processed; a handler without a stage runs first.
        `version`: only events of this version, as the source's option `version` reads it; it may end in `*`. An exact
        version beats a pattern, and the type decides before the version. A handler without it takes every event that
        no more exact one takes, also without a version. Events of a version that no handler takes wait.
        `body`: the type of `event.content`: a msgspec Struct, a dataclass, a TypedDict or a pydantic model. Content
        that does not fit becomes a dead letter before the handler runs.
        """
        example = f'@{self._variable}.on("invoice.paid")'
        if not types:
            raise ConfigError(f"source {self.name!r}: a handler names the event types it takes: write {example}")
        for kind in types:
            if not isinstance(kind, str):
                if callable(kind):
                    raise without_parentheses(kind, example)
                raise ConfigError(f"source {self.name!r}: an event type is text, not {kind!r}: write {example}")
        if REPAIR in types:
            raise ConfigError(f"source {self.name!r}: the handler of {REPAIR} is declared with @source.repair")
        if batch < 1:
            raise ConfigError(f"source {self.name!r}: batch is at least 1")
        if replay not in (None, "converges"):
            raise ConfigError(f'source {self.name!r}: replay is "converges" or nothing, not {replay!r}')
        if stale not in (None, "skip", "review"):
            raise ConfigError(f'source {self.name!r}: stale is "skip", "review" or nothing, not {stale!r}')
        if stale is not None and not transaction:
            raise ConfigError(f"source {self.name!r}: stale needs event.newer, which needs the handler's transaction")
        if stage is not None:
            with naming(self.name):
                check_stage_name(stage)
        if version is not None:
            with naming(self.name):
                check_version_pattern(version)
            if self.endpoint.version is None:
                raise ConfigError(
                    f"source {self.name!r} reads no versions, so no event would reach a handler with version=: "
                    'set its option version, such as version="contract" or version="header:X-Version"'
                )
        limit = None if timeout is None else Seconds(timeout)
        with naming(self.name):
            made = None if body is None else Body(body)

        def add(function: AsyncFunction | PlainFunction) -> None:
            check_takes(function, f"source {self.name!r}: handler", "event")
            handler = Handler(function, retry, limit, batch, transaction, replay, stale, made)
            for pattern in types:
                self._routes.add(self.name, pattern, handler, stage, version)

        return Registration(add) if body is None else TypedRegistration(add)

    def answer(
        self,
        *types: str,
        deadline: float | str,
        late: Answer | None = None,
        failed: Answer | None = None,
        concurrent: Literal["wait", 409, 429] = "wait",
        retry: RetryPolicy | None = None,
        timeout: float | str | None = None,
        stale: Stale | None = None,
    ) -> AnswerRegistration:
        """Declare the handler of these event types whose Answer is the response to the request.

        The event is recorded and claimed in one commit, handled, and its answer committed with the outcome and the
        handler's writes; only then it is sent, and again to each redelivery.

        `deadline`: how long after the whole request it is sent at the latest. Past it, the sender gets `late`, or 503
        without it, and the handler finishes; the next delivery gets its answer. A provider that does not retry needs
        `late`; Slack, Discord and Twilio have a form for it.
        `failed`: for an event that failed for good or waits for an operator; default: the provider's form of success.
        `concurrent`: what a delivery gets while another one of its event is handled: it waits for the same answer, or
        gets 409 or 429.
        `retry`, `timeout` and `stale` are those of `on`.
        """
        limit = None if timeout is None else Seconds(timeout)
        with naming(self.name):
            rule = answer_rule(self.endpoint, types, deadline, late, failed, concurrent)
            if stale not in (None, "skip", "review"):
                raise ConfigError(f'stale is "skip", "review" or nothing, not {stale!r}')

        def add(function: AnswerAsync | AnswerPlain) -> None:
            check_takes(function, f"source {self.name!r}: handler", "event")
            handler = Handler(function, retry, limit, stale=stale, answers=rule)
            for pattern in types:
                self._routes.add(self.name, pattern, handler)

        return AnswerRegistration(add)

    # ── the truth ──

    def current(self, function: C) -> C:
        """Declare how an object's present state is fetched, for `await event.current()`, where the setting `current`
        does not do it: a function of the event, async or plain, whose `event.object_id` says which. It should only
        read."""
        check_takes(function, f"source {self.name!r}: current", "event")
        self._currents.add(self.name, function)
        return function

    def repair(self, function: F) -> F:
        """Declare the handler that puts one object right from what is true now, for `hookledger reconcile --event`.

        Its event is no delivery: `event.object_id` is the object, `event.json` says who asked and which event it was
        about. Retries, effects and the transaction are those of any handler.
        """
        check_takes(function, f"source {self.name!r}: repair", "event")
        self._routes.add(self.name, REPAIR, Handler(_only_repairs(function)))
        self._repairs = True
        return function

    def lister(self, function: L) -> L:
        """Declare who lists what the provider sent: an async generator function of two moments, `since` and `until`,
        that yields `Listed` or `Changed`."""
        self.reconcile_with(function)
        return function

    def reconcile_with(self, lister: Lister, *, at: str | None = None, look_back: float | str | None = None) -> None:
        """Compare with this log; `at`: every day at this time, in UTC. What is not said stays as it is configured."""
        check_lists(lister, f"source {self.name!r}: lister")
        settings = self._reconcile
        self._keep(
            ReconcileSettings(
                at=settings.at if at is None else at,
                look_back=settings.look_back if look_back is None else Seconds(look_back),
            )
        )
        self._lister = lister

    def plan(self) -> Plan:
        """How it is reconciled."""
        return Plan(
            lister=self._lister,
            look_back=self._reconcile.look_back,
            at=self._reconcile.time,
            repairs=self._repairs,
            runs=self.settings.mode == "run",
        )

    def _fetch(self, settings: str | CurrentSettings) -> None:
        def read(place: str, what: str) -> str:
            return text_of(place, what)[0]

        with naming(self.name):
            fetcher = ReadyFetcher(self.name, self.endpoint.contract, current_settings(settings), read)
        self._currents.add(self.name, fetcher)

    def _configure(self, settings: ReconcileSettings) -> None:
        def token() -> str:
            if settings.token is None:
                raise ConfigError(f"source {self.name!r}: [sources.{self.name}.reconcile] has no token")
            return text_of(settings.token, "token")[0]

        with naming(self.name):
            self._lister = ready_made(self.endpoint.contract, settings, token)
        if self._lister is not None and settings.token is None:
            title = self.endpoint.contract.title
            raise ConfigError(f"source {self.name!r}: reconcile needs the token of {title}'s API")
        self._keep(settings)

    def _keep(self, settings: ReconcileSettings) -> None:
        """What an event's identity must outlive: a forgotten one would be imported again as new."""
        horizon = self.settings.horizon
        if horizon is not None and settings.look_back > horizon:
            raise ConfigError(
                f"source {self.name!r}: a comparison looks back {settings.look_back / 86400:g} days: the horizon "
                "must not be shorter"
            )
        self._reconcile = settings


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


class AnswerRegistration:
    """The decorator that `Source.answer` returns; its overloads tell async handlers from plain functions."""

    def __init__(self, add: Callable[[AnswerAsync | AnswerPlain], None]) -> None:
        self._add = add

    @overload
    def __call__(self, function: AA) -> AA: ...
    @overload
    def __call__(self, function: AP) -> AP: ...
    def __call__(self, function: AnswerAsync | AnswerPlain) -> AnswerAsync | AnswerPlain:
        self._add(function)
        return function


class TypedRegistration(Generic[B]):
    """The decorator that `Source.on(…, body=B)` returns: the handler's event has this content."""

    def __init__(self, add: Callable[[AsyncFunction | PlainFunction], None]) -> None:
        self._add = add

    @overload
    def __call__(
        self, function: Callable[[Event[Any, B]], Awaitable[Result]]
    ) -> Callable[[Event[Any, B]], Awaitable[Result]]: ...
    @overload
    def __call__(self, function: Callable[[SyncEvent[Any, B]], Result]) -> Callable[[SyncEvent[Any, B]], Result]: ...
    def __call__(self, function: Any) -> Any:
        self._add(function)
        return function


def is_repair(event: Facts | Claimed) -> bool:
    """Whether we made it: no key that comes from outside begins so with such an origin."""
    return event.key_origin is KeyOrigin.ARRIVAL and event.key.startswith(REPAIR_KEY)


def _only_repairs(function: F) -> F:
    """A provider may call its events what it likes, and some do not even sign the type."""

    def check(event: Facts) -> None:
        if not is_repair(event):
            raise Skip("the provider calls it a repair, and no operator asked for one")

    if is_async(function):

        @wraps(function)
        async def run(event: Event[Any]) -> Result:
            check(event)
            result: Result = await function(event)
            return result

        return run  # type: ignore[return-value]

    @wraps(function)
    def run_plainly(event: SyncEvent[Any]) -> Result:
        check(event)
        result: Result = function(event)
        return result

    return run_plainly  # type: ignore[return-value]

"""What one attempt asks of the ledger: `once`, `call`, `later` and `newer`, as `event` offers them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID

from ..errors import (
    BadArguments,
    CallInTransaction,
    ChangedArguments,
    ChangedVersion,
    ClaimLost,
    EffectBusy,
    ForgottenAwait,
    NeedsDecision,
    NoTransaction,
    Review,
    StaleReviewed,
    StaleSkipped,
)
from ..ids import identity
from ..ledger import MIDDLE, GuardAnswer, GuardRequest, Intent, Known
from ..model import Claimed, base_source
from ..observe import lines
from ..observe.lines import Line
from ..states import EffectKind, EffectState
from .known import check_arguments
from .model import Effect, effect_key, shown
from .pending import Pending
from .version import read_version

T = TypeVar("T")

Stale = Literal["skip", "review"]
"""What a stale guard makes of the whole event."""
_ENDS: dict[Stale, type[StaleSkipped | StaleReviewed]] = {"skip": StaleSkipped, "review": StaleReviewed}


class Rows(Protocol):
    """The effects and guards of the handler's transaction, or of a dry run."""

    @property
    def exclusive(self) -> bool: ...
    async def once(self, intent: Intent) -> bool: ...
    async def newer(self, request: GuardRequest) -> GuardAnswer: ...
    async def plan(self, intent: Intent) -> Known | None: ...
    async def other_stage(self, intent: Intent) -> str | None: ...
    async def is_same_event(self, one: UUID, other: UUID) -> bool: ...


class Caller(Protocol):
    """Performs an effect, or answers as if it had."""

    async def call(self, effect: Effect[Any, Any], intent: Intent, owns: Callable[[], bool]) -> Any: ...


class AttemptEffects:
    """`transaction`: whether the handler has one. `owns`: whether the event is still ours. `find`: an effect of the
    inbox by its name. `rank`: of the event's type. `stale`: what a stale guard makes of the event. `approved`: an
    operator let this run pass: a stale guard, or what another stage of the event did, does not end it, and a changed
    kind of version replaces the old one. `on_stale` is called for each stale answer. `traceparent`, `correlation_id`:
    of the attempt, for its effects. `dry`: nothing is logged as done.
    """

    def __init__(
        self,
        claimed: Claimed,
        tx: Rows,
        calls: Caller,
        find: Callable[[str], Effect[Any, Any] | None],
        owns: Callable[[], bool],
        *,
        transaction: bool,
        rank: int = MIDDLE,
        stale: Stale | None = None,
        approved: bool = False,
        on_stale: Callable[[], None] = lambda: None,
        traceparent: str | None = None,
        correlation_id: str | None = None,
        dry: bool = False,
    ) -> None:
        self._claimed = claimed
        self._tx = tx
        self._calls = calls
        self._find = find
        self._owns = owns
        self._transaction = transaction
        self._rank = rank
        self._stale = None if approved else stale
        self._approved = approved
        self._on_stale = on_stale
        self._traces: dict[str, Any] = {"traceparent": traceparent, "correlation_id": correlation_id}
        self._dry = dry
        self._ended: Exception | None = None
        """Why a guard ended the handler."""
        self.guarded: bool = False
        """Whether it has asked a guard."""
        self._planned: dict[bytes, Intent] = {}
        self._waiting: dict[int, Pending[Any]] = {}
        """What was asked for, and did not come to its end."""
        self._over = False

    def asked(self, what: str, run: Callable[[], Coroutine[Any, Any, T]]) -> Pending[T]:
        return Pending(what, run, self._waiting)

    @property
    def _source(self) -> str:
        """The scope of effects and guards: stages share it."""
        return base_source(self._claimed.source)

    @property
    def planned(self) -> bool:
        """Whether the outbox has something to do once this attempt is committed."""
        return bool(self._planned)

    async def finish(self) -> None:
        """The handler has returned: the last moment to find what it forgot, and to plan what could not be before."""
        self._check_ended()
        if self._waiting:
            forgotten = ", ".join(sorted({asked.what for asked in self._waiting.values()}))
            raise ForgottenAwait(f"the handler did not await {forgotten} to the end: it would not have happened")
        self._over = True
        if not self._transaction:
            for intent in self._planned.values():
                await self._plan(intent)

    def _still(self) -> None:
        if self._over:
            raise ClaimLost("event used after its handler returned")
        self._check_ended()

    def _check_ended(self) -> None:
        """Raise again what a handler caught that a guard had ended."""
        if self._ended is not None:
            raise self._ended

    async def once(self, name: str, key: object) -> bool:
        """True the first time, in this transaction; false ever after."""
        self._still()
        if not self._transaction:
            raise NoTransaction(
                "event.once guards writes in the handler's transaction, and this handler has none: make the step an "
                "effect with event.call, or drop transaction=False"
            )
        if not isinstance(name, str) or not name or len(name) > 255:
            raise BadArguments("event.once takes a name of at most 255 characters, and a key")
        text, name = effect_key(key), effect_key(name)
        ident = identity(self._source, b"once", name.encode(), text.encode())
        intent = self._intent(EffectKind.ONCE, ident, shown(name), text)
        first = await self._tx.once(intent)
        self._tell(lines.EFFECT_MADE if first else lines.EFFECT_REUSED, intent)
        if not first and self._claimed.stage is not None and not self._approved:
            await self._check_stages(intent, self._claimed.stage)
        return first

    async def _check_stages(self, intent: Intent, stage: str) -> None:
        """Raise Review if another stage of the same event did this: what follows would silently be left out."""
        other = await self._tx.other_stage(intent)
        if other is not None:
            by = f"stage {other!r}" if other else "the handler without a stage"
            self._ended = Review(
                f"event.once({intent.name!r}, {intent.key!r}) of stage {stage!r} was done by {by} of the same event: "
                "each needs its own name or key"
            )
            raise self._ended

    async def newer(self, name: str, key: object, version: object) -> bool:
        """Whether the event comes after the one that set the guard, or is that one; then the guard is set to it."""
        self._still()
        if not self._transaction:
            raise NoTransaction(
                "event.newer guards writes in the handler's transaction, and this handler has none: drop "
                "transaction=False, or write in another handler"
            )
        request = self._request(name, key, version)
        self.guarded = True
        try:
            answer = await self._tx.newer(request)
        except ChangedVersion as error:
            self._ended = error
            raise
        if self._claimed.stage is not None and answer.other_event_id is not None and not self._approved:
            await self._check_guard(request, answer.other_event_id)
        if not answer.applied:
            self._on_stale()
        if not answer.applied and self._stale is not None:
            self._ended = _ENDS[self._stale](answer.words, answer=answer)
            raise self._ended
        return answer.applied

    async def _check_guard(self, request: GuardRequest, other: UUID) -> None:
        """Raise Review if another stage of the same event set this guard before, whichever of the two is to win: it
        would depend on which of them runs first."""
        if other != request.event_id and await self._tx.is_same_event(request.event_id, other):
            self._ended = Review(
                f"event.newer({request.name!r}, {request.key!r}) of stage {self._claimed.stage!r} was set by another "
                "stage of the same event: each needs its own name"
            )
            raise self._ended

    def _request(self, name: object, key: object, version: object) -> GuardRequest:
        if not isinstance(name, str) or not name.strip() or len(name) > 255:
            raise BadArguments("event.newer takes a name of at most 255 characters, a key and a version")
        name, text = effect_key(name, "a guard's name"), effect_key(key, "a guard's key")
        claimed, read = self._claimed, read_version(version)
        return GuardRequest(
            identity(self._source, b"guard", name.encode(), text.encode()),
            self._source,
            shown(name),
            shown(text),
            claimed.id,
            claimed.key,
            claimed.claim,
            read.text,
            read.kind,
            read.position,
            self._rank,
            claimed.received_at,
            self._approved,
        )

    async def outside(self, asking: Coroutine[Any, Any, T]) -> T:
        """Await a request to a remote, outside SQLite's write lock."""
        if self._over or self._ended is not None or self._tx.exclusive:
            asking.close()
        self._still()
        if self._tx.exclusive:
            raise CallInTransaction(
                "event.current() while event.tx is open would hold SQLite's write lock: ask before the statements"
            )
        return await asking

    async def call(self, effect: Effect[Any, Any], key: object, args: Any, kwargs: Any) -> Any:
        """The result, of the call made now or of the one made before."""
        self._still()
        if self._tx.exclusive:
            raise CallInTransaction(
                f"event.call({effect.name}) while event.tx is open would hold SQLite's write lock: make the call "
                "before the first statement, or use event.later, or declare the handler with transaction=False"
            )
        intent = self._intent_of(EffectKind.CALL, effect, key, args, kwargs)
        if intent.identity in self._planned:
            raise BadArguments(f"effect {effect.name} {intent.key!r} was given to event.later in this very handler")
        try:
            return await self._calls.call(effect, intent, self._owns)
        except ChangedArguments:
            effect.counts.conflicts += 1
            raise

    async def later(self, effect: Effect[Any, Any], key: object, args: Any, kwargs: Any) -> None:
        """Planned with this transaction; performed after its commit."""
        self._still()
        intent = self._intent_of(EffectKind.LATER, effect, key, args, kwargs)
        if self._transaction:
            await self._plan(intent)
        self._planned[intent.identity] = intent

    async def _plan(self, intent: Intent) -> None:
        known = await self._tx.plan(intent)
        self._tell(lines.EFFECT_PLANNED if known is None else lines.EFFECT_REUSED, intent)
        if known is None:
            return
        try:
            check_arguments(intent, known)
        except ChangedArguments:
            if effect := self._find(intent.name):
                effect.counts.conflicts += 1
            raise
        label = f"effect {intent.name} {intent.key!r}"
        # The outbox performs its own. An earlier `event.call` has no worker once its handler is gone.
        if known.kind is EffectKind.CALL and known.state is EffectState.STARTED:
            raise EffectBusy(f"{label} is in progress")
        if known.kind is EffectKind.CALL and known.state is EffectState.UNKNOWN:
            words = f"{label} may have happened: find out, then hookledger resolve"
            raise NeedsDecision(words, identity=intent.identity)

    def _intent_of(self, kind: EffectKind, effect: Effect[Any, Any], key: object, args: Any, kwargs: Any) -> Intent:
        if not isinstance(effect, Effect):
            raise BadArguments(f"{effect!r} is not an effect: declare it with @inbox.effect(repeat=…)")
        if self._find(effect.name) is not effect:
            raise BadArguments(f"effect {effect.name!r} belongs to another inbox: declare it with this one")
        text = effect_key(key)
        arguments, digest, entity = effect.keep(args, kwargs)
        source = self._source
        scope = "" if effect.policy.shared else source
        return self._intent(
            kind,
            effect.identity(source, text),
            effect.name,
            text,
            arguments=arguments,
            arguments_digest=digest,
            repeat=effect.policy.repeat,
            downstream=effect.policy.downstream,
            lane=None if entity is None else shown(f"{scope}/{entity}"),
            lease=effect.policy.lease,
        )

    def _intent(self, kind: EffectKind, ident: bytes, name: str, key: str, **more: Any) -> Intent:
        claimed = self._claimed
        facts = self._traces | {"event_key": claimed.key} | more
        return Intent(ident, kind, self._source, name, shown(key), claimed.id, claimed.claim, **facts)

    def _tell(self, line: Line, intent: Intent) -> None:
        if not self._dry:
            lines.tell(line, effect=intent.name, effect_key=intent.key, kind=intent.kind.value)

"""The event as a handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec
from uuid import UUID

from ..effects.attempt import AttemptEffects
from ..effects.model import Effect
from ..effects.pending import Pending
from ..effects.version import AnyVersion
from ..errors import NoTicket, NoTransaction
from ..model import Claimed, base_source, unpack_headers
from ..states import KeyOrigin
from ..store.ops.reviews import Approval
from ..store.protocol import Statements
from .statements import SyncStatements, wait_in_thread

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker has it; only there a TypeVar has a default

    from .check import Checked

    Tx = TypeVar("Tx", default=Statements)
    SyncTx = TypeVar("SyncTx", default=SyncStatements)
    Body = TypeVar("Body", default=Any)
else:
    from typing import TypeVar

    Tx = TypeVar("Tx")
    SyncTx = TypeVar("SyncTx")
    Body = TypeVar("Body")

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Renew = Callable[[], Coroutine[Any, Any, None]]
Current = Callable[["Facts"], Coroutine[Any, Any, "CurrentState"]]


class CurrentState(NamedTuple):
    """What was fetched, and the ticket that was drawn before."""

    state: Any
    ticket: int


class Facts:
    """What is known of the event, the same for async and plain handlers."""

    _ticket: int | None = None

    def __init__(
        self,
        claimed: Claimed,
        read: Callable[[Claimed], Any],
        approved: Approval | None = None,
        checked: Checked | None = None,
    ) -> None:
        self._claimed = claimed
        self._read = read
        self._approved = approved
        self._checked = checked
        if checked is not None:
            self.__dict__["json"] = checked.json  # decoded already

    def __repr__(self) -> str:
        return f"<event {self.id} {self._claimed.source} {self.type} {self.key!r}>"

    @property
    def id(self) -> UUID:
        """Ours; the same through every retry and replay."""
        return self._claimed.id

    @property
    def source(self) -> str:
        return base_source(self._claimed.source)

    @property
    def stage(self) -> str | None:
        """The stage that this handler is declared for; None: it has none."""
        return self._claimed.stage

    @property
    def type(self) -> str:
        return self._claimed.type

    @property
    def version(self) -> str:
        """The version that the source's rule `version` read from the first delivery; empty: it has none."""
        return self._claimed.version

    @property
    def key(self) -> str:
        """What makes two deliveries this event."""
        return self._claimed.key

    @property
    def key_origin(self) -> KeyOrigin:
        return self._claimed.key_origin

    @property
    def provider_id(self) -> str | None:
        """The provider's id of the event."""
        return self._claimed.provider_id

    @property
    def object_id(self) -> str | None:
        """The provider's id of what the event is about."""
        return self._claimed.object_id

    @property
    def occurred_at(self) -> datetime | None:
        """When it happened, by the provider's word."""
        return self._claimed.occurred_at

    @property
    def received_at(self) -> datetime:
        """When its first delivery was recorded."""
        return self._claimed.received_at

    @property
    def run(self) -> int:
        """1 for the first processing, one more for each replay or approval."""
        return self._claimed.run

    @property
    def attempt(self) -> int:
        """1 for the first try of this run."""
        return self._claimed.attempts

    @property
    def approved(self) -> Approval | None:
        """Who let the event pass its review, when and why; None unless an operator approved this very run.

        `if not event.approved: raise Review(…)` asks for it. It holds through retries and crashes of the run. The
        next run has none, and neither has this one after another review.
        """
        return self._approved

    @property
    def ticket(self) -> int:
        """The ticket of the last `current()` in this attempt: the version of the state that it returned.

        The database gives out tickets, each higher than all before it, whichever worker asks. This one was drawn
        before the fetch, so a state with a higher ticket was fetched after this event arrived and includes what the
        event is about: the higher ticket may win, `event.newer(name, key, event.ticket)`. Drawn after the fetch, it
        could mark an old state as the newest. Raises NoTicket before `current()`, and after one that failed.
        """
        if self._ticket is None:
            raise NoTicket()
        return self._ticket

    async def _fetched(self, current: Current) -> Any:
        self._ticket = None
        found = await current(self)
        self._ticket = found.ticket
        return found.state

    @property
    def body(self) -> bytes:
        """The whole request body, exactly as received."""
        return self._claimed.body

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        """The request's headers, names in lower case, less the secrets presented in them."""
        return unpack_headers(self._claimed.headers)

    @cached_property
    def json(self) -> Any:
        """The event's content, parsed; its own part where the request held several events."""
        return self._read(self._claimed)


class Event(Facts, Generic[Tx, Body]):
    """For async handlers. `Event[AsyncSession]` where an adapter hands out sessions; `Event[Statements, Invoice]`
    where the handler is declared with `body=Invoice`."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)  # `Event[AsyncSession]`: here a TypeVar has no default

    def __init__(
        self,
        claimed: Claimed,
        read: Callable[[Claimed], Any],
        tx: Tx | None,
        effects: AttemptEffects,
        renew: Renew,
        current: Current,
        approved: Approval | None = None,
        checked: Checked | None = None,
    ) -> None:
        super().__init__(claimed, read, approved, checked)
        self._tx = tx
        self._effects = effects
        self._renew = renew
        self._current = current

    @property
    def content(self) -> Body:
        """The event's content as the `body=` type of its handler; without one as `json` has it."""
        content: Body = self.json if self._checked is None else self._checked.content
        return content

    @property
    def tx(self) -> Tx:
        """The transaction that the outcome is committed with. Begun at its first statement."""
        if self._tx is None:
            raise NoTransaction()
        return self._tx

    def once(self, name: str, key: str | int | UUID) -> Pending[bool]:
        """Whether this is the first time, for this or any other event of the source; in the handler's transaction.

        What follows a true answer is done once, whatever crashes and however often the event is replayed, as far as
        it is written in `event.tx`.
        """
        return self._effects.asked("event.once(…)", lambda: self._effects.once(name, key))

    def newer(self, name: str, key: str | int | UUID, version: AnyVersion | None) -> Pending[bool]:
        """Whether this event may write one projection of one entity: no newer version was applied; in the handler's
        transaction.

        `name` and `key`: the projection and the entity, such as "subscription" and its id. `version`: a number, an
        aware datetime, ISO 8601 text, or a tuple of these, compared by value and always of one kind under one name;
        None, where an event has none, is an error. Events with the same version are ordered by the rank of their
        types, then by arrival. A true answer sets the guard, with this transaction; the event that set it may always
        write again. `once`, `call` and `later` do not look at guards.
        """
        return self._effects.asked("event.newer(…)", lambda: self._effects.newer(name, key, version))

    def call(
        self, effect: Effect[P, R], key: str | int | UUID, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Perform the effect now, and give its result; if it is done already, the result it had.

        The call is recorded before and after it is made, outside the handler's transaction: it is never made blindly
        a second time. Raises UnknownOutcome or NeedsDecision if its outcome is unknown.
        """
        return self._effects.asked("event.call(…)", lambda: self._effects.call(effect, key, args, kwargs))

    def later(
        self, effect: Effect[P, R], key: str | int | UUID, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, None]:
        """Perform the effect after the handler's commit: planned in its transaction, or not at all."""
        return self._effects.asked("event.later(…)", lambda: self._effects.later(effect, key, args, kwargs))

    def current(self) -> Coroutine[Any, Any, Any]:
        """What the object is now, by the source's ready-made fetcher or `current` function; fetched each time.

        A ready-made fetcher returns None if the object is gone. The state may be newer than the event, and older than
        one that another handler has fetched and written since: write it only if `event.newer(name, key,
        event.ticket)`. On SQLite ask before the first statement of `event.tx`, which stops every other write.
        """
        return self._effects.asked("event.current()", lambda: self._effects.outside(self._fetched(self._current)))

    async def renew(self) -> None:
        """Prove that the event is still ours, and renew the lease; raises ClaimLost when it is not.

        For a long handler, before it does what cannot be undone. On SQLite not
        inside `event.tx`: the lease and the transaction need the same lock.
        """
        await self._renew()


class SyncEvent(Facts, Generic[SyncTx, Body]):
    """For plain functions. `SyncEvent[Session]` where an adapter hands out sessions; `SyncEvent[SyncStatements,
    Invoice]` where the handler is declared with `body=Invoice`."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self,
        claimed: Claimed,
        read: Callable[[Claimed], Any],
        tx: SyncTx | None,
        effects: AttemptEffects,
        renew: Renew,
        current: Current,
        loop: asyncio.AbstractEventLoop,
        approved: Approval | None = None,
        checked: Checked | None = None,
    ) -> None:
        super().__init__(claimed, read, approved, checked)
        self._tx = tx
        self._effects = effects
        self._renew = renew
        self._current = current
        self._loop = loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return wait_in_thread(work, self._loop)

    @property
    def content(self) -> Body:
        """The event's content as the `body=` type of its handler; without one as `json` has it."""
        content: Body = self.json if self._checked is None else self._checked.content
        return content

    @property
    def tx(self) -> SyncTx:
        """The transaction that the outcome is committed with. Begun at its first statement."""
        if self._tx is None:
            raise NoTransaction()
        return self._tx

    def once(self, name: str, key: str | int | UUID) -> bool:
        """Whether this is the first time; see `Event.once`."""
        return self._wait(self._effects.once(name, key))

    def newer(self, name: str, key: str | int | UUID, version: AnyVersion | None) -> bool:
        """Whether this event may write one projection of one entity; see `Event.newer`."""
        return self._wait(self._effects.newer(name, key, version))

    def call(self, effect: Effect[P, R], key: str | int | UUID, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Perform the effect now, or give the result it had; see `Event.call`."""
        result: R = self._wait(self._effects.call(effect, key, args, kwargs))
        return result

    def later(self, effect: Effect[P, R], key: str | int | UUID, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Perform the effect after the commit; see `Event.later`."""
        self._wait(self._effects.later(effect, key, args, kwargs))

    def current(self) -> Any:
        """What the object is now; see `Event.current`."""
        return self._wait(self._effects.outside(self._fetched(self._current)))

    def renew(self) -> None:
        """Prove that the event is still ours, and renew the lease; raises ClaimLost when it is not."""
        self._wait(self._renew())

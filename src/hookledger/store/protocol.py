"""What a store must do. Reading this file top to bottom is reading the state machine.

Times: the store's own clock decides. Callers pass durations, never instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from ..filters import EVERYTHING, Filter
from ..ledger import Effect, Intent, Known
from ..model import (
    Arrival,
    Claimed,
    EventRow,
    Expired,
    Health,
    History,
    Kind,
    Outcome,
    Recorded,
    Rescue,
    Waiting,
    WorkerInfo,
)
from ..states import State
from .ledger import Ledger
from .ops.cases import Cases
from .ops.circuits import Circuits
from .ops.consistency import Books
from .ops.erasure import Erasure
from .ops.jobs import Jobs
from .ops.pauses import Pauses
from .ops.pruning import Pruning
from .ops.published import PublishedKeys
from .ops.reconciling import Reconciling
from .ops.restores import Restores
from .pulse import Pulse
from .search import Search
from .trouble import Trouble


class Statements(Protocol):
    """What a handler sees of its transaction by default, begun at its first statement.

    Statements are in the dialect of the database; parameters are positional.
    """

    async def execute(self, sql: str, *args: Any) -> Any: ...
    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...
    async def fetchrow(self, sql: str, *args: Any) -> Any | None: ...
    async def fetchval(self, sql: str, *args: Any) -> Any: ...


class Transaction(Protocol):
    """One handler's transaction: its own writes, its effects and the outcome, or nothing of them."""

    @property
    def tx(self) -> Any:
        """What the handler gets as `event.tx`: `Statements`, or whatever its adapter hands out."""
        ...

    @property
    def begun(self) -> bool:
        """Whether anything was asked of it."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether it is begun and stops every other write meanwhile, as on SQLite."""
        ...

    async def begin(self) -> None:
        """Begin now, if what the handler gets cannot begin by itself at its first statement."""
        ...

    async def once(self, intent: Intent) -> bool:
        """absent → done; False when it is known already. Waits for another transaction that is doing the same."""
        ...

    async def plan(self, intent: Intent) -> Known | None:
        """absent → planned, with this transaction; what is known, when it is known already.

        A call of a handler with the same arguments that is planned or failed becomes an outbox row: planned, too.
        """
        ...

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Write the outcomes as the last statement, then commit.

        Raises ClaimLost when any claim is no longer ours, HandlerCommitted when the handler ended the transaction
        itself; then nothing of it is kept that the handler did not commit on its own.
        """
        ...

    async def rollback(self, *, abandoned: bool = False) -> bool:
        """Undo everything; returns whether the handler had ended the transaction itself. Harmless if none was begun.

        `abandoned`: the handler is a thread that overran its time-out and may still be using `tx`. Its connection
        is broken off, so that nothing it does from now on can count.
        """
        ...

    def explain(self, error: Exception) -> Exception:
        """This error of the handler or the commit; or one that names the setting by which the transaction ended."""
        ...


class Adapter(Protocol):
    """One handler's transaction in the user's own library, on PostgreSQL. Used once."""

    @property
    def tx(self) -> Any:
        """What the handler gets as `event.tx`, once begun."""
        ...

    async def begin(self, settings: str) -> Sequence[Any]:
        """Open the transaction and run `settings`, one statement without parameters, as the first in it; its rows."""
        ...

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        """Run one statement with `$1`-style parameters in the transaction; its rows answer to positions."""
        ...

    async def flush(self) -> None:
        """Write what the library still holds back, so that the outcome is the last statement."""
        ...

    async def commit(self) -> None:
        """Commit, and give the connection back."""
        ...

    async def rollback(self) -> None:
        """Undo, and give the connection back. Nobody is using `tx` any more."""
        ...

    async def discard(self) -> None:
        """Break the connection off, if there is one, whoever is using it; the server rolls back."""
        ...


class Transactions(Protocol):
    """Makes the adapters to the user's own library: one for each handler's transaction."""

    @property
    def plain(self) -> bool:
        """For plain functions, which use their transaction in a thread; or else for async handlers."""
        ...

    @property
    def size(self) -> int | None:
        """How many transactions can be open at once; None where nothing limits them."""

    def adapter(self) -> Adapter:
        """For one handler, not begun yet."""
        ...


class Store(Protocol):
    """One database."""

    # ── life ──
    async def open(self, *, handlers: int = 0, apart: bool = False) -> None:
        """Connect. `handlers` is how many handler transactions may be open at once; `apart`, that arrivals are
        recorded outside this process."""
        ...

    async def close(self) -> None: ...

    def migrations(self) -> list[tuple[str, str]]:
        """Name and SQL of every migration, for people who run them by hand."""
        ...

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the migrations applied."""
        ...

    async def health(self) -> Health:
        """Prove that the database can be written, and read its schema version and clock."""
        ...

    # ── intake ──
    queues: bool
    """Whether arrivals that are to be recorded can wait there for their turn, and are not in the way of those before
    them."""

    async def know_sources(self, names: Sequence[str]) -> None:
        """Remember the sources that a receiver serves, so that keys can be looked for in each."""
        ...

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        """Record what is plainly new the short way, durably; None for whatever `record` must look at.

        Each arrival is recorded whole or not touched. May answer None to all.
        """
        ...

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        """Record every item of every arrival, all in one durable commit.

        Never updates or locks an existing event. Raises Unavailable when nothing
        was recorded or when that is not known, BadData when a row is refused.
        """
        ...

    # ── work ──
    async def waiting(self) -> list[Waiting]:
        """Which kinds have events in the queue, the longest due first; nothing of what is paused."""
        ...

    async def claim(self, worker: str, kinds: Sequence[Kind], limit: int, lease: float) -> list[Claimed]:
        """pending, retrying → processing, for up to `limit` due events, the longest due first.

        Leaves out what is paused, and events that crashed twice: those are for `claim_alone`.
        """
        ...

    async def claim_alone(self, worker: str, kinds: Sequence[Kind], lease: float) -> list[Claimed]:
        """The same for at most one event that crashed twice or more."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The effects that are calls."""

    @property
    def cases(self) -> Cases:
        """Requests, deliveries and keys that did not plainly become events."""

    @property
    def books(self) -> Books:
        """Whether everything is accounted for."""

    @property
    def search(self) -> Search:
        """Finding events among many."""

    @property
    def trouble(self) -> Trouble:
        """What an operator must see, and effects by state."""

    @property
    def jobs(self) -> Jobs:
        """Bulk work."""

    @property
    def circuits(self) -> Circuits: ...

    @property
    def pauses(self) -> Pauses:
        """What workers leave alone for now."""

    @property
    def restores(self) -> Restores:
        """Restores from a backup."""
        ...

    @property
    def reconciling(self) -> Reconciling:
        """Comparisons with a provider's log, and repairs."""

    @property
    def pruning(self) -> Pruning:
        """What retention takes away."""

    @property
    def published(self) -> PublishedKeys:
        """Keys that providers publish."""

    @property
    def erasure(self) -> Erasure:
        """What is forgotten on purpose."""

    def transaction(self, adapter: Adapter | None = None) -> Transaction:
        """A transaction for one handler, not begun yet; in the user's own library if there is an adapter to it."""
        ...

    async def check(self, transactions: Transactions) -> None:
        """Prove at start-up that the user's own transactions hold, and reach this very database; else ConfigError."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        """processing → wherever each outcome says; returns the ids that were still ours."""
        ...

    async def held(self, worker: str) -> list[tuple[UUID, int]]:
        """Id and claim of every event that this worker holds, whether it knows or not."""
        ...

    async def pulse(self, worker: str, handles: Sequence[tuple[str, str]], patience: float) -> Pulse:
        """A heartbeat connection for the running loop; a beat waits at most `patience` seconds for anyone."""
        ...

    async def expired(self, limit: int) -> list[Expired]:
        """Events whose lease has run out."""
        ...

    async def rescue(self, rescues: Sequence[Rescue]) -> int:
        """processing → retrying or failed, with a new fence; returns how many were still expired."""
        ...

    async def skip_unhandled(self, kind: Kind, older_than: float, limit: int) -> int:
        """pending → skipped, for events that nobody handled for so many seconds."""
        ...

    async def renew(self, event_id: UUID, claim: int, lease: float) -> bool:
        """Renew one lease; whether the claim was still ours."""
        ...

    async def register(self, worker: str, handles: Sequence[tuple[str, str]]) -> None:
        """Make a worker and what it handles known to the others."""

    async def workers(self) -> list[WorkerInfo]:
        """Every worker seen, living or not."""

    async def leave(self, worker: str) -> None:
        """The worker has stopped. What it handled stays known, as for one that died."""

    async def forget_workers(self, unseen_for: float) -> None:
        """Drop workers that were not seen for so many seconds."""

    # ── operate ──
    async def retry(
        self, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int | None = None
    ) -> None:
        """failed, retrying, needs_review → pending, audited, with a fresh budget in the same run.

        Raises WrongState as `replay` does.
        """
        ...

    async def replay(
        self,
        event_id: UUID,
        expected: State,
        actor: str,
        reason: str,
        *,
        seen: int | None = None,
        repeat: Sequence[Effect] = (),
    ) -> int:
        """processed, skipped, failed, discarded, needs_review → pending, audited, as a new run; returns its number.

        `seen`: the claim number that the decision was made on; an event that went round since then is refused,
        though it be in the expected state again. `repeat`: done or cancelled effects of this event that are to be
        done once more when the run asks for them, each audited by itself, in the same transaction.

        Raises WrongState, which says what the event is now and what was done to it last; then nothing is changed.
        """
        ...

    async def discard(
        self, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int | None = None
    ) -> None:
        """pending, retrying, failed, needs_review → discarded, audited. Its effects stay as they are.

        Raises WrongState as `replay` does.
        """
        ...

    async def find(self, reference: str) -> list[UUID]:
        """Events with this id or beginning of an id, or with this key in a known source; at most ten.

        Those that were admitted have keys of their own: `KEY~2`.
        """
        ...

    async def history(self, event_id: UUID) -> History | None:
        """Everything known of one event."""
        ...

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        """`search.events`: the newest first, from before `before`; fewer than `limit` means that that is all."""
        ...

    async def count(self, where: Filter) -> int:
        """`search.count`, within its usual time."""
        ...

    async def counts(self) -> dict[State, int]:
        """How many events are in each state."""
        ...

    async def delivery_counts(self) -> dict[str, int]:
        """How many deliveries had each outcome."""
        ...

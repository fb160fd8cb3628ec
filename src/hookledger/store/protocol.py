"""What a store does. Operations that are not on the hot path are in `ops/`, once for every store.

Times: the store's own clock decides. Callers pass durations, never instants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from ..clock import Clock
from ..ledger import GuardAnswer, GuardRequest, Intent, Known
from ..model import Arrival, Claimed, Handled, Kind, Outcome, Recorded, Share, Waiting
from .history import Health
from .ledger import Ledger
from .ops.alert_looks import AlertLooks
from .ops.alert_messages import AlertMessages
from .ops.alerts import Alerts
from .ops.answers import Answers, Claim
from .ops.attention import Attention
from .ops.audit import AuditLog
from .ops.checks import Checks
from .ops.circuits import Circuits
from .ops.consistency import Consistency
from .ops.copy import Copies
from .ops.decisions import Decisions
from .ops.entities import Entities
from .ops.erasure import Erasure
from .ops.events import Events
from .ops.guards import Guards
from .ops.imported_keys import ImportedKeys
from .ops.jobs import Jobs
from .ops.key_audit import KeyAudits
from .ops.pauses import Pauses
from .ops.pruning import Pruning
from .ops.published import PublishedKeys
from .ops.quarantine import Quarantine
from .ops.rates import Rates
from .ops.reconciling import Reconciling
from .ops.rejections import Rejections
from .ops.restores import Restores
from .ops.reviews import Reviews
from .ops.schema_fields import SchemaFields
from .ops.search import Search
from .ops.stages import Stages
from .ops.tickets import Tickets
from .ops.workers import Workers
from .session import Database


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

    @property
    def begun(self) -> bool:
        """Whether anything was asked of it."""

    @property
    def exclusive(self) -> bool:
        """Whether it is begun and blocks all other writes, as on SQLite."""

    async def begin(self) -> None:
        """Begin now, if `tx` cannot begin at its first statement."""

    async def once(self, intent: Intent) -> bool:
        """absent → done; False when it is known already. Waits for another transaction that is doing the same."""

    async def newer(self, request: GuardRequest) -> GuardAnswer:
        """Set the guard if the event comes after the one that set it, or is that one; else the event is stale. Either
        is recorded with this transaction. Waits for another transaction that has asked the same guard, and sees what
        that one applied. Raises ChangedVersion, and records nothing, for a version of another kind."""

    async def note_stale(self, answer: GuardAnswer) -> None:
        """Record a stale answer of a transaction that was rolled back."""

    async def other_stage(self, intent: Intent) -> str | None:
        """The other stage of the same event that did this effect; "" if that was the event's own handler."""

    async def is_same_event(self, one: UUID, other: UUID) -> bool:
        """Whether `one` is a stage of the event `other`, or both are stages of one event."""

    async def plan(self, intent: Intent) -> Known | None:
        """absent → planned, with this transaction; what is known, when it is known already.

        A call of a handler with the same arguments that is planned or failed becomes an outbox row: planned, too.
        """

    async def known(self, intent: Intent) -> Known | None:
        """What the ledger has of this effect. Raises HandlerCommitted as `once` and `plan` do."""

    async def check(self) -> None:
        """Raise what a commit now would raise: write what is held back, and check deferred constraints."""

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Write the outcomes, their stages and answers last, then commit.

        Raises ClaimLost when any claim is no longer ours, HandlerCommitted when the handler ended the transaction
        itself; then nothing of it is kept that the handler did not commit on its own.
        """

    async def rollback(self, *, abandoned: bool = False) -> bool:
        """Undo everything; returns whether the handler had ended the transaction itself. Harmless if none was begun.

        `abandoned`: the handler is a thread that exceeded its timeout and may still use `tx`. Its connection is
        closed, so that its later statements have no effect.
        """

    def explain(self, error: Exception) -> Exception:
        """This error of the handler or the commit; or one that names the setting by which the transaction ended."""


class Adapter(Protocol):
    """One handler's transaction in the user's own library, on PostgreSQL. Used once."""

    @property
    def tx(self) -> Any:
        """What the handler gets as `event.tx`, once begun."""

    async def begin(self, settings: str) -> Sequence[Any]:
        """Open the transaction and run `settings`, one statement without parameters, as the first in it; its rows."""

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        """Run one statement with `$1`-style parameters in the transaction; its rows answer to positions."""

    async def flush(self) -> None:
        """Write what the library still holds back, so that the outcome is the last statement."""

    async def commit(self) -> None:
        """Commit, and release the connection."""

    async def rollback(self) -> None:
        """Roll back, and release the connection. The handler no longer uses `tx`."""

    async def discard(self) -> None:
        """Close the connection, if there is one, even while it is in use; the server rolls back."""


class Transactions(Protocol):
    """Makes the adapters to the user's own library: one for each handler's transaction."""

    @property
    def plain(self) -> bool:
        """For plain functions, which use their transaction in a thread; or else for async handlers."""

    @property
    def size(self) -> int | None:
        """How many transactions can be open concurrently; None: unlimited."""

    def adapter(self) -> Adapter:
        """For one handler, not begun yet."""


class Heartbeat(Protocol):
    """A separate connection that renews leases, used by the heartbeat's thread."""

    async def beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        """Register the worker, if it is one, and renew these leases; returns the ids that are still ours."""

    async def close(self) -> None: ...


class Store(Events, Workers, Decisions, ABC):
    """One database. Each database implements the abstract methods: the hot path, and what its driver does."""

    copies: Copies
    """The copy of this inbox to another database, over the tables as the dialect reads and writes them."""

    def __init__(  # noqa: PLR0915 - one line for each subject
        self, database: Database, clock: Clock, ledger: Ledger, jobs: Jobs, calls: Database
    ) -> None:
        """`calls`: where a call that a handler waits for may need an operation."""
        super().__init__(database)
        self.ledger: Ledger = ledger
        """The effects that are calls."""
        self.search: Search = Search(database, clock)
        """Finding events among many."""
        self.audit: AuditLog = AuditLog(database, clock)
        """What operators did."""
        self.attention: Attention = Attention(database)
        """What an operator must see, and effects by state."""
        self.rejections: Rejections = Rejections(database)
        """Requests that were rejected."""
        self.quarantine: Quarantine = Quarantine(database)
        """Deliveries that an operator can make events of."""
        self.alerts: Alerts = Alerts(database)
        """Marks for an operator."""
        self.alert_looks: AlertLooks = AlertLooks(database)
        """What people are to be told,"""
        self.alert_messages: AlertMessages = AlertMessages(database)
        """and what they were told."""
        self.imported_keys: ImportedKeys = ImportedKeys(database)
        """Keys whose events were processed elsewhere."""
        self.key_audits: KeyAudits = KeyAudits(database)
        """What the keys of a source look like."""
        self.consistency: Consistency = Consistency(database)
        """Whether everything is accounted for."""
        self.checks: Checks = Checks(database)
        """Consistency checks in pieces, and their results."""
        self.jobs: Jobs = jobs
        """Bulk work."""
        self.guards: Guards = Guards(database)
        """The newest version applied to each projection of an entity."""
        self.circuits: Circuits = Circuits(calls)
        self.tickets: Tickets = Tickets(calls)
        """The versions of what handlers fetch."""
        self.pauses: Pauses = Pauses(database)
        """What workers leave alone for now."""
        self.restores: Restores = Restores(database, ledger)
        """Restores from a backup."""
        self.reconciling: Reconciling = Reconciling(database)
        """Comparisons with a provider's log, and repairs."""
        self.pruning: Pruning = Pruning(database)
        """Deletion of data past its retention period."""
        self.rates: Rates = Rates(database)
        """Counts over time."""
        self.schema_fields: SchemaFields = SchemaFields(database)
        """Which fields the events of each source have."""
        self.published: PublishedKeys = PublishedKeys(database)
        """Keys that providers publish."""
        self.erasure: Erasure = Erasure(database)
        """What is forgotten on purpose."""
        self.entities: Entities = Entities(database)
        """Order among the events of one entity."""
        self.reviews: Reviews = Reviews(database)
        """Answers to events in review."""
        self.answers: Answers = Answers(database)
        """What handlers answered."""
        self.stages: Stages = Stages(database)
        """Stages that an operator adds to processed events."""

    # ── life ──
    @abstractmethod
    async def open(self, *, handlers: int = 0, writer_process: bool = False) -> None:
        """Connect. `handlers`: how many handler transactions may be open concurrently. `writer_process`: on SQLite, a
        separate process records the arrivals."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def migrations(self) -> list[tuple[str, str]]:
        """Name and SQL of every migration, for people who run them by hand."""

    @abstractmethod
    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the migrations applied."""

    @abstractmethod
    async def health(self) -> Health:
        """Prove that the database can be written, and read its schema version and clock."""

    # ── intake ──
    queues: bool
    """Whether arrivals that are to be recorded can wait there for their turn, and are not in the way of those before
    them."""

    @abstractmethod
    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        """Record what is plainly new the short way, durably; None for whatever `record` must look at.

        Each arrival is recorded whole or not touched. May answer None to all.
        """

    @abstractmethod
    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        """Record every item of every arrival, all in one durable commit.

        Never updates or locks an existing event. Raises Unavailable when nothing
        was recorded or when that is not known, BadData when a row is refused.
        """

    @abstractmethod
    async def claim_new(self, arrivals: Sequence[Arrival], worker: str, lease: float) -> Sequence[Claim | None]:
        """Record and claim, in one commit, what is plainly new and may be claimed; None for whatever `record_claimed`
        must look at. May answer None to all."""

    @abstractmethod
    async def record_claimed(self, arrivals: Sequence[Arrival], worker: str, lease: float) -> list[Claim]:
        """Record arrivals of one item each as `record` does, and claim in the same commit what is new and pending,
        unless its kind is paused; with the state and the answer of each event that is known."""

    # ── work ──
    @abstractmethod
    async def waiting(self) -> list[Waiting]:
        """Which kinds have events in the queue, the longest due first; nothing of what is paused."""

    @abstractmethod
    async def claim_shares(self, worker: str, shares: Sequence[Share], lease: float) -> list[Claimed]:
        """pending, retrying → processing, for due events up to the limit of each share, the longest due first. No two
        shares have a kind in common.

        Leaves out what is paused, and events that crashed twice: those are for `claim_alone`. The statements are
        `claim` in `postgres/queries.sql`, and `due`, `claim` and `claimed` in `sqlite/queries.sql`.
        """

    async def claim(self, worker: str, kinds: Sequence[Kind], limit: int, lease: float) -> list[Claimed]:
        """The same for one share."""
        return await self.claim_shares(worker, [Share(tuple(kinds), limit)], lease)

    @abstractmethod
    async def claim_alone(self, worker: str, kinds: Sequence[Kind], lease: float) -> list[Claimed]:
        """The same for at most one event that crashed twice or more."""

    @abstractmethod
    async def claim_seen(
        self, event_id: UUID, seen: int, worker: str, lease: float, *, crashed: bool = False
    ) -> Claimed | None:
        """The same for one event, due or not, if its claim number is still the one that was seen; None where another
        was faster, or where `claim_shares` would leave it out. `crashed`: also one that crashed twice."""

    @abstractmethod
    def transaction(self, adapter: Adapter | None = None) -> Transaction:
        """A transaction for one handler, not begun yet; in the user's own library if there is an adapter to it."""

    @abstractmethod
    async def check(self, transactions: Transactions) -> None:
        """Prove at start-up that the user's own transactions hold, and reach this very database; else ConfigError."""

    @abstractmethod
    async def settle(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        """processing → wherever each outcome says; returns the ids that were still ours."""

    @abstractmethod
    async def heartbeat(self, worker: str, handles: Handled | None, patience: float) -> Heartbeat:
        """A heartbeat connection for the running loop; a beat waits at most `patience` seconds for anyone. `handles`:
        what the other workers are told; None: it is no worker, and only renews its leases."""

    @abstractmethod
    async def renew(self, event_id: UUID, claim: int, lease: float) -> bool:
        """Renew one lease; whether the claim was still ours."""

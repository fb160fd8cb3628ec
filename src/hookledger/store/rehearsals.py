"""What a store must do for rehearsals. As in `protocol.py`: one method for each transition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from ..ledger import Effect
from ..model import Kind
from ..rehearsals import Rehearsal, Result, Write
from ..states import State
from .protocol import Adapter, Transaction

KEPT = 100
"""How many rehearsals stay, the newest."""


class RehearsalTransaction(Transaction, Protocol):
    """One that cannot be committed: `once` and `plan` only look, and the database refuses a COMMIT by the handler.

    What it writes holds its locks until it is rolled back, at most as long as the rehearsal may take. Sequences that
    it draws from do not go back.
    """

    async def conclude(self) -> None:
        """Do what a commit would: write what the library holds back, and check the deferred constraints.

        Raises HandlerCommitted when the handler ended the transaction itself, and whatever a commit would raise.
        """
        ...

    async def writes(self) -> tuple[Write, ...] | None:
        """The rows written so far, by table, those of triggers and of rolled back savepoints included.

        None when it cannot be said: the transaction failed or is over, or the server counts nothing.
        """
        ...

    @property
    def sealed(self) -> bool:
        """Whether a handler that ends the transaction by itself can only read from then on."""
        ...

    async def ended(self) -> bool:
        """Whether the handler has ended the transaction by itself, as far as that can be told."""
        ...

    def limited(self, error: BaseException) -> str | None:
        """Which limit of the rehearsal's own it was that stopped a statement; None when it was none of them."""
        ...

    def refused_commit(self, error: BaseException) -> bool:
        """Whether this is how the database refused to commit the rehearsal."""
        ...


class Rehearsals(Protocol):
    """`store.rehearsals`. No event is touched or locked by any of this."""

    @property
    def impossible(self) -> str | None:
        """Why nothing can be rehearsed on this database; None where it can."""
        ...

    def transaction(
        self, adapter: Adapter | None, limit: float, repeat: Collection[bytes] = ()
    ) -> RehearsalTransaction:
        """For one handler that takes at most `limit` seconds; in the user's own library if there is an adapter.

        `repeat`: the identities of effects that count as not done.
        """
        ...

    async def ask(
        self,
        event_id: UUID,
        expected: State,
        seen: int,
        repeat: Sequence[Effect],
        actor: str,
        reason: str,
        *,
        patience: float,
    ) -> UUID:
        """absent → asked, audited; it expires after `patience` seconds. The oldest finished ones beyond KEPT go.

        Raises WrongState when the event is not in the expected state, went round since its claim number was seen, or
        cannot be replayed; and for an effect that cannot be repeated.
        """
        ...

    async def asked(self) -> list[tuple[UUID, Kind]]:
        """Those that a worker may take, the oldest first."""
        ...

    async def take(self, ident: UUID, worker: str, lease: float) -> Rehearsal | None:
        """asked → running; None when another was faster, or it has expired."""
        ...

    async def finish(self, ident: UUID, worker: str, result: Result, *, failed: bool = False) -> bool:
        """running → done, or failed; False when it is not this worker's any more."""
        ...

    async def lapse(self) -> None:
        """asked → expired where nobody took it in time; running → failed where the lease ran out."""
        ...

    async def get(self, ident: UUID) -> Rehearsal | None: ...

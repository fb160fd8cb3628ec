"""What running handlers takes, the same for a worker and for the process that answers requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from ..effects.caller import Calls
from ..effects.circuit import Breakers
from ..effects.declare import Effects
from ..effects.outbox import Outbox
from ..effects.restore_gap import Gap
from ..model import Handled
from ..observe.metrics.counts import WorkCounts
from ..store.protocol import Store, Transactions
from .check import Checks
from .current import Currents, CurrentStates
from .handle import Ended, Handling, Returned
from .lease import Leases
from .outcome import Settler
from .route import Handler, Routes
from .run import Rank, Runner
from .settings import WorkSettings
from .slots import Slots


class Parts:
    """Leases, outcomes, calls and the handling of attempts, under one name. `handles`: what the other workers are
    told; None: it is not one."""

    def __init__(
        self,
        store: Store,
        routes: Routes,
        effects: Effects,
        checks: Checks,
        settings: WorkSettings,
        *,
        name: str,
        handles: Handled | None,
        transactions: Sequence[Transactions],
        currents: Currents,
        max_running: Mapping[str, int],
        rank: Rank,
        lost: Callable[[UUID], None],
        stuck: Callable[[], None],
        counts: WorkCounts,
        claims: Callable[[], None] = lambda: None,
        ended: Ended | None = None,
        returned: Returned | None = None,
        runner: type[Runner] = Runner,
        handling: type[Handling] = Handling,
    ) -> None:
        """`lost`, `stuck`: see `Leases`; `ended`, `returned`: see `Handling`. `claims` is told when the outbox claims
        one."""
        self.leases: Leases = Leases(
            lambda patience: store.heartbeat(name, handles, patience),
            settings.lease,
            lost,
            patience=routes.longest_timeout(settings.timeout) + settings.lease,
            stuck=stuck,
            counts=counts,
        )
        self.settler: Settler = Settler(store, counts)
        breakers = Breakers(store.circuits, settings.circuit)
        self.calls: Calls = Calls(store.ledger, breakers, name, Gap(store.restores))
        self.outbox: Outbox = Outbox(store.ledger, effects, self.calls, breakers, settings.outbox, name, claims)
        self.runner: Runner = runner(checks, transactions, CurrentStates(currents, store.tickets, breakers), rank)
        self.library: Callable[[Handler], Transactions | None] = self.runner.library
        self.slots: Slots = Slots(settings.concurrency, max_running)
        counts.slots, counts.running = settings.concurrency, lambda: settings.concurrency - self.slots.left
        shared = (store, self.settler, self.calls, self.leases, effects, self.runner, settings)
        self.handling: Handling = handling(*shared, self.outbox.wake, self.slots, counts, ended, returned)

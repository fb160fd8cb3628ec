"""The worker: claim what is due, start it, keep the claims alive, stop gracefully."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct

from ..clock import Seconds
from ..errors import ClaimLost, ConfigError, HookledgerError
from ..model import Claimed, Kind, Outcome
from ..store.protocol import Store, Transactions
from . import outcome as ways
from .circuit import Breakers, CircuitSettings
from .claim import Leases
from .declare import Effects
from .event import Current
from .handle import Handling
from .ledger import Calls
from .outbox import Outbox, OutboxSettings
from .outcome import Settler
from .rehearse import Rehearser
from .retry import RetryPolicy
from .route import Handler, Routes
from .run import Read, Runner

log = logging.getLogger(__name__)


class WorkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[work]` in hookledger.toml."""

    concurrency: int = 16
    """Handlers at once."""
    lease: Seconds = Seconds("60s")
    """How long a claim holds without a heartbeat; a crashed worker's events wait this long."""
    poll: Seconds = Seconds("200ms")
    """Between looks at an empty queue."""
    grace: Seconds = Seconds("25s")
    """What running handlers get to finish when the worker is told to stop."""
    ahead: Seconds = Seconds("100ms")
    """Work that may be claimed before a slot is free for it."""
    timeout: Seconds = Seconds("30s")
    """For a handler that names none itself."""
    unhandled_after: Seconds = Seconds("1h")
    """How long an event waits for a worker that handles it, before it is skipped."""
    transaction_limit: Seconds = Seconds("1s")
    """How long a handler may hold SQLite's write lock."""
    retry: RetryPolicy = RetryPolicy()
    """For a handler that names none itself."""
    outbox: OutboxSettings = OutboxSettings()
    circuit: CircuitSettings = CircuitSettings()

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.lease < 0.5 or self.poll <= 0 or self.timeout <= 0:
            raise ConfigError("work needs concurrency >= 1, lease >= 500ms, poll > 0 and timeout > 0")


def worker_name() -> str:
    """Who we are to the other workers and in the evidence: never the same twice."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class Worker:
    """Runs the handlers of `routes` on what `store` has due."""

    def __init__(
        self,
        store: Store,
        routes: Routes,
        effects: Effects,
        read: Read,
        settings: WorkSettings,
        *,
        transactions: Sequence[Transactions] = (),
        current: Current,
        name: str | None = None,
        stuck: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._routes = routes
        self._settings = settings
        self.name = name or worker_name()
        self._leases = Leases(
            lambda patience: store.pulse(self.name, routes.handles(), patience),
            settings.lease,
            self._on_lost,
            patience=routes.longest_timeout(settings.timeout) + settings.lease,
            stuck=stuck,
        )
        self._settler = Settler(store)
        breakers = Breakers(store.ledger, settings.circuit)
        self._calls = Calls(store.ledger, breakers, self.name)
        self._outbox = Outbox(store.ledger, effects, self._calls, breakers, settings.outbox, self.name)
        self._transactions = transactions
        runner = Runner(read, transactions, current)
        self._handling = Handling(
            store, self._settler, self._calls, self._leases, effects, runner, settings, self._outbox.wake
        )
        self.rehearser = Rehearser(store, routes, effects, runner, breakers, settings, self.name)
        self._hand: deque[Claimed] = deque()
        self._running: dict[asyncio.Task[None], list[Claimed]] = {}
        self._settling: dict[asyncio.Task[None], UUID] = {}
        self._kinds: list[Kind] = []
        self._outcasts: list[Kind] = []
        self._alone = False
        self._in_doubt = False
        self._look_at = 0.0
        self._nothing_due = False
        self._pace = 0.01
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Claim nothing more, finish what runs."""
        self._stopping.set()
        self._changed.set()

    async def run(self, *, drain: bool = False) -> None:
        """Until stopped; with `drain`, until nothing that we handle is due."""
        self._loop = asyncio.get_running_loop()
        await self._store.register(self.name, self._routes.handles())
        for transactions in self._transactions:
            await self._store.check(transactions)
        self._leases.start()
        outbox = asyncio.create_task(self._outbox.run())
        rehearser = asyncio.create_task(self.rehearser.run())
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                self._leases.alive()
                claimed = await self._claim_safely()
                self._start()
                if drain and self._nothing_due and not self._running and not self._hand:
                    self._outbox.stop()
                    await outbox
                    await self._outbox.drain()
                    return
                if not claimed or not self._room():
                    await self._idle()
        finally:
            rehearser.cancel()
            self._outbox.stop()
            await asyncio.wait([outbox], timeout=5.0)  # a claim on its way must be heard, or nobody knows of it
            await self._shut_down()
            outbox.cancel()
            await asyncio.gather(outbox, rehearser, return_exceptions=True)

    # ── claim ──

    async def _claim_safely(self) -> int:
        """How many events were claimed; -1 in an outage, when nobody knows what is due. No reason to stop."""
        try:
            return await self._claim()
        except HookledgerError as error:
            log.warning("nothing claimed: %s", error)
            self._in_doubt = True
            await asyncio.sleep(min(1.0, self._settings.poll * 5))
            return -1

    async def _claim(self) -> int:
        if self._alone and (self._running or self._hand):
            return 0
        self._alone = False
        if self._in_doubt:
            await self._give_back_strays()
        if time.monotonic() >= self._look_at:
            await self._look()
        if self._outcasts:
            # Nothing may run beside an event that crashed its worker twice: finish first, then take it alone.
            if self._running or self._hand:
                return 0
            since, outcasts = time.monotonic(), self._outcasts
            self._look_at, self._outcasts = 0.0, []
            claimed = await self._store.claim_alone(self.name, outcasts, self._settings.lease)
            self._alone = bool(claimed)
            return self._take(claimed, since)
        wanted = self._room()
        if wanted < 1 or not self._kinds:
            self._look_at = self._look_at if self._kinds else 0.0
            return 0
        since = time.monotonic()
        claimed = await self._store.claim(self.name, self._kinds, wanted, self._settings.lease)
        if len(claimed) < wanted:
            self._look_at = 0.0
        return self._take(claimed, since)

    async def _give_back_strays(self) -> None:
        """A claim that failed may have been made all the same, its answer lost: we hold what we do not know of."""
        known = {claimed.id for group in (self._hand, *self._running.values()) for claimed in group}
        known.update(self._settling.values())
        held = await self._store.held(self.name)
        self._in_doubt = False
        self._settle_later([Outcome(i, claim, "release") for i, claim in held if i not in known])

    async def _look(self) -> None:
        """Which of the kinds that we handle have something due, the longest due first."""
        waiting = [w for w in await self._store.waiting() if w.due_in <= 0 and self._routes.find(w.kind)]
        # A claim locks a few rows of each kind it names: some kinds at a time are enough.
        self._kinds = [w.kind for w in waiting if not w.alone][:16]
        self._outcasts = [w.kind for w in waiting if w.alone]
        self._nothing_due = not waiting
        self._look_at = time.monotonic() + 1.0

    def _room(self) -> int:
        """How many more to claim: the free slots, and as much as they will get through in a moment."""
        slots = self._settings.concurrency - len(self._running)
        ahead = int(self._settings.concurrency * min(4.0, self._settings.ahead / self._pace))
        handlers = [self._routes.find(kind) for kind in self._kinds]
        largest = max((handler.batch for handler in handlers if handler), default=1)
        return max(0, (slots + ahead) * largest - len(self._hand))

    def _take(self, claimed: list[Claimed], since: float) -> int:
        self._leases.hold(claimed, since)
        self._hand.extend(claimed)
        return len(claimed)

    # ── start ──

    def _start(self) -> None:
        """As many of the events in hand as there are slots."""
        while self._hand and len(self._running) < self._settings.concurrency:
            handler = self._routes.find(Kind(self._hand[0].source, self._hand[0].type))
            assert handler is not None, "only what we handle is claimed"
            group = self._group(handler)
            task = asyncio.create_task(self._one(handler, group))
            self._running[task] = group
            task.add_done_callback(self._ended)

    def _group(self, handler: Handler) -> list[Claimed]:
        """The first event in hand and, for a handler that takes several, others of its kind."""
        first = self._hand.popleft()
        group = [first]
        if handler.batch > 1:
            rest: deque[Claimed] = deque()
            while self._hand:
                claimed = self._hand.popleft()
                fits = len(group) < handler.batch and (claimed.source, claimed.type) == (first.source, first.type)
                (group if fits else rest).append(claimed)
            self._hand = rest
        return group

    async def _one(self, handler: Handler, group: list[Claimed]) -> None:
        begun = time.monotonic()
        await self._handling.handle(handler, group)
        elapsed = (time.monotonic() - begun) / len(group)
        self._pace = 0.9 * self._pace + 0.1 * max(elapsed, 1e-4)

    def _ended(self, task: asyncio.Task[None]) -> None:
        group = self._running.pop(task)
        if task.cancelled():
            self._settle_later([self._cut_short(claimed) for claimed in group])
        elif error := task.exception():
            log.error("a defect in the worker", exc_info=error)
        for claimed in group:
            self._leases.drop(claimed.id)
        self._changed.set()

    def _cut_short(self, claimed: Claimed) -> Outcome:
        """The way out for a handler that was cancelled. If the event is another's by now, the fence refuses it."""
        if self._leases.owns(claimed.id):
            return ways.interrupted(claimed)
        handler = self._routes.find(Kind(claimed.source, claimed.type))
        policy = (handler.retry if handler else None) or self._settings.retry
        return ways.failed(claimed, policy, ClaimLost("the lease could not be renewed in time"))

    async def _idle(self) -> None:
        """Until something ends, or it is time to look again."""
        try:
            async with asyncio.timeout(self._settings.poll):
                await self._changed.wait()
        except TimeoutError:
            pass

    # ── lose, stop ──

    def _on_lost(self, ident: UUID) -> None:
        """Called in the heartbeat's thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._abandon, ident)

    def _abandon(self, ident: UUID) -> None:
        """Stop working on it, and say so: while nobody has taken it over it is ours to give back."""
        for claimed in [claimed for claimed in self._hand if claimed.id == ident]:
            log.warning("claim lost: event %s was not started", ident)
            self._hand.remove(claimed)
            self._settle_later([ways.released(claimed)])
        for task, group in self._running.items():
            if any(claimed.id == ident for claimed in group):
                log.warning("claim lost: event %s is abandoned, nothing it still does is kept", ident)
                task.cancel()

    def _settle_later(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            task = asyncio.create_task(self._settler.settle(outcome))
            self._settling[task] = outcome.id
            task.add_done_callback(self._settling.pop)

    async def _shut_down(self) -> None:
        """Give back what was not started, let the rest finish, cut it short after the grace."""
        self._settle_later([ways.released(claimed) for claimed in self._hand])
        for claimed in self._hand:
            self._leases.drop(claimed.id)
        self._hand.clear()
        grace = asyncio.create_task(self._outbox.shut_down(self._settings.grace))
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.grace)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=5.0)
        await grace
        await self._calls.close(5.0)
        if self._settling:
            await asyncio.wait(self._settling, timeout=5.0)
        await asyncio.to_thread(self._leases.stop)

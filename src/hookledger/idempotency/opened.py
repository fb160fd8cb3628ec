"""A guard that is open on one event loop: its store, its leases, and what runs its routes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from ..clock import Seconds
from ..errors import HookledgerError, Unavailable
from ..observe.metrics.rollup import RateWriter, Written
from ..observe.second_connection import watch_libraries
from ..store.ops.workers import GUARD
from ..work.lease import Leases
from ..work.parts import Parts
from ..work.settings import CALLS_END, worker_name
from .attempt import RouteHandling, RouteRunner
from .ledger import GuardLedger

if TYPE_CHECKING:
    from .guard import Idempotent


async def open_guard(guard: Idempotent, stack: contextlib.AsyncExitStack) -> GuardLedger:
    """Open the store and start the heartbeat; all of it is closed with the stack."""
    inbox, settings = guard.inbox, guard.settings
    inbox.effects.verify()
    work = msgspec.structs.replace(
        inbox.settings.work,
        lease=Seconds(settings.lease),
        concurrency=settings.concurrency,
        timeout=Seconds(settings.timeout),
    )
    store = inbox.store(lease=settings.lease)
    await store.open(handlers=settings.concurrency)
    stack.push_async_callback(store.close)
    health = await store.health()
    if not health.writable:
        raise Unavailable(health.problem)
    for transactions in inbox.transactions:
        await store.check(transactions)
    name = GUARD + worker_name()
    handles = sorted((guard.name, route.name) for route in guard.routes)
    await store.know_sources([guard.name])
    await store.register(name, handles)

    async def leave() -> None:
        with contextlib.suppress(HookledgerError):  # listed as alive until its lease ends
            await store.leave(name)

    stack.push_async_callback(leave)
    loop = asyncio.get_running_loop()

    def lost(event_id: UUID) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ledger.lost, event_id)

    parts = Parts(
        store,
        inbox.routes,
        inbox.effects,
        inbox.checks(),
        work,
        name=name,
        handles=handles,
        transactions=inbox.transactions,
        currents=inbox.currents,
        max_running={},
        rank=inbox.rank,
        lost=lost,
        stuck=lambda: None,
        counts=guard.counts,
        runner=RouteRunner,
        handling=RouteHandling,
    )
    stack.push_async_callback(parts.calls.close, CALLS_END)
    reclaimer = inbox.lease_reclaimer(store, work, guard.counts)
    ledger = GuardLedger(store, guard.endpoint, settings, guard.handlers, parts, reclaimer, name, guard.intake_counts)
    leases = parts.leases
    if inbox.settings.monitor.rates:
        await stack.enter_async_context(Written(RateWriter(store.rates, name, guard.totals)))
    leases.start()
    stack.push_async_callback(asyncio.to_thread, leases.stop)
    for task in (_alive(leases, settings.lease), ledger.lease_watch.run()):
        stack.callback(asyncio.create_task(task).cancel)
    watch_libraries()
    stack.push_async_callback(ledger.drain, settings.shutdown)
    return ledger


async def _alive(leases: Leases, lease: float) -> None:
    while True:
        leases.alive()
        await asyncio.sleep(lease / 10)

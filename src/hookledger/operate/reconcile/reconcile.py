"""Reconcile a source with its provider's log, on demand or daily."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

from ...errors import ConfigError, ListingFailed
from ...providers.listing.base import Lister
from ...receive.endpoint import require_secrets
from ...store.ops.audit import Audit
from ...store.ops.filters import EARLIEST
from ...store.ops.reconciling import Begun, Counts, Reconciliation, taken_up
from ...store.protocol import Store
from ..context import Context
from ..schedule import Daily
from .compare import Comparison, Report
from .plan import Plan, Window
from .repair import repair

log: logging.Logger = logging.getLogger(__name__)

LEASE = 30.0
"""Seconds after which another worker may reclaim it."""
RETRY_AFTER, TRIES = 1800.0, 5
"""Seconds before a failed scheduled comparison is retried, and the maximum number of tries."""


async def reconciliations(context: Context) -> list[Reconciliation]:
    """Return the last comparison of each source with its provider's log."""
    return await context.store.reconciling.last()


def window_of(context: Context, source: str, since: datetime | None, until: datetime | None) -> Window | None:
    """Return the window with these ends, as far back as the source's settings say without `since`; None without
    both."""
    if since is None and until is None:
        return None
    end = until or datetime.now(UTC)
    back = timedelta(seconds=context.sources.source(source).plan().look_back)
    return Window(since or max(EARLIEST, end - back), end)


async def compare(
    context: Context,
    source: str,
    window: Window | None = None,
    *,
    resend: bool = False,
    on_page: Callable[[Counts], None] = lambda _: None,
) -> Report:
    """Compare a source with its provider's log as a dry run: changes nothing and is not audited. The arguments are
    those of `reconcile`."""
    lister, window = _planned(context, source, window)
    comparison = Comparison(context, source, window, dry_run=True, resend=resend, on_page=on_page)
    try:
        return await comparison.run(lister)
    except ListingFailed as error:
        return comparison.report(str(error))


async def reconcile(
    context: Context,
    by: Audit,
    source: str,
    window: Window | None = None,
    *,
    resend: bool = False,
    on_page: Callable[[Counts], None] = lambda _: None,
) -> Report:
    """Compare a source with its provider's log and import missing events: audited when it begins and when it ends;
    the deliveries are the evidence of each event.

    `window` None: as far back as the source's settings say. `resend`: ask the provider to redeliver missing events,
    if it can. `on_page` gets the counts after every page.
    """
    lister, window = _planned(context, source, window)
    begun = await context.store.reconciling.begin(source, window.since, window.until, *by, lease=LEASE)
    assert begun is not None, "only a scheduled comparison can belong to another worker"
    comparison = _comparison(context, by, source, window, resend=resend, on_page=on_page)
    return await carry_out(context.store, begun, comparison, lister)


def _planned(context: Context, source: str, window: Window | None) -> tuple[Lister, Window]:
    plan = context.sources.source(source).plan()
    if plan.lister is None:
        contract = context.sources.endpoint(source).contract
        where = "; ".join(filter(None, (contract.lister.list, contract.lister.enable)))
        raise ConfigError(
            f"source {source!r} has no lister: set [sources.{source}.reconcile], or give it one with "
            f"@source.lister{f' ({contract.title}: {where})' if where else ''}"
        )
    now = datetime.now(UTC)
    return plan.lister, window or Window(now - timedelta(seconds=plan.look_back), now)


def _comparison(context: Context, by: Audit, source: str, window: Window, **how: Any) -> Comparison:
    """Return a comparison that repairs objects that changed without an event, if the source can."""
    plan = context.sources.source(source).plan()

    async def repair_object(object_id: str) -> UUID:
        return (await repair(context, by, source, object_id)).event.id

    return Comparison(context, source, window, repair=repair_object if plan.repairs and plan.runs else None, **how)


async def carry_out(
    store: Store, begun: Begun, comparison: Comparison, lister: Lister, *, again_in: float | None = None
) -> Report:
    """Run a comparison and record its end. A log that cannot be read gives a report with a problem; `again_in`:
    seconds after which another worker may try."""
    problem: str | None = None
    await store.know_sources([begun.source])  # the source may have no deliveries yet
    try:
        report = await _renewed(store, begun, comparison.run(lister, begun))
    except (ListingFailed, ConfigError) as error:
        counts = comparison.counts
        problem = f"{_storable(str(error))} (after {counts.listed:,} listed, {counts.imported:,} imported)"[:1000]
        report = comparison.report(problem)
    if not await store.reconciling.end(begun, report.counts, problem, again_in=again_in if problem else None):
        raise taken_up(begun)
    return report


async def _renewed(store: Store, begun: Begun, work: Coroutine[Any, Any, Report]) -> Report:
    """Run `work` while renewing the lease; cancel it if the lease is lost."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([task], timeout=LEASE / 3))[0]:
            if not await store.reconciling.renew(begun, LEASE):
                raise taken_up(begun)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _storable(words: str) -> str:
    """Return text of a provider or lister that every database can store."""
    return words.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def daily(context: Context) -> list[Daily]:
    """Return the daily comparisons, each made by one worker. ConfigError if one cannot run."""
    found = []
    for name in context.sources.names:
        plan, endpoint = context.sources.source(name).plan(), context.sources.endpoint(name)
        if plan.at is None:
            continue
        if plan.lister is None:
            raise ConfigError(
                f"source {name!r} is to be reconciled daily, but has no lister: declare one with @source.lister"
            )
        if endpoint.tolerance is None:  # listed events are verified too
            require_secrets(endpoint)
        found.append(_daily(context, name, plan, plan.at, plan.lister))
    return found


def _daily(context: Context, source: str, plan: Plan, at: time, lister: Lister) -> Daily:
    by = Audit("hookledger", f"every day at {at:%H:%M} UTC")

    async def run(slot: datetime) -> None:
        since = slot - timedelta(seconds=plan.look_back)
        begun = await context.store.reconciling.begin(source, since, slot, *by, lease=LEASE, slot=slot)
        if begun is None:
            return
        comparison = _comparison(context, by, source, Window(begun.since, begun.until))
        again_in = RETRY_AFTER if begun.fence < TRIES else None
        report = await carry_out(context.store, begun, comparison, lister, again_in=again_in)
        level = logging.WARNING if report.problem else logging.INFO
        log.log(level, "reconcile %s: %s", source, report.problem or report.counts.words())

    return Daily(f"reconcile {source}", at, run)

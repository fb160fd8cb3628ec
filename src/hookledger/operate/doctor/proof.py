"""Checks the guarantees on live data: consistency, leases, workers, and database settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...model import Kind, Waiting
from ...store.ops.consistency import ENTRIES, TOTAL, ConsistencyReport, Violation
from ...store.ops.workers import WorkerInfo
from ..context import Context
from ..workers import handles, handles_type, version_words
from ..workers import workers as seen_workers
from .finding import Finding

LATE = 300.0
"""Seconds that events may be overdue before a warning."""
RECLAIMED_AFTER = 1.25
"""Leases after which a dead worker's claims should have been reclaimed: workers look every quarter of a lease."""

STUCK = {"stuck_events": "events", "stuck_effects": "effects"}
FULL = ("2", "3")
"""SQLite's numbers for FULL and EXTRA."""


# ── consistency ────────────────────────────────────────────────────────────────


async def consistency(context: Context, limit: float) -> list[Finding]:
    """Check that every acknowledged event is accounted for (guarantee 5)."""
    return consistency_findings(await context.store.consistency.report(limit=limit))


def consistency_findings(accounts: ConsistencyReport) -> list[Finding]:
    made, kept = _sum(accounts), _listed(accounts.events)
    if not accounts.imbalances:
        figures = {"attempt": accounts.attempts, "effect": accounts.effects, "call": accounts.calls}
        others = ", ".join(_figure(counts, noun) for noun, counts in figures.items())
        if guards := accounts.guards.get("guards"):
            others += f", {guards:,} guard{'s' * (guards != 1)}"
        if accounts.stages:
            others = f"{sum(accounts.stages.values()):,} stages ({_listed(accounts.stages)}), {others}"
        gone = f"; {accounts.pruned:,} pruned ({_listed(accounts.pruned_by_state)})" if accounts.pruned else ""
        says = f"{made} = {accounts.kept:,} events ({kept}){gone}; {others}: all accounted for"
        return [Finding("ok", "consistency", says)]
    return [_off(accounts, violation) for violation in accounts.imbalances]


def _off(accounts: ConsistencyReport, violation: Violation) -> Finding:
    if violation.kind == TOTAL:
        says = f"{_sum(accounts)}, but there are {accounts.kept:,} events ({_listed(accounts.events)})"
        do = "keep a copy of the database; check whether rows were deleted by hand; the lines below name them"
    else:
        says = f"{violation.count:,} {ENTRIES[violation.kind]}: {_sample(violation)}"
        do = DO.get(violation.kind.partition("_")[0], DO["events"])
    return Finding("problem", "consistency", says, do)


_LOST = (
    "keep a copy of the database; check whether rows were deleted by hand, or tables restored from different backups."
)
DO = {
    "deliveries": f"{_LOST} Have the provider redeliver lost events, if it can",
    "identities": f"{_LOST} Deliveries with these keys count as duplicates and are not processed",
    "requests": f"{_LOST} Events without a body cannot be processed",
    "events": f"{_LOST} `hookledger show ID` shows what is known of each",
    "pruned": f"{_LOST} `hookledger show ID` shows what is left of each",
    "attempts": _LOST,
    "effects": f"{_LOST} Before `hookledger resolve` or a replay, check at the downstream what happened",
    "guards": f"{_LOST} A later event may be taken for stale, or an older one for newer: fetch what is current",
    "answers": _LOST,
    "calls": f"{_LOST} Before `hookledger resolve` or a replay, check at the downstream what happened",
}


def _sum(accounts: ConsistencyReport) -> str:
    parts = f"{accounts.made:,} deliveries that made an event"
    if accounts.from_quarantine:
        parts += f" + {accounts.from_quarantine:,} accepted from quarantine"
    return parts


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"


def _figure(counts: Mapping[str, int], noun: str) -> str:
    n = sum(counts.values())
    return f"{n:,} {noun}{'s' * (n != 1)}"


def _sample(violation: Violation) -> str:
    return ", ".join(violation.sample) + (" …" if violation.count > len(violation.sample) else "")


# ── leases and workers ───────────────────────────────────────────────────────


async def leases(context: Context) -> list[Finding]:
    """Find claims of dead workers that no worker reclaimed."""
    stuck = await context.store.consistency.stuck(RECLAIMED_AFTER * context.lease)
    return lease_findings(stuck, context.lease)


def lease_findings(stuck: Sequence[Violation], lease: float) -> list[Finding]:
    do = "run a worker: it reclaims them one lease after its start; check that `work.lease` is the same here"
    over = f"whose lease ran out more than {RECLAIMED_AFTER * lease:.0f} s ago"
    return [
        Finding("problem", "leases", f"{violation.count:,} {STUCK[violation.kind]} {over}: {_sample(violation)}", do)
        for violation in stuck
    ] or [Finding("ok", "leases", "no expired lease is overdue for reclaiming")]


async def outbox(context: Context) -> list[Finding]:
    """Find outbox entries that no current worker can perform."""
    waiting = await context.store.consistency.unperformable()
    if waiting is None:
        return [Finding("ok", "outbox", "no entry waits for another version of its function")]
    says = f"{waiting.count:,} entries wait for a worker that knows their arguments: {_sample(waiting)}"
    do = "run the version that planned them beside the new one, or give the new parameter a default"
    return [Finding("warn", "outbox", says, do)]


async def workers(context: Context) -> list[Finding]:
    """Check that a worker is alive for what is due."""
    sources, lease = context.sources, context.lease
    needed = [name for name in sources.names if sources.source(name).plan().runs]
    is_idle = bool(sources.names) and not needed  # all of them only observe
    seen, waiting = await seen_workers(context), await context.store.waiting()
    found = worker_findings(seen, waiting, lease, is_idle=is_idle)
    found += source_findings(seen, waiting, needed, lease)
    if any(one.kind.version for one in waiting):  # counted only here, because that reads the whole queue
        counts = {one.kind: one.pending + one.retrying for one in await context.store.search.lag()}
        return [*found, *unhandled_findings(seen, waiting, lease, counts)]
    return [*found, *unhandled_findings(seen, waiting, lease)]


def worker_findings(
    seen: Sequence[WorkerInfo], waiting: Sequence[Waiting], lease: float, *, is_idle: bool = False
) -> list[Finding]:
    """Check the workers as a whole. `is_idle`: all sources only observe, so there is nothing to process."""
    alive = [worker for worker in seen if worker.works(lease)]
    due = [kind for kind in waiting if kind.due_in <= 0]
    late = [one for one in due if one.due_in < -LATE and _is_handled(alive, one)]
    longest = _ago(-min((kind.due_in for kind in late or due), default=0.0))
    living = f"{len(alive)} alive" if alive else "none is alive"
    if due and not alive:
        says = f"none is alive, and events are due, the first for {longest}: {_kinds(due)}"
        return [Finding("problem", "workers", says, "run `hookledger work` or `hookledger serve`")]
    if late:
        says = f"{living}, but events are due for up to {longest}: {_kinds(late)}"
        return [Finding("warn", "workers", says, "run more workers, or raise `concurrency`")]
    queue = f"the first event is due for {longest}" if due else "nothing is due"
    if not alive and not is_idle:
        return [Finding("warn", "workers", f"{living}; {queue}", "run `hookledger work` or `hookledger serve`")]
    return [Finding("ok", "workers", f"{living}; {queue}")]


def source_findings(
    seen: Sequence[WorkerInfo], waiting: Sequence[Waiting], needed: Sequence[str], lease: float
) -> list[Finding]:
    """Find sources that no live worker serves while others are served."""
    alive = [worker for worker in seen if worker.alive(lease)]
    served = {one.source for worker in alive for one in worker.handles}
    found = []
    for source in sorted({*needed, *(one.kind.source for one in waiting)} - served) if alive else []:
        due = [one for one in waiting if one.kind.source == source and one.due_in <= 0]
        do = "run a worker that has handlers for it and is not dedicated to others, or stop its webhook"
        if due:
            longest = _ago(-min(one.due_in for one in due))
            says = f"no live worker serves it, and events are due, the first for {longest}: {_kinds(due)}"
            found.append(Finding("problem", f"source {source}", says, do))
        else:
            found.append(Finding("warn", f"source {source}", "no live worker serves it; nothing is due", do))
    return found


def unhandled_findings(
    seen: Sequence[WorkerInfo], waiting: Sequence[Waiting], lease: float, counts: Mapping[Kind, int] | None = None
) -> list[Finding]:
    """Find types and versions that no live worker handles, of sources that are served. `counts`: how many events of a
    kind wait."""
    alive = [worker for worker in seen if worker.alive(lease)]
    served = {one.source for worker in alive for one in worker.handles}
    patterns = [pattern for worker in alive for pattern in worker.handles]
    found: dict[tuple[str, bool], list[str]] = {}
    for one in waiting:
        if one.kind.source in served and not handles(patterns, one.kind):
            by_version = handles_type(patterns, one.kind)
            words = version_words(one.kind) if by_version else str(one.kind)
            n = (counts or {}).get(one.kind)
            found.setdefault((one.kind.source, by_version), []).append(words + (f" ({n:,})" if n else ""))
    return [
        Finding(
            "warn",
            f"source {source}",
            f"{NO_VERSION if by_version else NO_HANDLER}: {_few(types)}",
            DO_IF[by_version],
        )
        for (source, by_version), types in found.items()
    ]


NO_HANDLER = "no handler: events wait, and no live worker handles them"
NO_VERSION = "no handler of this version: events wait until there is one, and no live worker handles them"
DO_IF = {
    False: "`hookledger lag` lists them; declare a handler, run a worker for them, or limit the source with types=",
    True: "`hookledger lag` says how many; declare a handler with version=, run a worker that has it, or discard",
}
"""What to do, by whether the type has a handler in other versions."""


def _is_handled(alive: Sequence[WorkerInfo], waiting: Waiting) -> bool:
    return handles([pattern for worker in alive for pattern in worker.handles], waiting.kind)


def _kinds(waiting: Sequence[Waiting]) -> str:
    return _few([f"{one.kind.source} {one.kind}" for one in waiting])


def _few(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


# ── the database's own settings ──────────────────────────────────────────────


async def settings(context: Context) -> list[Finding]:
    """Check the settings on which durability and isolation rely."""
    return setting_findings(await context.store.consistency.settings())


def setting_findings(known: Mapping[str, str]) -> list[Finding]:
    found = _sqlite(known) if "journal_mode" in known else _postgres(known)
    said = ", ".join(f"{name} = {value}" for name, value in sorted(known.items()))
    return found or [Finding("ok", "settings", said)]


def _sqlite(known: Mapping[str, str]) -> list[Finding]:
    found = []
    if known["journal_mode"] != "wal":
        says = f"journal_mode = {known['journal_mode']}: readers and acks wait for one another"
        found.append(Finding("problem", "settings", says, "put the file on a local disk, not on a network share"))
    if known["synchronous"] not in FULL:
        says = f"synchronous = {known['synchronous']}: an acked event can be lost when the power fails"
        do = "check the SQLite build: every connection sets FULL"
        found.append(Finding("problem", "settings", says, do))
    return found


def _postgres(known: Mapping[str, str]) -> list[Finding]:
    found = []
    if known.get("fsync") == "off":
        says = "fsync = off: an acked event, or the whole database, can be lost when the server crashes"
        found.append(Finding("problem", "settings", says, "turn it on; no guarantee holds until then"))
    if known.get("full_page_writes") == "off":
        says = "full_page_writes = off: a page half written at a crash stays corrupt"
        do = "turn it on, unless the file system writes pages atomically"
        found.append(Finding("problem", "settings", says, do))
    if known.get("synchronous_commit") in ("off", "local", "remote_write"):
        says = (
            f"synchronous_commit = {known['synchronous_commit']}: acks, answers, effects and replays are committed "
            "with `on` all the same; the transaction of a handler that answers no request is not, and what it did "
            "last can be undone, outcome included, and run again after a crash"
        )
        found.append(Finding("warn", "settings", says, "turn it on for the workers' role"))
    level = known.get("default_transaction_isolation", "read committed")
    if level != "read committed":
        says = (
            f"default_transaction_isolation = {level}, but Hookledger needs read committed: concurrent "
            "transactions fail (deliveries get 503), and events that need an operator may not be marked"
        )
        do = "ALTER ROLE … SET default_transaction_isolation = 'read committed' for Hookledger's role"
        found.append(Finding("problem", "settings", says, do))
    return found + default_schema(known)


def default_schema(known: Mapping[str, str]) -> list[Finding]:
    """Warn if tables that the application creates without a schema land in Hookledger's."""
    if "current_schema" not in known:
        return []
    name = known["current_schema"]
    says = (
        f"tables without a schema are created in {name}, which is Hookledger's own: the role has this name, or its "
        "search_path names it"
    )
    do = f"connect as another role, ALTER ROLE … SET search_path = public, or name another schema than {name}"
    return [Finding("warn", "settings", says, do)]


async def schema_warnings(context: Context) -> list[Finding]:
    """Return what a migration should warn about."""
    return default_schema(await context.store.consistency.settings())


async def integrity(context: Context, limit: float) -> list[Finding]:
    """Have the database check its file."""
    known = await context.store.consistency.settings()
    if "journal_mode" not in known:
        on = known.get("data_checksums") == "on"
        says = f"data checksums are {'on: every page is checked as it is read' if on else 'off'}"
        do = "" if on else "`pg_amcheck` looks at tables and indexes; `pg_checksums` can turn them on"
        return [Finding("ok" if on else "warn", "integrity", says, do)]
    wrong = await context.store.consistency.integrity(limit=limit)
    if not wrong:
        return [Finding("ok", "integrity", "PRAGMA quick_check finds no error in the file")]
    do = "stop all processes, copy the file and its -wal, and restore a backup"
    return [Finding("problem", "integrity", line, do) for line in wrong[:10]]

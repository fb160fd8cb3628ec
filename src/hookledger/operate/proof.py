"""Whether the promise holds on live data: the books, the leases, the workers, and what the database was set to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import Waiting, WorkerInfo
from ..store.ops.consistency import ENTRIES, TOTAL, Accounting, Oddity
from .finding import Finding
from .handlers import handles
from .insight import Insight

LATE = 300.0
"""Seconds that events may be due before it is worth a warning."""
RESCUE = 1.25
"""Leases after which what a dead worker held should have been taken back: it is looked for every quarter of one."""

STUCK = {"stuck_events": "events", "stuck_effects": "effects"}
FULL = ("2", "3")
"""SQLite's numbers for FULL and EXTRA."""


# ── the books ────────────────────────────────────────────────────────────────


async def books(insight: Insight, limit: float) -> list[Finding]:
    """Promise 5: every acked event is accounted for."""
    return judge_books(await insight.accounting(limit))


def judge_books(accounts: Accounting) -> list[Finding]:
    made, kept = _sum(accounts), _listed(accounts.events)
    if not accounts.imbalances:
        figures = {"attempt": accounts.attempts, "effect": accounts.effects, "call": accounts.calls}
        others = ", ".join(_figure(counts, noun) for noun, counts in figures.items())
        gone = f"; {accounts.pruned:,} pruned ({_listed(accounts.pruned_by_state)})" if accounts.pruned else ""
        says = f"{made} = {accounts.kept:,} events ({kept}){gone}; {others}: all accounted for"
        return [Finding("ok", "books", says)]
    return [_off(accounts, odd) for odd in accounts.imbalances]


def _off(accounts: Accounting, odd: Oddity) -> Finding:
    if odd.kind == TOTAL:
        says = f"{_sum(accounts)}, but there are {accounts.kept:,} events ({_listed(accounts.events)})"
        do = "keep a copy of the database as it is; the lines below say which rows, and were rows deleted by hand?"
    else:
        says = f"{odd.count:,} {ENTRIES[odd.kind]}: {_sample(odd)}"
        do = DO.get(odd.kind.partition("_")[0], DO["events"])
    return Finding("problem", "books", says, do)


_LOST = "keep a copy of the database as it is. Were rows deleted by hand, or tables restored from different backups?"
DO = {
    "deliveries": f"{_LOST} What is lost can be asked for again where the provider resends",
    "identities": f"{_LOST} What comes with these keys is answered as a duplicate and not processed",
    "requests": f"{_LOST} Events without their bytes cannot be processed",
    "events": f"{_LOST} `hookledger show ID` says what is known of each",
    "pruned": f"{_LOST} `hookledger show ID` says what is left of each",
    "attempts": _LOST,
    "effects": f"{_LOST} Ask the remote what happened before `hookledger resolve` or a replay",
    "calls": f"{_LOST} Ask the remote what happened before `hookledger resolve` or a replay",
}


def _sum(accounts: Accounting) -> str:
    parts = f"{accounts.made:,} deliveries that made an event"
    if accounts.admitted:
        parts += f" + {accounts.admitted:,} admitted"
    return parts


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"


def _figure(counts: Mapping[str, int], noun: str) -> str:
    n = sum(counts.values())
    return f"{n:,} {noun}{'s' * (n != 1)}"


def _sample(odd: Oddity) -> str:
    return ", ".join(odd.sample) + (" …" if odd.count > len(odd.sample) else "")


# ── leases and workers ───────────────────────────────────────────────────────


async def leases(insight: Insight, lease: float) -> list[Finding]:
    """What dead workers hold, and nobody took back."""
    stuck = await insight.stuck(RESCUE * lease)
    return judge_leases(stuck, lease)


def judge_leases(stuck: Sequence[Oddity], lease: float) -> list[Finding]:
    do = "run a worker: one lease after its start it takes them back. Is `work.lease` here what the workers have?"
    over = f"whose lease ran out more than {RESCUE * lease:.0f} s ago"
    return [
        Finding("problem", "leases", f"{odd.count:,} {STUCK[odd.kind]} {over}: {_sample(odd)}", do) for odd in stuck
    ] or [Finding("ok", "leases", "none has run out without being taken back")]


async def outbox(insight: Insight) -> list[Finding]:
    """Entries that no worker can perform as it is."""
    return judge_outbox(await insight.unperformable())


def judge_outbox(waiting: Oddity | None) -> list[Finding]:
    if waiting is None:
        return [Finding("ok", "outbox", "no entry waits for another version of its function")]
    says = f"{waiting.count:,} entries wait for a worker that knows their arguments: {_sample(waiting)}"
    do = "run the version that planned them beside the new one, or give the new parameter a default"
    return [Finding("warn", "outbox", says, do)]


async def workers(insight: Insight, lease: float) -> list[Finding]:
    """Whether somebody lives to do what is due."""
    receiving = insight.receiving
    needed = [name for name in receiving.sources() if receiving.plan(name).runs]
    is_idle = bool(receiving.sources()) and not needed  # all of them only observe
    seen, waiting = await insight.workers(), await insight.waiting()
    found = judge_workers(seen, waiting, lease, is_idle=is_idle)
    return [*found, *judge_sources(seen, waiting, needed, lease), *judge_unhandled(seen, waiting, lease)]


def judge_workers(
    seen: Sequence[WorkerInfo], waiting: Sequence[Waiting], lease: float, *, is_idle: bool = False
) -> list[Finding]:
    """`is_idle`: nothing is there for a worker to do, whatever comes."""
    alive = [worker for worker in seen if worker.alive(lease)]
    due = [kind for kind in waiting if kind.due_in <= 0]
    late = [one for one in due if one.due_in < -LATE and _is_handled(alive, one)]
    longest = _ago(-min((kind.due_in for kind in late or due), default=0.0))
    living = f"{len(alive)} alive" if alive else "none is alive"
    if due and not alive:
        says = f"none is alive, and events are due, the first for {longest}: {_kinds(due)}"
        return [Finding("problem", "workers", says, "run `hookledger work` or `hookledger serve`")]
    if late:
        says = f"{living}, and yet events are due for up to {longest}: {_kinds(late)}"
        return [Finding("warn", "workers", says, "run more of them, or with more `concurrency`")]
    queue = f"the first event is due for {longest}" if due else "nothing is due"
    if not alive and not is_idle:
        return [Finding("warn", "workers", f"{living}; {queue}", "run `hookledger work` or `hookledger serve`")]
    return [Finding("ok", "workers", f"{living}; {queue}")]


def judge_sources(
    seen: Sequence[WorkerInfo], waiting: Sequence[Waiting], needed: Sequence[str], lease: float
) -> list[Finding]:
    """Sources that none of the living workers serves, while others are served."""
    alive = [worker for worker in seen if worker.alive(lease)]
    served = {source for worker in alive for source, _ in worker.handles}
    found = []
    for source in sorted({*needed, *(one.kind.source for one in waiting)} - served) if alive else []:
        due = [one for one in waiting if one.kind.source == source and one.due_in <= 0]
        do = "run a worker whose application has handlers for it, or stop its webhook"
        if due:
            longest = _ago(-min(one.due_in for one in due))
            says = f"no live worker serves it, and events are due, the first for {longest}: {_kinds(due)}"
            found.append(Finding("problem", f"source {source}", says, do))
        else:
            found.append(Finding("warn", f"source {source}", "no live worker serves it; nothing is due", do))
    return found


def judge_unhandled(seen: Sequence[WorkerInfo], waiting: Sequence[Waiting], lease: float) -> list[Finding]:
    """Types that no living worker handles, of sources that some of them serve."""
    alive = [worker for worker in seen if worker.alive(lease)]
    served = {source for worker in alive for source, _ in worker.handles}
    found: dict[str, list[str]] = {}
    for one in waiting:
        if one.kind.source in served and not _is_handled(alive, one):
            found.setdefault(one.kind.source, []).append(one.kind.type)
    do = "`hookledger lag`; declare a handler, or let types= name only what is handled"
    return [
        Finding("warn", f"source {source}", f"no handler: events wait that no live worker handles: {_few(types)}", do)
        for source, types in found.items()
    ]


def _is_handled(alive: Sequence[WorkerInfo], waiting: Waiting) -> bool:
    return handles([pattern for worker in alive for pattern in worker.handles], waiting.kind)


def _kinds(waiting: Sequence[Waiting]) -> str:
    return _few([f"{one.kind.source} {one.kind.type}" for one in waiting])


def _few(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


# ── the database's own settings ──────────────────────────────────────────────


async def settings(insight: Insight) -> list[Finding]:
    """What durability and isolation rest on."""
    return judge_settings(await insight.settings())


def judge_settings(known: Mapping[str, str]) -> list[Finding]:
    found = _sqlite(known) if "journal_mode" in known else _postgres(known)
    said = ", ".join(f"{name} = {value}" for name, value in sorted(known.items()))
    return found or [Finding("ok", "settings", said)]


def _sqlite(known: Mapping[str, str]) -> list[Finding]:
    found = []
    if known["journal_mode"] != "wal":
        says = f"journal_mode = {known['journal_mode']}: readers and acks wait for one another"
        found.append(Finding("problem", "settings", says, "is the file on a network share? It needs a local disk"))
    if known["synchronous"] not in FULL:
        says = f"synchronous = {known['synchronous']}: an acked event can be lost when the power fails"
        do = "every connection of ours asks for FULL: another build of SQLite?"
        found.append(Finding("problem", "settings", says, do))
    return found


def _postgres(known: Mapping[str, str]) -> list[Finding]:
    found = []
    if known.get("fsync") == "off":
        says = "fsync = off: an acked event, or the whole database, can be lost when the server crashes"
        found.append(Finding("problem", "settings", says, "set it on; nothing is promised until then"))
    if known.get("full_page_writes") == "off":
        says = "full_page_writes = off: a page that was half written at a crash stays so"
        do = "set it on, unless the file system never writes half a page"
        found.append(Finding("problem", "settings", says, do))
    if known.get("synchronous_commit") in ("off", "local", "remote_write"):
        says = (
            f"synchronous_commit = {known['synchronous_commit']}: acks, effects and replays are committed with `on` "
            "all the same; a handler's transaction is not, and what it did last can be undone, outcome included, and "
            "run again after a crash"
        )
        found.append(Finding("warn", "settings", says, "set it on for the role that the workers use"))
    level = known.get("default_transaction_isolation", "read committed")
    if level != "read committed":
        says = (
            f"default_transaction_isolation = {level}, and everything here is written for read committed: what meets "
            "another transaction fails (deliveries are answered 503), and what needs a person may go unmarked"
        )
        do = "ALTER ROLE … SET default_transaction_isolation = 'read committed' for the role that we use"
        found.append(Finding("problem", "settings", says, do))
    return found + default_schema(known)


def default_schema(known: Mapping[str, str]) -> list[Finding]:
    """Whether the tables that the application makes without naming a schema land among ours."""
    if "current_schema" not in known:
        return []
    name = known["current_schema"]
    says = (
        f"tables without a schema are created in {name}, which is Hookledger's own: the role is called so, or its "
        "search_path names it"
    )
    do = f"connect as another role, ALTER ROLE … SET search_path = public, or name another schema than {name}"
    return [Finding("warn", "settings", says, do)]


async def integrity(insight: Insight, limit: float) -> list[Finding]:
    """The database's file, as far as the database can tell."""
    known = await insight.settings()
    if "journal_mode" not in known:
        on = known.get("data_checksums") == "on"
        says = f"data checksums are {'on: every page is checked as it is read' if on else 'off'}"
        do = "" if on else "`pg_amcheck` looks at tables and indexes; `pg_checksums` can turn them on"
        return [Finding("ok" if on else "warn", "integrity", says, do)]
    wrong = await insight.integrity(limit)
    if not wrong:
        return [Finding("ok", "integrity", "PRAGMA quick_check finds nothing wrong with the file")]
    do = "stop everything, keep a copy of the file and its -wal, and restore a backup"
    return [Finding("problem", "integrity", line, do) for line in wrong[:10]]

"""Looks at a live inbox as an experienced operator would. Each check is a function in CHECKS; more can be added."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from ..clock import SKEW_LIMIT
from ..errors import HookledgerError
from ..model import Health
from ..store import SCHEMA_RANGE
from ..store.ops.job import Job
from ..store.ops.pauses import Pause
from ..store.ops.reconciling import Reconciliation
from ..store.ops.rejections import RefusalCount
from . import proof, restore, trouble
from .finding import Finding
from .insight import Insight
from .receiving import Plan, SourceFacts

SKEW = 5.0
"""Seconds between the clocks that are worth a warning."""
SOON = 14 * 86400.0
MOST = 1000
"""Odd deliveries, at most, of which it says how many there are."""
HOOK_SAMPLE = 50
"""Kept requests of a source in which its webhooks are looked for."""
DAY = timedelta(days=1)
FORGOTTEN = timedelta(minutes=5)
"""After so long a job that nobody is at is worth a warning."""


Check = Callable[[Insight], Awaitable[list[Finding]]]


async def examine(
    insight: Insight, *, lease: float = 60.0, deep: bool = False, limit: float = 300.0
) -> list[Finding]:
    """Everything, in order. What cannot be looked at is a finding, too.

    `lease`: that of the workers; `deep`: the database's own check of its file as well; `limit`: seconds that each of
    the two long looks may take.
    """
    found = await database(insight)
    if any(finding.level == "problem" for finding in found):
        return found  # the rest would only say so again
    checks: dict[str, Check] = {
        "settings": proof.settings,
        "restore": restore.gap,
        **CHECKS,
        "effects": partial(trouble.effects, lease=lease),
        "workers": partial(proof.workers, lease=lease),
        "leases": partial(proof.leases, lease=lease),
        "outbox": proof.outbox,
        "books": partial(proof.books, limit=limit),
    }
    if deep:
        checks["integrity"] = partial(proof.integrity, limit=limit)
    for about, check in checks.items():
        try:
            found += await check(insight)
        except HookledgerError as error:
            found.append(Finding("problem", about, f"cannot be looked at: {error}"))
    return found


async def database(insight: Insight) -> list[Finding]:
    """Schema, whether it can be written, and its clock."""
    return judge_health(await insight.health())


def judge_health(health: Health) -> list[Finding]:
    low, high = SCHEMA_RANGE
    is_away = health.problem is not None and "schema version" not in health.problem
    if not is_away and not low <= health.schema <= high:
        says = health.problem or f"the schema is of version {health.schema}, and this release needs {low} to {high}"
        return [Finding("problem", "database", says, "run `hookledger migrate`, with the newest release in use")]
    if not health.writable:
        said = health.problem or "no reason given"
        says = said if "cannot be written" in said else f"cannot be written: {said}"
        return [Finding("problem", "database", says, "until it can, every delivery is answered 503")]
    found = [Finding("ok", "database", f"can be written; schema {health.schema}, of {low} to {high}")]
    apart = abs(health.clock_skew)
    says = f"this host's and the database's are {apart:.1f} s apart"
    if apart > SKEW_LIMIT:
        do = "mend the clock: what looks stale is answered 503 until then"
        found.append(Finding("problem", "clock", says, do))
    elif apart > SKEW:
        found.append(Finding("warn", "clock", says, "is the time service running on both?"))
    else:
        found.append(Finding("ok", "clock", says))
    return found


async def sources(insight: Insight) -> list[Finding]:
    """What each source's configuration allows, and how long it must remember."""
    names = insight.receiving.sources()
    if not names:
        do = "name the application with --app, or add [sources.NAME] to hookledger.toml"
        return [Finding("warn", "sources", "none is configured here", do)]
    found: list[Finding] = []
    for name in names:
        facts = insight.receiving.facts(name)
        about = f"source {name}"
        advice = [line.partition(": ")[2] for line in facts.advice]
        for line in advice:
            says, _, do = line.partition(": ")
            found.append(Finding("warn", about, says, do))
        secrets = judge_secrets(facts, datetime.now(UTC).timestamp())
        if not advice and not secrets:
            found.append(Finding("ok", about, f"{facts.contract.title}; nothing to remark"))
        found += secrets
        found.append(Finding("ok", about, horizon(facts)))
    return found


def judge_secrets(facts: SourceFacts, now: float) -> list[Finding]:
    """Secrets that ended, or will soon."""
    about = f"source {facts.name}"
    if 0.0 in facts.expiries:
        return [Finding("warn", about, "a secret is not set in this environment", "see that the receiver has it")]
    ends = [moment for moment in facts.expiries if moment is not None]
    live = [moment for moment in facts.expiries if moment is None or moment > now]
    if facts.expiries and not live:
        return [Finding("problem", about, "every secret has expired: all deliveries are refused", "set a new one")]
    if any(moment <= now for moment in ends):
        return [Finding("warn", about, "a secret has expired and proves nothing any more", "take it out")]
    if None not in live and live and max(m for m in live if m is not None) < now + SOON:
        until = datetime.fromtimestamp(max(ends), UTC)
        return [Finding("warn", about, f"the last secret expires on {until:%Y-%m-%d}", "set the one that follows it")]
    return []


def horizon(facts: SourceFacts) -> str:
    """How long an event may come again, and how long it is known."""
    contract = facts.contract
    retries, lister = contract.retries, contract.lister
    parts = []
    if retries.automatic is False:
        parts.append("no retries by itself")
    else:
        parts.append("retries for " + ("an unknown time" if retries.hours is None else _span(retries.hours / 24)))
    if lister.redeliver:
        days = lister.resend_days
        parts.append("resent by hand " + ("at any time" if days is None else f"for {_span(days)}"))
    if lister.list:
        parts.append("listed " + ("for an unknown time" if lister.days is None else f"for {_span(lister.days)}"))
    kept = "for ever" if facts.horizon is None else f"for {_span(facts.horizon / 86400)}"
    return f"may come again: {', '.join(parts)}; known here {kept}"


def _span(days: float) -> str:
    if days < 1 / 24:
        return f"{days * 1440:.0f} min"
    return f"{days * 24:.0f} h" if days < 4 else f"{days:.0f} days"


async def pools(insight: Insight) -> list[Finding]:
    """Whether the application's own connections suffice for its handlers."""
    return [Finding("warn", "connections", says, do) for says, _, do in (s.rpartition(": ") for s in insight.advice)]


async def rejections(insight: Insight) -> list[Finding]:
    """What was refused within the last day."""
    since = datetime.now(UTC) - DAY
    recent = [count for count in await insight.refusal_counts() if count.last_at > since]
    if not recent:
        return [Finding("ok", "rejections", "no request was rejected within the last day")]
    return [_refused(insight, count) for count in recent]


def _refused(insight: Insight, count: RefusalCount) -> Finding:
    about = f"source {count.source}" if count.source else "no source"
    words = insight.receiving.reason(count.reason)
    says = f"{count.count:,} rejected since {count.first_at:%Y-%m-%d}, the last {count.last_at:%H:%M} UTC: {words}"
    do = ""
    if count.source and count.kept:
        do = f"`hookledger rejections --source {count.source}`"
        if count.reason in ("signature_mismatch", "secret_expired") and _provable(insight, count.source):
            do += f"; once the secret is right, `hookledger rejections recheck {count.source}`"
    return Finding("warn", about, says, do)


def _provable(insight: Insight, source: str) -> bool:
    return source in insight.receiving.sources() and insight.receiving.facts(source).unprovable is None


async def quarantine(insight: Insight) -> list[Finding]:
    """Conflicts and known bodies under other ids of the last day that no operator accepted."""
    since = datetime.now(UTC) - DAY
    odd = await insight.odd_deliveries(limit=MOST)
    recent = [one for one in odd if one.received_at > since and one.admitted_as is None]
    if not recent:
        return [Finding("ok", "quarantine", "no delivery was quarantined within the last day")]
    says = f"{len(recent):,} quarantined within the last day: known keys with other content, or known content"
    return [Finding("warn", "quarantine", says, "`hookledger quarantine`; `hookledger keys SOURCE` finds the cause")]


async def pauses(insight: Insight) -> list[Finding]:
    """What workers leave alone, because somebody said so."""
    return judge_pauses(await insight.pauses())


def judge_pauses(found: Sequence[Pause]) -> list[Finding]:
    def one(pause: Pause) -> Finding:
        what = "all of it" if pause.pattern == "*" else f"type {pause.pattern}"
        says = f"{what} is paused since {pause.since:%Y-%m-%d %H:%M} UTC by {pause.actor}: {pause.reason}"
        kind = "" if pause.pattern == "*" else f" '{pause.pattern}'"
        do = f"`hookledger resume {pause.source}{kind}` when it is over"
        return Finding("warn", f"source {pause.source}", says, do)

    return [one(pause) for pause in found] or [Finding("ok", "pauses", "nothing is paused")]


async def jobs(insight: Insight) -> list[Finding]:
    """Bulk work that nobody goes on with."""
    return judge_jobs(await insight.jobs(), datetime.now(UTC))


def judge_jobs(found: Sequence[Job], now: datetime) -> list[Finding]:
    unfinished = [job for job in found if job.unfinished and job.lease_left == 0 and now - job.created_at > FORGOTTEN]
    odd = []
    for job in unfinished:
        says, do = f"{job.open:,} of {job.total:,} events are open, and nobody is at it", "run a worker"
        if job.frozen_at is None:
            says, do = "its set was never completed: it is not run", "make it again"
        odd.append(Finding("warn", f"job {job.id}", says, f"{do}, or `hookledger jobs cancel {job.id}`"))
    if odd:
        return odd
    running = sum(job.unfinished for job in found)
    return [Finding("ok", "jobs", f"{running} under way" if running else "none is under way")]


async def webhooks(insight: Insight) -> list[Finding]:
    """Whether one webhook feeds each source, where the provider says which it is."""
    found: list[Finding] = []
    for name in insight.receiving.sources():
        hooks = await insight.webhooks(name, sample=HOOK_SAMPLE)
        if len(hooks) > 1:
            title = insight.receiving.facts(name).contract.title
            says = f"{len(hooks)} webhooks of {title} feed it: {', '.join(hooks[:5])}"
            do = "give each a source of its own: what both send is recorded once, and which one failed is not told"
            found.append(Finding("warn", f"source {name}", says, do))
    return found


async def reconciled(insight: Insight) -> list[Finding]:
    """When each source was last compared with its provider's log, and what came of it."""
    last = {one.source: one for one in await insight.reconciliations()}
    found: list[Finding] = []
    for name in insight.receiving.sources():
        plan = insight.receiving.plan(name)
        if plan.lister is not None:
            found.append(judge_reconciliation(name, plan, last.get(name), datetime.now(UTC)))
    return found


def judge_reconciliation(name: str, plan: Plan, last: Reconciliation | None, now: datetime) -> Finding:
    about, do = f"source {name}", f"`hookledger reconcile {name} --reason …`"
    if last is None:
        if plan.at is not None:
            do = "is a worker running? It compares at start-up what it missed"
        return Finding("warn", about, "was never compared with its provider's log", do)
    ago = _span(max(0.0, (now - last.started_at).total_seconds() / 86400))
    if last.problem is not None:
        do = f"mend that, then {do}" + ("; a worker tries again" if last.finished_at is None else "")
        return Finding("problem", about, f"the comparison {ago} ago failed: {last.problem}", do)
    if last.leased_until is not None and last.leased_until < now - timedelta(minutes=1):
        return Finding("warn", about, f"a comparison with its provider's log began {ago} ago; nobody ended it", do)
    if last.finished_at is None or last.counts is None:
        return Finding("ok", about, f"a comparison with its provider's log began {ago} ago and is not over")
    says = f"compared with its provider's log {ago} ago: {last.counts.words()}"
    gap = now - last.until
    if gap > timedelta(seconds=plan.look_back):
        hours = int(gap.total_seconds() // 3600) + 1
        do = f"the next one does not go back so far: `hookledger reconcile {name} --since {hours}h --reason …`"
        return Finding("warn", about, says, do)
    if last.counts.failed or last.counts.refused:
        return Finding("warn", about, says, f"`hookledger reconcile {name} --dry-run` names them")
    return Finding("ok", about, says)


CHECKS: dict[str, Check] = {
    "sources": sources,
    "connections": pools,
    "pauses": pauses,
    "jobs": jobs,
    "webhooks": webhooks,
    "reconcile": reconciled,
    "rejections": rejections,
    "quarantine": quarantine,
    "events": trouble.events,
    "circuits": trouble.circuits,
    "alerts": trouble.alerts,
}

"""The doctor's checks of a live inbox. Each is a function in CHECKS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from ...clock import SKEW_LIMIT
from ...errors import ConfigError, HookledgerError
from ...receive.endpoint import Endpoint, with_secrets
from ...receive.reasons import in_words
from ...store import BEFORE_FIRST, SCHEMA_RANGE, is_newer, out_of_range
from ...store.history import Health
from ...store.ops.copy import FORBIDDEN
from ...store.ops.pauses import Pause
from ...store.ops.reconciling import Reconciliation
from ...store.ops.rejections import RejectionCount
from ...store.ops.restores import Restore
from ..context import Context
from ..examine import unprovable
from ..keys.audit import webhooks as seen_webhooks
from ..reconcile.plan import Plan
from . import checked, messages, proof, trouble
from .finding import Finding

SKEW = 5.0
"""Seconds of clock skew that cause a warning."""
SOON = 14 * 86400.0
MOST = 1000
"""Maximum number of quarantined deliveries to count."""
HOOK_SAMPLE = 50
"""Kept requests of a source in which to look for its webhooks."""
DAY = timedelta(days=1)
FORGOTTEN = timedelta(minutes=5)
"""Age after which a job that no worker runs causes a warning."""


Check = Callable[[Context], Awaitable[list[Finding]]]


async def examine(context: Context, *, deep: bool = False, limit: float = 300.0) -> list[Finding]:
    """Run all checks, in order; a check that fails is a finding too.

    `deep`: also the database's check of its file. `limit`: seconds for each of the two long checks.
    """
    found = await database(context)
    if any(finding.level == "problem" for finding in found):
        return found  # other checks would fail alike
    checks: dict[str, Check] = {
        "settings": proof.settings,
        "restore": gap,
        **CHECKS,
        "held": trouble.held,
        "blocked": trouble.blocked,
        "effects": trouble.effects,
        "workers": proof.workers,
        "leases": proof.leases,
        "outbox": proof.outbox,
        "checks": checked.checked,
        "consistency": partial(proof.consistency, limit=limit),
    }
    if deep:
        checks["integrity"] = partial(proof.integrity, limit=limit)
    for about, check in checks.items():
        try:
            found += await check(context)
        except HookledgerError as error:
            found.append(Finding("problem", about, f"the check failed: {error}"))
    return found


async def database(context: Context) -> list[Finding]:
    """Check the schema, whether the database can be written, and its clock."""
    return health_findings(await context.store.health())


def health_findings(health: Health) -> list[Finding]:
    if health.schema != BEFORE_FIRST and health.problem == out_of_range(health.schema):
        do = "run `hookledger migrate`, with the newest release in use"
        return [Finding("problem", "database", health.problem, do)]
    if not health.writable:
        said = health.problem or "no reason given"
        if said.startswith(FORBIDDEN):
            says, _, do = said.partition("; ")
            return [Finding("problem", "database", says, do)]
        says = said if "cannot be written" in said else f"cannot be written: {said}"
        return [Finding("problem", "database", says, "fix that; until then every delivery gets 503")]
    low, high = SCHEMA_RANGE
    of = "newer than this release, and works with it" if is_newer(health.schema) else f"of {low} to {high}"
    found = [Finding("ok", "database", f"can be written; schema {health.schema}, {of}")]
    skew = abs(health.clock_skew)
    says = f"{skew:.1f} s between this host's and the database's"
    if skew > SKEW_LIMIT:
        do = "fix the clock; until then stale deliveries get 503"
        found.append(Finding("problem", "clock", says, do))
    elif skew > SKEW:
        found.append(Finding("warn", "clock", says, "check the time service on both"))
    else:
        found.append(Finding("ok", "clock", says))
    return found


async def gap(context: Context) -> list[Finding]:
    """Check whether the gap after a restore is still open."""
    return gap_findings(await context.store.restores.gap())


def gap_findings(restore: Restore | None) -> list[Finding]:
    if restore is None:
        return []
    says = (
        f"restored on {restore.restored_at:%Y-%m-%d %H:%M} UTC from a backup of "
        f'{restore.backup_at:%Y-%m-%d %H:%M} UTC: effects with repeat="never" wait for an operator'
    )
    do = "reconcile every source, then `hookledger doctor --after-restore --done --reason …`"
    if restore.marked_at is None:
        says, do = "the preparation after a restore was interrupted", "run `hookledger doctor --after-restore` again"
    return [Finding("problem", "restore", says, do)]


async def sources(context: Context) -> list[Finding]:
    """Check each source's secrets, retries and retention of keys."""
    names = context.sources.names
    if not names:
        do = "name the application with --app, or add [sources.NAME] to hookledger.toml"
        return [Finding("warn", "sources", "none is configured here", do)]
    found: list[Finding] = []
    for name in names:
        source, about = context.sources.source(name), f"source {name}"
        if not source.delivered:
            found.append(
                Finding("ok", about, "guards routes of your application by Idempotency-Key; keys kept forever")
            )
            continue
        advice = [line.partition(": ")[2] for line in source.advice()]
        for line in advice:
            says, _, do = line.partition(": ")
            found.append(Finding("warn", about, says, do))
        secrets = secret_findings(source.endpoint, datetime.now(UTC).timestamp())
        if not advice and not secrets:
            found.append(Finding("ok", about, f"{source.endpoint.contract.title}; no issues"))
        found += secrets
        found.append(Finding("ok", about, horizon(source.endpoint)))
    return found


def _why_missing(endpoint: Endpoint) -> str:
    """What the receiver would say of a secret that was not read."""
    try:
        with_secrets(endpoint)
    except ConfigError as error:
        says = str(error).removeprefix(f"source {endpoint.name!r}: ")
        return says.partition(": ")[0]
    return "a secret was not set at the start"


def secret_findings(endpoint: Endpoint, now: float) -> list[Finding]:
    """Find secrets that have expired or soon will."""
    about = f"source {endpoint.name}"
    expiries = [secret.expires_at for secret in endpoint.secrets]
    if 0.0 in expiries:
        return [Finding("warn", about, f"{_why_missing(endpoint)} in this environment", "check that of the receiver")]
    ends = [moment for moment in expiries if moment is not None]
    live = [moment for moment in expiries if moment is None or moment > now]
    if expiries and not live:
        return [Finding("problem", about, "every secret has expired: all deliveries are rejected", "set a new one")]
    if any(moment <= now for moment in ends):
        return [Finding("warn", about, "a secret has expired", "remove it")]
    if None not in live and live and max(m for m in live if m is not None) < now + SOON:
        until = datetime.fromtimestamp(max(ends), UTC)
        return [Finding("warn", about, f"the last secret expires on {until:%Y-%m-%d}", "add its successor")]
    return []


def horizon(endpoint: Endpoint) -> str:
    """Return how long a provider may redeliver an event, and how long its key is kept."""
    contract, horizon = endpoint.contract, endpoint.settings.horizon
    retries, lister = contract.retries, contract.lister
    parts = []
    if retries.automatic is False:
        parts.append("no automatic retries")
    else:
        parts.append("retries for " + ("an unknown time" if retries.hours is None else _span(retries.hours / 24)))
    if lister.redeliver:
        days = lister.resend_days
        parts.append("manual redelivery " + ("at any time" if days is None else f"for {_span(days)}"))
    if lister.list:
        parts.append("listed " + ("for an unknown time" if lister.days is None else f"for {_span(lister.days)}"))
    kept = "forever" if horizon is None else f"for {_span(horizon / 86400)}"
    return f"redelivery possible: {', '.join(parts)}; key kept {kept}"


def _span(days: float) -> str:
    if days < 1 / 24:
        return f"{days * 1440:.0f} min"
    return f"{days * 24:.0f} h" if days < 4 else f"{days:.0f} days"


async def pools(context: Context) -> list[Finding]:
    """Check whether the application's connection pool suffices for its handlers."""
    advice = [line.rpartition(": ") for line in context.application.advice]
    return [Finding("warn", "connections", says, do) for says, _, do in advice]


async def rejections(context: Context) -> list[Finding]:
    """Report requests rejected within the last day."""
    since = datetime.now(UTC) - DAY
    recent = [count for count in await context.store.rejections.rejection_counts() if count.last_at > since]
    if not recent:
        return [Finding("ok", "rejections", "no request was rejected within the last day")]
    return [_refused(context, count) for count in recent]


def _refused(context: Context, count: RejectionCount) -> Finding:
    about = f"source {count.source}" if count.source else "no source"
    words = in_words(count.reason)
    says = f"{count.count:,} rejected since {count.first_at:%Y-%m-%d}, the last {count.last_at:%H:%M} UTC: {words}"
    do = ""
    if count.source and count.kept:
        do = f"`hookledger rejections --source {count.source}`"
        if count.reason in ("signature_mismatch", "secret_expired") and _provable(context, count.source):
            do += f"; once the secret is right, `hookledger rejections recheck {count.source}`"
    return Finding("warn", about, says, do)


def _provable(context: Context, source: str) -> bool:
    return source in context.sources.names and unprovable(context.sources.endpoint(source)) is None


async def quarantine(context: Context) -> list[Finding]:
    """Report deliveries of the last day that are still quarantined. The caller of a guarded route was told so."""
    guards = {name for name in context.sources.names if not context.sources.source(name).delivered}
    since = datetime.now(UTC) - DAY
    found = await context.store.quarantine.quarantined(limit=MOST)
    recent = [
        one for one in found if one.received_at > since and one.accepted_as is None and one.source not in guards
    ]
    if not recent:
        return [Finding("ok", "quarantine", "no delivery was quarantined within the last day")]
    says = f"{len(recent):,} quarantined within the last day: known keys with other content, or known content"
    return [Finding("warn", "quarantine", says, "`hookledger quarantine`; `hookledger keys SOURCE` finds the cause")]


async def pauses(context: Context) -> list[Finding]:
    """Report what is paused."""

    def one(pause: Pause) -> Finding:
        what = "all of it" if pause.pattern == "*" else f"type {pause.pattern}"
        says = f"{what} is paused since {pause.since:%Y-%m-%d %H:%M} UTC by {pause.actor}: {pause.reason}"
        kind = "" if pause.pattern == "*" else f" '{pause.pattern}'"
        do = f"`hookledger resume {pause.source}{kind} --reason …` to continue"
        return Finding("warn", f"source {pause.source}", says, do)

    found = await context.store.pauses.pauses()
    return [one(pause) for pause in found] or [Finding("ok", "pauses", "nothing is paused")]


async def jobs(context: Context) -> list[Finding]:
    """Report bulk jobs that no worker runs."""
    found, now = await context.store.jobs.jobs(), datetime.now(UTC)
    unfinished = [job for job in found if job.unfinished and job.lease_left == 0 and now - job.created_at > FORGOTTEN]
    idle = []
    for job in unfinished:
        says, do = f"{job.open:,} of {job.total:,} events remain; no worker runs the job", "run a worker"
        if job.frozen_at is None:
            says, do = "its set of events is incomplete: it never runs", "plan it again"
        idle.append(Finding("warn", f"job {job.id}", says, f"{do}, or `hookledger jobs cancel {job.id}`"))
    if idle:
        return idle
    running = sum(job.unfinished for job in found)
    return [Finding("ok", "jobs", f"{running} running" if running else "none is running")]


async def webhooks(context: Context) -> list[Finding]:
    """Check that only one webhook feeds each source, if the provider names it."""
    found: list[Finding] = []
    for name in context.sources.names:
        hooks = await seen_webhooks(context, name, sample=HOOK_SAMPLE)
        if len(hooks) > 1:
            title = context.sources.endpoint(name).contract.title
            says = f"{len(hooks)} webhooks of {title} feed it: {', '.join(hooks[:5])}"
            do = "give each its own source: an event of both is recorded once, and which webhook failed is not shown"
            found.append(Finding("warn", f"source {name}", says, do))
    return found


async def reconciled(context: Context) -> list[Finding]:
    """Report each source's last comparison with its provider's log."""
    last = {one.source: one for one in await context.store.reconciling.last()}
    found: list[Finding] = []
    for name in context.sources.names:
        plan = context.sources.source(name).plan()
        if plan.lister is not None:
            found.append(reconciliation_finding(name, plan, last.get(name), datetime.now(UTC)))
    return found


def reconciliation_finding(name: str, plan: Plan, last: Reconciliation | None, now: datetime) -> Finding:
    about, do = f"source {name}", f"`hookledger reconcile {name} --reason …`"
    if last is None:
        if plan.at is not None:
            do = "run a worker: at start-up it makes up the comparison it missed"
        return Finding("warn", about, "was never compared with its provider's log", do)
    ago = _span(max(0.0, (now - last.started_at).total_seconds() / 86400))
    if last.problem is not None:
        do = f"fix that, then {do}" + ("; a worker tries again" if last.finished_at is None else "")
        return Finding("problem", about, f"the comparison {ago} ago failed: {last.problem}", do)
    if last.leased_until is not None and last.leased_until < now - timedelta(minutes=1):
        return Finding("warn", about, f"a comparison with its provider's log began {ago} ago and was interrupted", do)
    if last.finished_at is None or last.counts is None:
        return Finding("ok", about, f"a comparison with its provider's log began {ago} ago and is running")
    says = f"compared with its provider's log {ago} ago: {last.counts.words()}"
    gap = now - last.until
    if gap > timedelta(seconds=plan.look_back):
        hours = int(gap.total_seconds() // 3600) + 1
        do = f"the next one does not reach back that far: `hookledger reconcile {name} --since {hours}h --reason …`"
        return Finding("warn", about, says, do)
    if last.counts.failed or last.counts.not_importable:
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
    "guards": trouble.guards,
    "circuits": trouble.circuits,
    "alerts": trouble.alerts,
    "alert messages": messages.alert_messages,
}

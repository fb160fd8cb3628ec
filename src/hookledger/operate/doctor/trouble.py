"""Reports failures: failed events, unknown outcomes, overdue effects, open circuits. Part of `doctor`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import astuple

from ...states import CircuitState, EffectState, State
from ...store.ops.attention import MOST, ListedEffect, Tally
from ...store.ops.circuits import Circuit
from ...store.ops.entities import Blocking
from ...store.ops.guards import MOST as MOST_TIES
from ...store.ops.guards import Ties
from ..context import Context
from ..workers import any_works, handled_by, handles, live_workers
from .finding import Finding, Level

LATE = 300.0
"""Seconds after which an unknown outcome is a problem though its policy handles it, and an outbox entry is overdue.
"""
SAMPLE = 100
"""Maximum number of unknown effects whose age is read."""
TIES = 5
"""Maximum number of guards with ties that are listed."""
NAMED = 10
"""Maximum number of alerts listed."""


async def events(context: Context) -> list[Finding]:
    """Report events that are failed, in review or retrying."""
    told: dict[State, tuple[Level, str, str]] = {
        State.FAILED: (
            "problem",
            "failed",
            "`hookledger failures` groups them by cause; then `hookledger bulk retry --state failed --reason WHY`",
        ),
        State.NEEDS_REVIEW: (
            "problem",
            "in review: an operator must decide",
            "`hookledger events --state needs_review`, then `hookledger show ID`",
        ),
        State.RETRYING: ("warn", "retrying after a failure", "`hookledger failures` says why"),
    }
    found = []
    for state, (level, what, do) in told.items():
        tally = await context.store.attention.events(state)
        if tally.count:
            found.append(Finding(level, "events", f"{tally.words} {what}{_oldest(tally)}", do))
    return found or [Finding("ok", "events", "none is failed, in review or retrying")]


async def held(context: Context) -> list[Finding]:
    """Report ordered events that wait for a decision about an earlier one."""
    found = await context.store.entities.held()
    return [
        Finding(
            "warn",
            f"source {one.kind.source}",
            f"{one.count:,} events of type {one.kind.type} are held: an earlier one of their entity has failed or is "
            f"in review; the oldest came {one.since:%Y-%m-%d %H:%M} UTC",
            "retry, replay or discard that one; `hookledger show ID` of a held event names it",
        )
        for one in found
    ]


async def blocked(context: Context) -> list[Finding]:
    """Report ordered types that no live worker handles while events of their entities wait behind them. Without any
    live worker all events wait: another finding."""
    if not (patterns := handled_by(await live_workers(context))):
        return []
    kinds = {one.kind for one in await context.store.waiting()}
    unhandled = [kind for kind in sorted(kinds, key=astuple) if not handles(patterns, kind)]
    return blocked_findings(await context.store.entities.blocked_by(unhandled) if unhandled else [])


def blocked_findings(found: Sequence[Blocking]) -> list[Finding]:
    return [_blocked(one) for one in found]


def _blocked(one: Blocking) -> Finding:
    about, kind = f"source {one.kind.source}", one.kind
    says = (
        f"no live worker handles type {kind}, which has its turn in {one.entities:,} "
        f"entit{'y' if one.entities == 1 else 'ies'}: what follows there waits, since {one.since:%Y-%m-%d %H:%M} UTC"
    )
    where = f"--source {shlex.quote(kind.source)} --type {shlex.quote(kind.type)}"
    if kind.version:
        do = (
            f"run a worker that handles it, or `hookledger bulk discard {where} --version {shlex.quote(kind.version)}"
        )
        return Finding("problem", about, says, f"{do} --reason WHY`")
    do = "run a worker that handles it, or take it out of `ordered`; else it is skipped after `work.unhandled_after`"
    if not one.retrying:
        return Finding("warn", about, says, do)
    where += " --state retrying"
    do = f"run a worker that handles it, or `hookledger bulk discard {where} --reason WHY`"
    return Finding("problem", about, f"{says}; {one.retrying:,} of these are retrying, and never skipped", do)


async def effects(context: Context) -> list[Finding]:
    """Report effects that are unknown, failed or overdue."""
    trouble = context.store.attention
    unknown = await trouble.tally(EffectState.UNKNOWN)
    failed = await trouble.tally(EffectState.FAILED, outbox=True)
    found = unknown_findings(unknown, await trouble.oldest(EffectState.UNKNOWN, SAMPLE) if unknown else [])
    found += failed_findings(failed, await trouble.oldest(EffectState.FAILED, 1, outbox=True) if failed else [])
    alive = await any_works(context)
    found += overdue_findings(await trouble.overdue(LATE), alive)
    return found or [Finding("ok", "effects", "none is unknown, failed or overdue")]


async def guards(context: Context) -> list[Finding]:
    """Report guards at which two events had the same version."""
    return tie_findings(await context.store.guards.ties(TIES))


def tie_findings(ties: Ties) -> list[Finding]:
    """Ties are no fault, and what decided them is usually right: only the provider knows."""
    if not ties.latest:
        return [Finding("ok", "guards", "no two events had the same version")]
    more = " or more" * (ties.count >= MOST_TIES)
    named = ", ".join(f"{guard.label} ({guard.ties:,})" for guard in ties.latest)
    says = (
        f"at {ties.count:,}{more} guard{'s' * (ties.count != 1)} events had the same version, and type or arrival "
        f"decided, last at {named}"
    )
    return [Finding("ok", "guards", says, "where the difference matters, fetch: event.current(), or a finer version")]


def unknown_findings(count: int, first: Sequence[ListedEffect]) -> list[Finding]:
    if not first:  # none, or settled since the count
        return []
    oldest = min(first, key=lambda one: one.since)
    is_left = [one for one in first if one.effect.due_at is None and one.effect.leased_until is None]
    is_late = (datetime.now(UTC) - oldest.since).total_seconds() > LATE
    says = f"{_number(count)} with an unknown outcome{_oldest_effect(oldest)}"
    do = f"`hookledger effects --state unknown`; `hookledger show {oldest.effect.event_id}` says how to decide"
    if is_left and count <= SAMPLE:
        says += f"; {len(is_left):,} wait for a decision, others are tried again" * (len(is_left) < count)
    if is_left or is_late:
        return [Finding("problem", "effects", says, do)]
    return [Finding("warn", "effects", f"{says}; their policies handle them", do)]


def failed_findings(count: int, first: Sequence[ListedEffect]) -> list[Finding]:
    if not first:
        return []
    says = f"{_number(count)} of the outbox failed{_oldest_effect(first[0])}"
    do = f"`hookledger effects --state failed`; `hookledger show {first[0].effect.event_id}`"
    return [Finding("problem", "effects", says, do)]


def overdue_findings(overdue: Tally, alive: bool) -> list[Finding]:
    if not overdue.count:
        return []
    says = f"{overdue.words} planned and due for more than {LATE / 60:.0f} min{_oldest(overdue)}"
    do = "`hookledger effects --state planned`; "
    do += "check for an open circuit, or an earlier entry of the lane" if alive else "run `hookledger work`"
    return [Finding("warn" if alive else "problem", "effects", says, do)]


async def circuits(context: Context) -> list[Finding]:
    """Report circuits that are not closed."""
    return circuit_findings(await context.store.circuits.all())


def circuit_findings(known: Sequence[Circuit]) -> list[Finding]:
    return [_circuit(one) for one in known if one.state is not CircuitState.CLOSED] or [
        Finding("ok", "circuits", "all closed")
    ]


def _circuit(circuit: Circuit) -> Finding:
    since = f"since {circuit.changed_at:%Y-%m-%d %H:%M} UTC: {circuit.reason or 'no reason given'}"
    reset = f"`hookledger circuits reset {shlex.quote(circuit.downstream)} --reason WHY`"
    about, do = f"circuit {circuit.downstream}", f"`hookledger circuits`; {reset}"
    if circuit.retry_in is None:
        return Finding("warn", about, f"tripped by an operator {since}", f"{do} when calls may resume")
    level: Level = "problem" if circuit.state is CircuitState.OPEN else "warn"
    words = f"{circuit.state.replace('_', '-')} {since}"
    return Finding(level, about, words, f"{do} allows calls immediately; else they resume automatically")


async def alerts(context: Context) -> list[Finding]:
    """Report alerts: contradicted decisions, and events redelivered too often."""
    trouble = context.store.attention
    said = [(one.id, f"{one.state}: {one.alert}") for one in await trouble.alerts(NAMED + 1)]
    of_effects = await trouble.effect_alerts(NAMED + 1)
    said += [(one.event_id, f"effect {one.label}: {one.alert}") for one in of_effects]
    found = [
        Finding("problem", f"event {ident}", words, f"`hookledger show {ident}`") for ident, words in said[:NAMED]
    ]
    if len(said) > NAMED:
        found.append(Finding("problem", "alerts", "there are more alerts", "`hookledger events --attention`"))
    return found or [Finding("ok", "alerts", "none")]


def _number(count: int) -> str:
    return f"{count:,}{' or more' * (count >= MOST)}"


def _oldest(tally: Tally) -> str:
    return f", the oldest since {tally.since:%Y-%m-%d %H:%M} UTC: {tally.oldest}" if tally.since else ""


def _oldest_effect(oldest: ListedEffect) -> str:
    effect = oldest.effect
    return f", the oldest since {oldest.since:%Y-%m-%d %H:%M} UTC: {effect.label} of {effect.event_id}"

"""`hookledger keys`: check whether a source's key fits its deliveries."""

from __future__ import annotations

import click
import msgspec
from rich.text import Text

from ..inbox import Inbox
from ..operate.keys.audit import KeyReport, audit_keys
from ..operate.keys.fit import Fit
from ..states import KeyOrigin
from ..store.ops.key_audit import KeyGroup
from .common import inbox_options, print_json, prints_json, run_on, table_console
from .table import Listing, number, say

ORIGINS = {
    KeyOrigin.SIGNED_ID: "by signed id",
    KeyOrigin.UNSIGNED_ID: "by unsigned id",
    KeyOrigin.COMPOSITE: "by several fields",
    KeyOrigin.FUNCTION: "by the source's function",
    KeyOrigin.DIGEST: "by content, without a key",
    KeyOrigin.ARRIVAL: "each an arrival",
    KeyOrigin.QUARANTINE: "accepted by an operator",
}
ENOUGH = 10
"""Minimum of kept requests from which a rule is proposed."""
SHOWN = 3


@click.command()
@click.argument("source")
@click.option("--last", default=10_000, type=click.IntRange(1, 1_000_000), help="Number of newest events to read.")
@click.option("--sample", default=1000, type=click.IntRange(0, 10_000), help="Kept requests to try rules on.")
@inbox_options
@prints_json
def keys(inbox: Inbox, source: str, last: int, sample: int, as_json: bool) -> None:
    """Audit a source's event keys

    Reads live data, changes nothing, and proposes a key rule that fits. A key is too narrow if the same content has
    several keys, so that a redelivery is processed again; too wide if different contents have one key, so that an
    event counts as a duplicate.
    """
    report = run_on(inbox, lambda context: audit_keys(context, source, last=last, sample=sample))
    if as_json:
        values = msgspec.to_builtins(report)
        for one, shown in zip(report.fits, values["fits"], strict=True):
            shown["fits"] = one.fits
        print_json(values)
        return
    declared = inbox.examiner.source(source)
    for line in _words(report, hint=declared.endpoint.contract.hint, delivered=declared.delivered):
        say(line, table_console())
    if report.fits:
        _print_fits(report)


def _words(report: KeyReport, *, hint: bool, delivered: bool) -> list[str]:
    audit = report.audit
    if not audit.events:
        return ["No events of this source yet."]
    origins = ", ".join(f"{count:,} {ORIGINS[origin]}" for origin, count in sorted(audit.origins.items()))
    lines = [f"{_many(audit.events, 'event')} from {_many(audit.deliveries, 'delivery')}: {origins}."]
    if hint:
        return [*lines, "This provider's events are only hints that something changed: there are no keys to check."]
    if not delivered:
        reused = f"Requests with a used key and other content, which got 422: {_many(audit.conflicts, 'request')}."
        return [*lines, "Callers choose their keys: there is no rule to check.", reused]
    rule = " + ".join(report.rule)
    lines += [f"The key now: {rule}." if rule else "There is no key field: the content is the key."]
    lines += [f"Plain duplicates: {_many(audit.duplicates, 'delivery')}."]
    alike = _many(audit.same_content, "event")
    lines += [f"Same content under several keys, which may be too narrow: {alike}."]
    lines += _samples(audit.same_content_groups, "events are alike")
    if audit.same_bodies or report.changing:
        bodies = _many(audit.same_bodies, "delivery")
        lines += [f"Known content under another id of the provider's, so the id may change: {bodies}."]
        lines += _samples(audit.same_body_groups, "with the content of one event")
        lines += _samples(report.changing, "events with the same content have different ids")
    lines += [
        f"Other content under a known key, which may be too wide, or a field is volatile: "
        f"{_many(audit.conflicts, 'delivery')}."
    ]
    lines += _samples(audit.conflict_groups, "against one event")
    return [*lines, *_advice(report)]


def _many(count: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count:,} {word if count == 1 else plural}"


def _samples(groups: tuple[KeyGroup, ...], each: str) -> list[str]:
    lines = [f"    {g.count:,} {each}: {g.type}, {', '.join(map(str, g.sample))}" for g in groups[:SHOWN]]
    return [*lines, *([f"    and {len(groups) - SHOWN} more such groups"] if len(groups) > SHOWN else [])]


def _advice(report: KeyReport) -> list[str]:
    if not report.fits:
        return []
    own, *others = report.fits
    seen = f"{report.looked_at:,} kept requests"
    fitting = [one for one in others if one.fits]
    lines = []
    if own.fits:
        lines.append(f"Tried on {seen}: the source's own rule fits.")
    elif report.looked_at < ENOUGH:
        lines.append(f"Tried on {seen}: too few to propose a rule.")
    elif fitting:
        lines.append(f"Tried on {seen}: the source's own rule does not fit; this would: {_toml(fitting[0])}")
    else:
        lines.append(f"Tried on {seen}: neither the source's own rule nor any single field fits all of them.")
    if not report.repeated:
        lines.append(
            "No content arrived twice among these, so it is not known whether an id stays the same on redelivery."
        )
    return lines


def _toml(one: Fit) -> str:
    return f"key = {msgspec.json.encode(one.rule).decode().replace(',', ', ')}"


def _print_fits(report: KeyReport) -> None:
    counted = (number("keys"), number("contents"), number("too narrow"), number("too wide"), number("without"))
    title = f"Rules, tried on {report.looked_at:,} kept requests"
    listing = Listing("rule", "verdict", *counted, heads=2, title=title)
    for one in report.fits:
        name = "the source's own" if one.own else _toml(one)
        verdict = Text("fits", "green") if one.fits else Text("does not fit", "red")
        counts = (one.keys, one.contents, one.narrow, one.wide, one.missing)
        listing.add(name, verdict, *(f"{count:,}" for count in counts))
    listing.print()
    say(
        "Too narrow: contents with several keys. Too wide: keys with several contents. "
        "Without: events without the field. Duplicates' bodies are not kept, "
        "so a field that only looks unique fits too: check the provider's documentation."
    )

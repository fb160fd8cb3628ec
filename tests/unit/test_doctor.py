"""What the doctor makes of the books, the leases, the workers and the database's settings."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from hookledger.model import Kind, Pattern, Waiting
from hookledger.operate.doctor.checks import health_findings
from hookledger.operate.doctor.finding import Finding
from hookledger.operate.doctor.proof import (
    consistency_findings,
    lease_findings,
    setting_findings,
    source_findings,
    unhandled_findings,
    worker_findings,
)
from hookledger.operate.doctor.trouble import blocked_findings, circuit_findings
from hookledger.states import CircuitState
from hookledger.store import SCHEMA_RANGE, out_of_range
from hookledger.store.history import Health
from hookledger.store.ops.circuits import Circuit
from hookledger.store.ops.consistency import ENTRIES, TOTAL, ConsistencyReport, Violation, balance
from hookledger.store.ops.entities import Blocking
from hookledger.store.ops.workers import WorkerInfo

GOOD = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "data_checksums": "on",
}
WAL = {"journal_mode": "wal", "synchronous": "2"}
WORKER = WorkerInfo("w", (Pattern("stripe", "*"),), 3.0)


def waiting(due_in: float, name: str = "invoice.paid") -> Waiting:
    return Waiting(Kind("stripe", name), due_in)


def levels(found: list[Finding]) -> list[str]:
    return [finding.level for finding in found]


def books(*oddities: Violation, accepted: int = 1200) -> ConsistencyReport:
    figures = {
        "deliveries": {"accepted": accepted, "duplicate": 7, "invalid": 3},
        "events": {"processed": 1200, "failed": 5},
        "quarantine": {"quarantine": 2},
        "attempts": {"processed": 1200},
        "effects": {"done": 1},
        "calls": {"done": 1},
    }
    return balance(figures, list(oddities))


def test_balanced_books_show_their_figures() -> None:
    [found] = consistency_findings(books())
    assert found.level == "ok"
    assert found.says == (
        "1,203 deliveries that made an event + 2 accepted from quarantine = 1,205 events (5 failed, 1,200 processed)"
        "; "
        "1,200 attempts, 1 effect, 1 call: all accounted for"
    )


def test_books_that_do_not_add_up() -> None:
    total, lost = consistency_findings(books(Violation("deliveries_without_event", 9, tuple("abcde")), accepted=1209))
    assert (total.level, lost.level) == ("problem", "problem")
    assert total.says.startswith(
        "1,212 deliveries that made an event + 2 accepted from quarantine, but there are 1,205 events"
    )
    assert lost.says == "9 deliveries made events that are not there: a, b, c, d, e …"
    assert "Have the provider redeliver" in lost.do


@pytest.mark.parametrize("kind", [TOTAL, *ENTRIES])
def test_each_imbalance_says_what_to_do(kind: str) -> None:
    accounts = msgspec.structs.replace(books(), imbalances=(Violation(kind, 1, ("id",)),))
    [found] = consistency_findings(accounts)
    assert found.level == "problem"
    assert "keep a copy" in found.do


def test_leases() -> None:
    assert levels(lease_findings([], 60.0)) == ["ok"]
    [found] = lease_findings([Violation("stuck_effects", 2, ("id charge:1", "id charge:2"))], 60.0)
    assert found.level == "problem"
    assert found.says == "2 effects whose lease ran out more than 75 s ago: id charge:1, id charge:2"


def test_workers() -> None:
    dead = msgspec.structs.replace(WORKER, seen_ago=61.0)
    left = msgspec.structs.replace(WORKER, left=True)
    assert levels(worker_findings([], [], 60.0)) == ["warn"], "the next event would wait"
    assert levels(worker_findings([], [], 60.0, is_idle=True)) == ["ok"], "every source only observes"
    assert levels(worker_findings([dead], [waiting(20.0)], 60.0)) == ["warn"], "nothing is due yet"
    assert levels(worker_findings([left], [waiting(-20.0)], 60.0)) == ["problem"]
    assert levels(worker_findings([WORKER, dead], [waiting(-20.0)], 60.0)) == ["ok"]
    [none] = worker_findings([dead], [waiting(-20.0)], 60.0)
    assert (none.level, "for 20 s: stripe invoice.paid" in none.says) == ("problem", True)
    [late] = worker_findings([WORKER], [waiting(-7200.0), waiting(-1.0, "other")], 60.0)
    assert (late.level, late.says) == ("warn", "1 alive, but events are due for up to 2 h: stripe invoice.paid")
    many = [waiting(-1.0, f"t{n}") for n in range(7)]
    assert "and 2 more" in worker_findings([], many, 60.0)[0].says


def test_types_without_a_handler() -> None:
    old = msgspec.structs.replace(WORKER, handles=(Pattern("stripe", "invoice.*"),))
    queue = [waiting(-7200.0, "charge.refunded"), waiting(20.0, "customer.created"), waiting(-1.0)]
    [found] = unhandled_findings([old], queue, 60.0)
    assert (found.level, found.about) == ("warn", "source stripe")
    assert found.says == "no handler: events wait, and no live worker handles them: charge.refunded, customer.created"
    assert "`hookledger lag`" in found.do
    assert levels(worker_findings([old], queue, 60.0)) == ["ok"], "more workers would not help"
    assert unhandled_findings([WORKER], queue, 60.0) == []
    for handles in ((), (Pattern("github", "*"),)):
        other = msgspec.structs.replace(WORKER, handles=handles)
        assert unhandled_findings([other], queue, 60.0) == [], "that the source is not served is said already"
    assert unhandled_findings([], queue, 60.0) == [], "and that none is alive"
    many = [waiting(-1.0, f"t{n}") for n in range(7)]
    assert "and 2 more" in unhandled_findings([old], many, 60.0)[0].says


def test_versions_without_a_handler() -> None:
    """They are another finding than types: they are never skipped."""
    worker = msgspec.structs.replace(WORKER, handles=(Pattern("stripe", "invoice.paid", "2024-*"),))
    kinds = [Kind("stripe", "invoice.paid", version) for version in ("2023-10-16", "2024-06-20", "")]
    queue = [Waiting(kind, -1.0) for kind in (*kinds, Kind("stripe", "charge.refunded", "2024-06-20"))]
    versions, types = unhandled_findings([worker], queue, 60.0)
    assert versions.says.startswith("no handler of this version: events wait until there is one")
    assert versions.says.endswith(": invoice.paid in version 2023-10-16, invoice.paid without a version")
    assert types.says.endswith("handles them: charge.refunded in version 2024-06-20")


def test_a_source_that_only_other_workers_could_serve() -> None:
    old = msgspec.structs.replace(WORKER, handles=(Pattern("github", "*"),))
    assert source_findings([WORKER], [waiting(-20.0)], ["stripe"], 60.0) == []
    assert source_findings([], [waiting(-20.0)], ["stripe"], 60.0) == [], "that none is alive is said already"
    [due] = source_findings([old], [waiting(-20.0), waiting(-1.0, "other")], ["stripe"], 60.0)
    assert (due.level, due.about) == ("problem", "source stripe")
    assert due.says == (
        "no live worker serves it, and events are due, the first for 20 s: stripe invoice.paid, stripe other"
    )
    assert levels(source_findings([old], [waiting(9.0)], ["stripe", "github"], 60.0)) == ["warn"]
    assert levels(source_findings([old], [], ["stripe", "shop"], 60.0)) == ["warn", "warn"]
    assert levels(source_findings([old], [waiting(-20.0)], [], 60.0)) == ["problem"], "whatever is configured here"


def test_entities_that_a_type_without_a_handler_blocks() -> None:
    since = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    kind = Kind("stripe", "customer.deleted")
    [pending] = blocked_findings([Blocking(kind, 2, 0, since)])
    assert (pending.level, pending.about) == ("warn", "source stripe")
    assert pending.says == (
        "no live worker handles type customer.deleted, which has its turn in 2 entities: what follows there waits, "
        "since 2026-01-31 12:30 UTC"
    )
    assert "work.unhandled_after" in pending.do
    [forever] = blocked_findings([Blocking(kind, 1, 1, since)])
    assert (forever.level, "in 1 entity:" in forever.says) == ("problem", True)
    assert "bulk discard --source stripe --type customer.deleted --state retrying" in forever.do
    assert blocked_findings([]) == []


def circuit(state: CircuitState, retry_in: float | None) -> Circuit:
    return Circuit("bank", state, 5, retry_in, "ConnectionRefusedError", datetime(2026, 1, 31, 12, 30, tzinfo=UTC))


def test_circuits() -> None:
    assert levels(circuit_findings([])) == levels(circuit_findings([circuit(CircuitState.CLOSED, None)])) == ["ok"]
    [found] = circuit_findings([circuit(CircuitState.OPEN, 12.0)])
    assert (found.level, found.about) == ("problem", "circuit bank")
    assert found.says == "open since 2026-01-31 12:30 UTC: ConnectionRefusedError"
    assert "hookledger circuits" in found.do
    assert levels(circuit_findings([circuit(CircuitState.HALF_OPEN, 0.0)])) == ["warn"]
    [tripped] = circuit_findings([circuit(CircuitState.OPEN, None)])
    assert (tripped.level, tripped.says.startswith("tripped by an operator")) == ("warn", True)


def test_a_database_that_is_away_needs_no_migration() -> None:
    [found] = health_findings(
        Health(False, 0, 0.0, "SQLite: inbox.db cannot be written: its disk is mounted read-only")
    )
    assert (found.level, found.says.count("cannot be written"), "migrate" in found.do) == ("problem", 1, False)
    newer = SCHEMA_RANGE[1] + 1
    [schema] = health_findings(Health(False, newer, 0.0, out_of_range(newer)))
    assert (schema.level, "hookledger migrate" in schema.do) == ("problem", True)


@pytest.mark.parametrize(
    ("known", "level", "word"),
    [
        (GOOD, "ok", "fsync = on"),
        (GOOD | {"fsync": "off"}, "problem", "fsync = off"),
        (GOOD | {"full_page_writes": "off"}, "problem", "half written"),
        (GOOD | {"synchronous_commit": "off"}, "warn", "committed with `on` all the same"),
        (GOOD | {"synchronous_commit": "remote_apply"}, "ok", "remote_apply"),
        (GOOD | {"default_transaction_isolation": "serializable"}, "problem", "read committed"),
        (WAL, "ok", "journal_mode = wal"),
        (WAL | {"journal_mode": "delete"}, "problem", "journal_mode = delete"),
        (WAL | {"synchronous": "1"}, "problem", "power fails"),
    ],
)
def test_settings(known: dict[str, str], level: str, word: str) -> None:
    [found] = setting_findings(known)
    assert (found.level, word in found.says) == (level, True)
    assert (found.do == "") is (level == "ok")

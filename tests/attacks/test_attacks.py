"""Forty signed deliveries a second go on while strangers attack: each is acked at its first attempt and on disk."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.attackers import ATTACKS
from tests.attacks.conftest import COLUMNS
from tests.crash.conftest import Install
from tests.crash.processes import Installation, Process, event
from tests.soak import LONG

RATE = 40
MOST_MEMORY = 300.0
"""Megabytes, of the receiver and the process that writes for it."""
MOST_LATENCY = 0.25
"""Seconds, for 99 of 100 deliveries; asked only where the machine is quiet."""

Tell = Callable[[str, object], None]


def deliveries(count: int) -> list[dict[str, Any]]:
    """Over three sources; every tenth is as large as a body may be that is never turned away for its size."""
    sources = ("stripe", "github", "standard")
    padding = "x" * 60_000
    return [
        event(f"legit_{n:05}", "order", sources[n % 3], **({"padding": padding} if n % 10 == 0 else {}))
        for n in range(count)
    ]


def megabytes(process: Process, what: str) -> float:
    """`VmHWM` is the peak since the start, `VmRSS` what is resident now; of the process and its children."""
    total = 0
    for pid in (process.pid, *process.children()):
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.partition(f"{what}:")[2].split()[0])
    return total / 1024


def deliver(installation: Installation, seconds: float) -> tuple[Process, Path, list[str]]:
    """A provider at work, its log, and the ids that it sends."""
    events = deliveries(round(RATE * seconds))
    plan, log = installation.folder / "deliveries.json", installation.folder / "deliveries.jsonl"
    plan.write_text(json.dumps({"port": installation.port, "rate": RATE, "events": events}))
    process = installation._start("provider", "tests.attacks.provider", str(plan), str(log))
    return process, log, [one["id"] for one in events]


# proves R10
@pytest.mark.parametrize("name", list(ATTACKS))
def test_attack(name: str, install: Install, attacked_url: str, attack_seconds: float, record_property: Tell) -> None:
    installation = install(attacked_url)
    installation.use("tests.attacks.app:inbox")
    receiver = installation.receive()
    installation.send(event("first"))  # the process that writes has started then
    arguments = (name, str(installation.port), str(attack_seconds + 1))
    attacker = installation._start("attack", "tests.attacks.attackers", *arguments)
    provider, log, sent = deliver(installation, attack_seconds)
    assert provider.exit_code(attack_seconds + 60) == 0
    assert attacker.exit_code(attack_seconds + 60) == 0

    answers = [json.loads(line) for line in log.read_text().splitlines()]
    acked = [answer["id"] for answer in answers if 200 <= answer["status"] < 300]
    latencies = sorted(answer["seconds"] for answer in answers)
    p99 = latencies[round(0.99 * (len(latencies) - 1))]
    done = json.loads(attacker.log.splitlines()[-1])
    peak, end = megabytes(receiver, "VmHWM"), megabytes(receiver, "VmRSS")
    store = attacked_url.partition(":")[0]
    figures = (name, store, len(sent), len(acked), round(p99 * 1000), round(peak), round(end), done)
    for column, value in zip(COLUMNS, figures, strict=True):
        record_property(column, value)

    assert done["connections"] >= ATTACKS[name].connections / 2, "the attack did not take place"
    assert sorted(acked) == sorted(sent), [answer for answer in answers if answer["id"] not in acked]
    kept = installation.database.rows("SELECT key FROM {h}events")
    assert sorted(row["key"] for row in kept) == sorted(["first", *sent]), "all that was acked, and nothing forged"
    assert receiver.running
    assert peak < MOST_MEMORY
    if LONG:
        assert p99 < MOST_LATENCY

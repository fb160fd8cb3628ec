"""A real Prometheus scrapes Hookledger under load, with the rules of deploy/prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Install, install  # noqa: F401 - a fixture
from tests.crash.processes import Process, events, eventually
from tests.deploy.expressions import PROMETHEUS, alerts, metrics, recorded
from tests.services.brought import brought
from tests.services.ports import free_port
from tests.services.prometheus import Prometheus

SETTINGS = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: hookledger
    static_configs: [{{ targets: [{targets}] }}]
"""
LOAD = 300

Watch = Callable[..., Prometheus]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Starts a Prometheus that scrapes these ports."""
    started: list[Prometheus] = []

    def start(*ports: int) -> Prometheus:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        settings = SETTINGS.format(rules=PROMETHEUS / "rules.yml", targets=targets)
        started.append(brought(lambda: Prometheus(folder, settings)).__enter__())
        return started[-1]

    yield start
    for one in started:
        one.__exit__()


def seen(prometheus: Prometheus, expression: str) -> float | None:
    """The only value of an expression, or None."""
    found = prometheus.value(expression)
    return found[0][1] if len(found) == 1 else None


def samples(prometheus: Prometheus, series: str, since: float) -> list[float]:
    """The values that were scraped after a moment, in their order."""
    found = prometheus.ask("query", query=f"{series}[5m]")["result"]
    return [float(value) for one in found for at, value in one["values"] if at > since]


# proves R53
def test_serve_is_scraped_under_load(install: Install, database_url: str, watch: Watch) -> None:  # noqa: F811
    installation = install(database_url)
    installation.serve()
    prometheus = watch(installation.operator_port)
    load = events(LOAD, "order", "plain")
    sender, log = installation.start_sending(load, connections=8, pause=0.01)
    assert sender.exit_code() == 0, log.statuses()
    eventually(
        lambda: seen(prometheus, 'sum(hookledger_deliveries_total{outcome="accepted"})') == len(load),
        "every delivery is counted",
    )
    eventually(
        lambda: seen(prometheus, 'sum(hookledger_attempts_total{outcome="processed"})') == len(load),
        "every attempt is counted",
    )
    names = prometheus.ask("label/__name__/values")
    ours = {name for name in names if name.startswith("hookledger_")}
    assert ours <= metrics() | recorded() | {f"{name}_created" for name in metrics()}
    processes = {labels["process"] for labels, up in prometheus.value("hookledger_up") if up == 1}
    assert processes >= {"receive", "work"}

    def healthy() -> bool:
        groups = prometheus.ask("rules")["groups"]
        found = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        assert "err" not in found.values(), found
        return found.keys() == alerts().keys() | recorded() and set(found.values()) == {"ok"}

    eventually(healthy, "every rule was evaluated without an error")


def test_a_killed_worker_is_noticed(install: Install, database_url: str, watch: Watch) -> None:  # noqa: F811
    """By the second scrape after its end at the latest; the alert becomes pending with it."""
    installation = install(database_url)
    ports = free_port(), free_port()
    workers = [installation.work("--monitor", f"127.0.0.1:{port}") for port in ports]
    prometheus = watch(*ports)
    eventually(lambda: seen(prometheus, "sum(up)") == len(ports), "both workers are scraped")
    series = f'up{{instance="127.0.0.1:{ports[0]}"}}'
    since = _killed(prometheus, workers[0])
    eventually(lambda: len(samples(prometheus, series, since)) >= 2, "two scrapes since the kill")
    assert samples(prometheus, series, since)[1] == 0
    pending = 'ALERTS{alertname="HookledgerProcessDown"}'
    eventually(lambda: prometheus.value(pending), "the alert is pending")
    assert {labels["instance"] for labels, _ in prometheus.value(pending)} == {f"127.0.0.1:{ports[0]}"}


def _killed(prometheus: Prometheus, worker: Process) -> float:
    """Kill it; when that was, by the clock of Prometheus."""
    worker.kill()
    return float(prometheus.ask("query", query="time()")["result"][0])

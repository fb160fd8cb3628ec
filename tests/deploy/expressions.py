"""The expressions of deploy/prometheus/rules.yml and of the dashboard, and what they may name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
BUILT_IN = {"up", "ALERTS"}
"""Metrics that Prometheus has by itself."""
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

# Until observe/metrics/table.py is there: kind by name, as in the table. Replace by
#   from hookledger.observe.metrics.table import PREFIX, TABLE
#   KINDS_UNTIL_THE_TABLE_IS_MERGED = {metric.name: metric.kind for metric in TABLE}
KINDS_UNTIL_THE_TABLE_IS_MERGED = {
    **dict.fromkeys(
        [
            "requests_total",
            "deliveries_total",
            "rejections_total",
            "unavailable_total",
            "attempts_total",
            "effect_calls_total",
            "claims_lost_total",
            "leases_reclaimed_total",
            "late_outcomes_refused_total",
            "stale_total",
            "effect_conflicts_total",
            "rollbacks_total",
        ],
        "counter",
    ),
    **dict.fromkeys(
        [
            "up",
            "intake_queue",
            "handlers_running",
            "handler_slots",
            "heartbeat_timestamp_seconds",
            "database_up",
            "queue_events",
            "queue_lag_seconds",
            "backlog_events",
            "outbox_effects",
            "outbox_lag_seconds",
            "circuit_open",
            "workers_alive",
            "clock_skew_seconds",
            "secret_expiry_timestamp_seconds",
            "consistency_violations",
            "consistency_checked_timestamp_seconds",
            "event_alerts",
            "alert_messages",
        ],
        "gauge",
    ),
    **dict.fromkeys(
        [
            "ack_seconds",
            "commit_seconds",
            "commit_deliveries",
            "attempt_seconds",
            "settle_delay_seconds",
            "effect_seconds",
        ],
        "histogram",
    ),
}


def metrics() -> set[str]:
    """Every name of a series that Hookledger shows."""
    kinds = KINDS_UNTIL_THE_TABLE_IS_MERGED.items()
    return {f"hookledger_{name}{suffix}" for name, kind in kinds for suffix in SUFFIXES[kind]}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / "hookledger.json").read_text())
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression, and where it is. Grafana's variables have a value, as Grafana gives them one."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5m").replace("$source", "stripe|github")
            yield f"panel {panel['title']}", expression

"""The expressions of deploy/prometheus/rules.yml and of the dashboard, and what they may name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hookledger.observe.metrics.table import PREFIX, TABLE

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
BUILT_IN = {"up", "ALERTS"}
"""Metrics that Prometheus has by itself."""
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def metrics() -> set[str]:
    """Every name of a series that Hookledger shows."""
    return {f"{PREFIX}{metric.name}{suffix}" for metric in TABLE for suffix in SUFFIXES[metric.kind]}


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

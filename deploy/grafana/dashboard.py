"""Write deploy/grafana/hookledger.json, the Grafana dashboard: `python deploy/grafana/dashboard.py`.

A test fails when the two differ, when an expression cannot be parsed, or when it names a metric that Hookledger does
not have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
OF = '{source=~"$source"}'
HITS = '{source=~"$source", result="hit"}'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 8, 8, 24


class Panel(NamedTuple):
    """A chart; each expression with the legend of its series."""

    title: str
    description: str
    lines: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    red_above: float | None = None


def p95(name: str, by: str, where: str = "") -> str:
    labels = ", ".join(filter(None, (by, "le")))
    return f"histogram_quantile(0.95, sum by ({labels}) (rate(hookledger_{name}_bucket{where}[$__rate_interval])))"


def rate(name: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate(hookledger_{name}{where}[$__rate_interval]))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        Panel(
            "Processes down",
            "Processes of Hookledger that do not answer.",
            (("count(hookledger_up == 0) or vector(0)", ""),),
            kind="stat",
            red_above=0,
        ),
        Panel("Workers alive", "Workers with a heartbeat.", (("max(hookledger_workers_alive)", ""),), kind="stat"),
        Panel(
            "Consistency violations",
            "What the last full check, and those that began later, found.",
            (("max(hookledger_consistency_violations)", ""),),
            kind="stat",
            red_above=0,
        ),
        Panel(
            "Last full consistency check",
            "How long ago it ended. Workers run it every night.",
            (("time() - max(hookledger_consistency_checked_timestamp_seconds)", ""),),
            "s",
            "stat",
            172800,
        ),
        Panel(
            "Unknown effects",
            "Calls that may have happened; an operator, a check or a policy decides.",
            (('max(hookledger_outbox_effects{state="unknown"})', ""),),
            kind="stat",
            red_above=0,
        ),
        Panel(
            "Alert messages not sent",
            "Messages to people that failed.",
            (('max(hookledger_alert_messages{state="failed"})', ""),),
            kind="stat",
            red_above=0,
        ),
    ),
    "Intake": (
        Panel(
            "New events",
            "Deliveries that made an event, per second.",
            ((rate("deliveries_total", "source", '{source=~"$source", outcome="accepted"}'), "{{source}}"),),
            "ops",
        ),
        Panel(
            "Other deliveries",
            "Duplicates, conflicts, known bodies and unreadable ones, per second.",
            ((rate("deliveries_total", "outcome", '{source=~"$source", outcome!="accepted"}'), "{{outcome}}"),),
            "ops",
        ),
        Panel(
            "Rejected requests",
            "Requests answered with 4xx, by reason, per second.",
            ((rate("rejections_total", "reason", OF), "{{reason}}"),),
            "ops",
        ),
        Panel(
            "Answered with 503",
            "Deliveries that could not be recorded, by cause, per second.",
            ((rate("unavailable_total", "cause"), "{{cause}}"),),
            "ops",
        ),
        Panel(
            "Accept latency, p95",
            "From a complete request to the commit that holds its events.",
            ((p95("ack_seconds", "source", OF), "{{source}}"), (p95("commit_seconds", ""), "one commit")),
            "s",
        ),
        Panel(
            "Waiting for a commit",
            "Deliveries in the intake's queue.",
            (("sum by (instance) (hookledger_intake_queue)", "{{instance}}"),),
        ),
        Panel(
            "Answers",
            "Deliveries whose handlers answer, and guarded requests, by what they got, per second.",
            ((rate("answers_total", "result", OF), "{{result}}"),),
            "ops",
        ),
        Panel(
            "Answer cache hit rate",
            "Share of their duplicates that got the stored answer.",
            (
                (
                    f"{rate('answer_lookups_total', 'source', HITS)} / {rate('answer_lookups_total', 'source', OF)}",
                    "{{source}}",
                ),
            ),
            "percentunit",
        ),
    ),
    "Work": (
        Panel(
            "Lag",
            "For how long the event that is due for longest has been due.",
            ((f"max by (source) (hookledger_queue_lag_seconds{OF})", "{{source}}"),),
            "s",
        ),
        Panel(
            "Processing latency, p95",
            "From the arrival of an event to the end of its first run.",
            ((p95("settle_delay_seconds", "source", OF), "{{source}}"),),
            "s",
        ),
        Panel(
            "Attempts",
            "By outcome, per second.",
            ((rate("attempts_total", "outcome", OF), "{{outcome}}"),),
            "ops",
        ),
        Panel(
            "Queue",
            "Events that are not settled yet.",
            ((f"max by (source, state) (hookledger_queue_events{OF})", "{{source}} {{state}}"),),
        ),
        Panel(
            "Waiting for an operator",
            "Dead letters, and events in review.",
            ((f"max by (source, state) (hookledger_backlog_events{OF})", "{{source}} {{state}}"),),
        ),
        Panel(
            "Rollbacks",
            "Share of attempts whose transaction was rolled back, other than by the handler's decision.",
            (
                (
                    'sum(rate(hookledger_rollbacks_total{cause!="decision"}[$__rate_interval])) '
                    "/ sum(rate(hookledger_attempts_total[$__rate_interval]))",
                    "rollbacks",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Handlers",
            "Handlers that run, and how many can.",
            (("sum(hookledger_handlers_running)", "running"), ("sum(hookledger_handler_slots)", "slots")),
        ),
        Panel(
            "Handler time, p95",
            "From the start of an attempt to its recorded outcome.",
            ((p95("attempt_seconds", "handler"), "{{handler}}"),),
            "s",
        ),
        Panel(
            "Claims",
            "Claims lost, leases of dead workers reclaimed, outcomes that came too late.",
            (
                ("sum(increase(hookledger_claims_lost_total[$__rate_interval]))", "lost"),
                ("sum(increase(hookledger_leases_reclaimed_total[$__rate_interval]))", "reclaimed"),
                ("sum(increase(hookledger_late_outcomes_refused_total[$__rate_interval]))", "too late"),
            ),
        ),
    ),
    "Effects": (
        Panel(
            "Calls",
            "Calls of effects, by outcome, per second.",
            ((rate("effect_calls_total", "effect, outcome"), "{{effect}} {{outcome}}"),),
            "ops",
        ),
        Panel("Call time, p95", "By effect.", ((p95("effect_seconds", "effect"), "{{effect}}"),), "s"),
        Panel(
            "Outbox",
            "Effects that are planned, failed or unknown, and how long the first is due.",
            (
                ("max by (state) (hookledger_outbox_effects)", "{{state}}"),
                ("max(hookledger_outbox_lag_seconds)", "lag (s)"),
            ),
        ),
        Panel(
            "Open circuits",
            "1 while calls to the downstream are stopped.",
            (("max by (downstream) (hookledger_circuit_open)", "{{downstream}}"),),
        ),
        Panel(
            "Stale events and conflicts",
            "Guards that found an event stale; effects asked for again with other arguments.",
            (
                (f"sum by (source) (increase(hookledger_stale_total{OF}[$__rate_interval]))", "stale {{source}}"),
                (
                    "sum by (effect) (increase(hookledger_effect_conflicts_total[$__rate_interval]))",
                    "conflict {{effect}}",
                ),
            ),
        ),
        Panel(
            "Secrets and clocks",
            "Days until the last secret of a source expires; seconds between the clocks.",
            (
                (
                    f"(min by (source) (hookledger_secret_expiry_timestamp_seconds{OF}) - time()) / 86400",
                    "days {{source}}",
                ),
                ("max(hookledger_clock_skew_seconds)", "clock skew (s)"),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        top += 1
        width, height = (4, 4) if row[0].kind == "stat" else (WIDTH, HEIGHT)
        for number, panel in enumerate(row):
            left = number * width % COLUMNS
            place = {"x": left, "y": top, "w": width, "h": height}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
            top += height if left + width >= COLUMNS or number == len(row) - 1 else 0
    return {
        "title": "Hookledger",
        "uid": "hookledger",
        "description": "A webhook inbox: intake, work, effects and evidence.",
        "tags": ["hookledger"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_datasource(), _sources()]},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_above is not None:
        steps.append({"color": "red", "value": panel.red_above + 1e-9})
    defaults = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if "skew" in panel.lines[-1][0]:
        del defaults["min"]
    targets = [
        {"refId": chr(65 + n), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto"}
        for n, (expression, legend) in enumerate(panel.lines)
    ]
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"}
    if panel.kind != "stat":
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _sources() -> dict[str, Any]:
    return {
        "name": "source",
        "type": "query",
        "label": "Source",
        "datasource": SOURCE,
        "query": {"query": "label_values(hookledger_requests_total, source)", "refId": "sources"},
        "definition": "label_values(hookledger_requests_total, source)",
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def written() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (HERE / "hookledger.json").write_text(written())

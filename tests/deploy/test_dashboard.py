"""The Grafana dashboard. No Grafana runs here: its layout and its expressions are checked, not how it looks."""

from __future__ import annotations

import re
import runpy
from itertools import combinations
from typing import Any

from hookledger.observe.metrics.table import BY_NAME, PREFIX
from tests.deploy.expressions import GRAFANA, dashboard


def test_the_file_is_what_the_script_writes() -> None:
    written = runpy.run_path(str(GRAFANA / "dashboard.py"))["written"]
    assert (GRAFANA / "hookledger.json").read_text() == written(), "run `python deploy/grafana/dashboard.py`"


def test_panels_have_a_place_and_a_title() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    charts = [panel for panel in panels if panel["type"] != "row"]
    assert len({panel["title"] for panel in charts}) == len(charts)
    assert all(panel["description"] and panel["targets"] for panel in charts)
    assert not [(a["title"], b["title"]) for a, b in combinations(panels, 2) if _overlap(a["gridPos"], b["gridPos"])]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


NOT_SHOWN = {"requests_total", "commit_deliveries", "heartbeat_timestamp_seconds", "database_up", "event_alerts"}
"""Others say the same in a panel, or an alert tells it."""


def test_every_metric_has_a_panel() -> None:
    said = " ".join(target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ()))
    shown = {name.removesuffix("_bucket") for name in re.findall(rf"{PREFIX}(\w+)", said)}
    assert shown - {"up"} == BY_NAME.keys() - NOT_SHOWN - {"up"}


def test_every_panel_uses_the_chosen_data_source() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    across = a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
    return bool(across and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])

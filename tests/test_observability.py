"""What compose.observability.yaml shows: every query asks for something that the gateway really says."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from foliot_gateway.http import metrics
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store

ROOT = Path(__file__).parents[1]
DASHBOARD = json.loads((ROOT / "containers/grafana/dashboards/foliot.json").read_text())
PANELS = DASHBOARD["panels"]
_OF_A_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_every_query_asks_for_metrics_that_the_gateway_has():
    """A panel that is empty for ever looks like a fleet without trouble."""
    said = set(
        re.findall(r"^# TYPE (\w+) ", metrics.render(Store(GatewaySettings(), time.time_ns), ()).decode(), re.MULTILINE)
    )
    asked = {_OF_A_HISTOGRAM.sub("", name) for query in QUERIES for name in re.findall(r"foliot_\w+", query)}

    assert asked - said == set()


def test_every_metric_of_the_gateway_is_shown_but_the_size_of_its_store():
    """What is worth a metric is worth a look."""
    said = set(
        re.findall(r"^# TYPE (\w+) ", metrics.render(Store(GatewaySettings(), time.time_ns), ()).decode(), re.MULTILINE)
    )
    asked = {_OF_A_HISTOGRAM.sub("", name) for query in QUERIES for name in re.findall(r"foliot_\w+", query)}

    assert said - asked == {"foliot_trace_store_bytes"}


def test_panels_stand_side_by_side():
    """On Grafana's grid of 24 columns, none over another."""
    cells = [
        (column, row)
        for place in (panel["gridPos"] for panel in PANELS)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24

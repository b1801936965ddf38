"""Convert the parts of a dashboard to Grafana's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

TAG = "threads-cluster"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
#: Schema version of Grafana 11.
SCHEMA = 39

Json = dict[str, Any]
Shape = Literal["timeseries", "stat", "gauge", "table", "heatmap", "state-timeline"]


@dataclass(frozen=True)
class Query:
    expr: str
    #: Legend, in which Grafana replaces label names in double braces by their values.
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    title: str
    #: Description of the panel and how to read it.
    about: str
    unit: str
    queries: tuple[Query, ...]
    shape: Shape = "timeseries"
    width: int = 8
    height: int = 8
    low: float | None = 0
    high: float | None = None
    decimals: int | None = None
    #: Values from which a color is used; below the first value, the color is green.
    thresholds: tuple[tuple[float, str], ...] = ()
    stacked: bool = False
    #: Requirement without which the panel is empty: "gpu" workers, the "dcgm" exporter or a "model".
    needs: str = ""


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    #: Variables in addition to the data source: a label, and a metric with its values.
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def uid(self) -> str:
        return f"threads-{self.name}"


def _thresholds(panel: Panel) -> Json:
    steps = [(None, "green"), *panel.thresholds]
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def _custom(panel: Panel) -> Json:
    if panel.shape == "table":
        return {"align": "auto", "filterable": True}
    if panel.shape == "state-timeline":
        return {"fillOpacity": 70, "lineWidth": 0}
    if panel.shape != "timeseries":
        return {}
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
    }


def _options(panel: Panel) -> Json:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    tooltip = {"mode": "multi", "sort": "desc"}
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    options: dict[Shape, Json] = {
        "timeseries": {"legend": legend, "tooltip": tooltip},
        "stat": {"reduceOptions": last, "colorMode": "value", "graphMode": "area", "textMode": "auto"},
        "gauge": {"reduceOptions": last, "showThresholdMarkers": True, "showThresholdLabels": False},
        "table": {"showHeader": True, "cellHeight": "sm"},
        "heatmap": {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 32, "reverse": False},
            "yAxis": {"unit": panel.unit},
            "tooltip": {"mode": "single"},
            "legend": {"show": True},
        },
        "state-timeline": {"mergeValues": True, "showValue": "never", "legend": legend, "tooltip": tooltip},
    }
    return options[panel.shape]


def _target(panel: Panel, query: Query, number: int) -> Json:
    table = panel.shape == "table"
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "range": not table,
        "instant": table,
        "format": panel.shape if panel.shape in ("table", "heatmap") else "time_series",
    }


def _panel(panel: Panel, number: int, place: Json) -> Json:
    limits = {"min": panel.low, "max": panel.high, "decimals": panel.decimals}
    defaults = {
        "unit": panel.unit,
        **{name: value for name, value in limits.items() if value is not None},
        "color": {"mode": "thresholds" if panel.shape in ("stat", "gauge", "state-timeline") else "palette-classic"},
        "thresholds": _thresholds(panel),
        "custom": _custom(panel),
    }
    made = {
        "id": number,
        "type": panel.shape,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [_target(panel, query, n) for n, query in enumerate(panel.queries)],
    }
    if panel.shape == "table":
        hidden = dict.fromkeys(("Time", "Value", "__name__", "instance", "job"), True)
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return made


def _panels(rows: tuple[Row, ...]) -> Iterator[Json]:
    """Yield rows from top to bottom with panels from left to right, wrapping panels that do not fit."""
    number, y = 1, 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        number, y, x, tallest = number + 1, y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            yield _panel(panel, number, {"h": panel.height, "w": panel.width, "x": x, "y": y})
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest


def _variables(dashboard: Dashboard) -> Iterator[Json]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {"text": "Prometheus", "value": "prometheus"},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "regex": "",
    }
    for label, metric in dashboard.variables:
        values = f"label_values({metric}, {label})"
        yield {
            "name": label,
            "label": label.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "definition": values,
            "query": {"query": values, "refId": label},
            "refresh": 2,
            "sort": 1,
            "hide": 0,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": ["All"], "value": ["$__all"]},
            "options": [],
            "regex": "",
        }


def _annotations() -> list[Json]:
    alerts = {
        "name": "Firing alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing"}',
        "step": "10s",
        "titleFormat": "{{alertname}}",
        "textFormat": "{{severity}}",
    }
    return [alerts]


def render(dashboard: Dashboard) -> Json:
    others = {
        "type": "dashboards",
        "title": "Dashboards",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": True,
        "icon": "external link",
        "targetBlank": False,
    }
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [others],
        "annotations": {"list": _annotations()},
        "templating": {"list": list(_variables(dashboard))},
        "panels": list(_panels(dashboard.rows)),
    }


def text(dashboard: Dashboard) -> str:
    """Return the contents of the dashboard's JSON file."""
    return json.dumps(render(dashboard), indent=1, ensure_ascii=False) + "\n"

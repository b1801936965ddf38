"""Tests that the dashboards match the generator and that every panel's query can have data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana import render
from grafana.tables import DASHBOARDS
from tests.dashboard_queries import every_query, metric_names
from tests.unit.monitoring import ROOT, added_over_replicas, known, promtool

FOLDER = ROOT / "grafana"
FILES = sorted((FOLDER / "dashboards").glob("*.json"))
MADE = [render.render(dashboard) for dashboard in DASHBOARDS]
PANELS = [(made["title"], panel) for made in MADE for panel in made["panels"] if panel["type"] != "row"]
#: Grafana units that the dashboards use.
UNITS = {
    "short",
    "s",
    "percent",
    "percentunit",
    "bytes",
    "mbytes",
    "Bps",
    "cps",
    "ops",
    "reqps",
    "celsius",
    "watt",
    "joule",
    "hertz",
}


def test_the_files_are_what_the_generator_makes() -> None:
    assert [path.stem for path in FILES] == sorted(dashboard.name for dashboard in DASHBOARDS)
    for dashboard in DASHBOARDS:
        there = (FOLDER / "dashboards" / f"{dashboard.name}.json").read_text()
        assert there == render.text(dashboard), "run .venv/bin/python -m grafana"


def test_dashboards_and_panels_are_told_apart() -> None:
    for values in ([made["uid"] for made in MADE], [made["title"] for made in MADE]):
        assert len(values) == len(set(values))
    assert all(re.fullmatch(r"[a-z-]{1,40}", made["uid"]) for made in MADE)
    for made in MADE:
        numbers = [panel["id"] for panel in made["panels"]]
        assert len(numbers) == len(set(numbers))


def test_panels_lie_side_by_side() -> None:
    for made in MADE:
        taken: set[tuple[int, int]] = set()
        for panel in made["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert place["x"] + place["w"] <= render.COLUMNS and not cells & taken, panel["title"]
            taken |= cells


@pytest.mark.parametrize(
    ("dashboard", "panel"), PANELS, ids=lambda value: value if isinstance(value, str) else value["title"]
)
def test_a_panel_says_what_it_shows(dashboard: str, panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["expr"]
        assert target["legendFormat"] != "__auto" or panel["type"] in ("stat", "gauge", "table")
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert label in target["expr"] or label in ("instance", "job", "Hostname", "gpu"), "the expression drops it"
    fields = panel["fieldConfig"]["defaults"]
    assert fields.get("min", 0) == 0 and fields.get("max", 1) in (1, 100)
    if fields["unit"] == "percentunit":
        assert fields.get("max") == 1 or "one CPU" in panel["description"]


def test_every_query_can_be_parsed(tmp_path: Path) -> None:
    rules = [{"record": f"panel:query:number_{n}", "expr": asked.expr} for n, asked in enumerate(every_query())]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_that_a_panel_reads_exists() -> None:
    for asked in every_query():
        unknown = metric_names(asked.expr) - known()
        assert not unknown, f"{asked.dashboard}, {asked.panel}: nothing shows {unknown}"


def test_no_panel_adds_up_what_every_coordinator_shows_alike() -> None:
    for asked in every_query():
        assert not added_over_replicas(asked.expr), f"{asked.dashboard}, {asked.panel}: take max over replicas"


#: Prefixes of metrics that a cluster may not have, and the need that their panels declare.
MAY_LACK = {"DCGM_": "dcgm", "cluster_gpu_": "gpu", "cluster_inference_": "model", "cluster_service_": "model"}


def test_only_panels_about_gpus_and_models_may_stay_empty() -> None:
    for asked in every_query():
        names = " ".join(metric_names(asked.expr))
        needs = next((needs for start, needs in MAY_LACK.items() if start in names), "")
        assert asked.needs == needs, f"{asked.dashboard}, {asked.panel}"


def test_variables_are_offered_where_they_are_used() -> None:
    for dashboard, made in zip(DASHBOARDS, MADE, strict=True):
        used = set(re.findall(r"\$(\w+)", " ".join(q["expr"] for p in made["panels"] for q in p.get("targets", ()))))
        assert used - {"__rate_interval"} == {name for name, _ in dashboard.variables}, dashboard.title
        assert {metric for _, metric in dashboard.variables} <= known()
    assert not [asked for asked in every_query() if "$" in asked.expr]


def test_everything_asks_the_one_data_source() -> None:
    provisioned = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())
    [source] = provisioned["datasources"]
    assert (source["uid"], source["url"], source["editable"]) == ("prometheus", "http://prometheus:9090", False)
    scraped = yaml.safe_load((ROOT / "prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    for made in MADE:
        first, *others = made["templating"]["list"]
        assert (first["name"], first["type"], first["current"]["value"]) == ("datasource", "datasource", source["uid"])
        asking = [*others, *made["annotations"]["list"], *(panel for panel in made["panels"] if panel["type"] != "row")]
        asking += [target for panel in made["panels"] for target in panel.get("targets", ())]
        assert {json.dumps(one["datasource"]) for one in asking} == {json.dumps(render.SOURCE)}


def test_nobody_changes_a_dashboard_in_the_browser() -> None:
    [provider] = yaml.safe_load((FOLDER / "provisioning/dashboards/dashboards.yml").read_text())["providers"]
    assert (provider["editable"], provider["allowUiUpdates"], provider["disableDeletion"]) == (False, False, True)
    mounted = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounted
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in mounted
    for made in MADE:
        assert (made["editable"], made["refresh"], made["schemaVersion"]) == (False, "10s", render.SCHEMA)
        assert made["links"][0]["tags"] == made["tags"] == [render.TAG]

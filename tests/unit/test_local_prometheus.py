"""Tests the Prometheus configuration that a local cluster prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from deploy.local import commands, port_list, prometheus_configuration, running_cluster
from deploy.local.outcome import CommandError
from tests.unit.monitoring import promtool

URL = "http://127.0.0.1:3001"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that pretends that a cluster was started with these settings."""
    folder = tmp_path / "a [folder]" / "prometheus"
    folder.parent.mkdir()
    monkeypatch.setattr(prometheus_configuration, "FOLDER", folder)
    monkeypatch.setattr(prometheus_configuration, "TOKEN", folder / "token")
    monkeypatch.setattr(port_list, "FILE", tmp_path / "ports")
    monkeypatch.setattr(running_cluster, "find_api", lambda: SimpleNamespace(url=URL))

    def pretend(metrics_port: int = 9095, **settings: str) -> Path:
        port_list.write({"metrics": metrics_port})
        monkeypatch.setattr(commands, "describe_starter", lambda: ([], settings))
        return folder

    return pretend


def print_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Print the configuration, let promtool check it with its three files of rules, and return it."""
    assert prometheus_configuration.print_configuration() == 0
    (tmp_path / "prometheus.yml").write_text(text := capsys.readouterr().out)
    done = promtool("check", "config", tmp_path / "prometheus.yml")
    assert done.returncode == 0 and "3 rule files found" in done.stdout, done.stdout + done.stderr
    return yaml.safe_load(text)


def test_the_configuration_scrapes_the_coordinator_and_has_no_rules_about_containers(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = start()
    printed = print_checked(tmp_path, capsys)
    assert printed["scrape_configs"] == [
        {"job_name": "coordinator", "static_configs": [{"targets": ["127.0.0.1:9095"]}]}
    ]
    assert printed["global"]["external_labels"] == {"cluster": URL}
    assert {path.name for path in folder.iterdir()} == {"alerts.yml", "recording.yml", "thresholds.yml"}


def test_the_token_and_the_thresholds_are_those_of_the_running_cluster(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = start(METRICS_TOKEN="a-metrics-token", ALERT_GPU_CELSIUS="71", PATH="/bin")
    [scraped] = print_checked(tmp_path, capsys)["scrape_configs"]
    token = Path(scraped["authorization"]["credentials_file"])
    assert token.read_text() == "a-metrics-token" and token.stat().st_mode & 0o777 == 0o600
    assert "alert:gpu_celsius:threshold', expr: vector(71)" in (folder / "thresholds.yml").read_text()
    start()
    assert "authorization" not in print_checked(tmp_path, capsys)["scrape_configs"][0]
    assert not token.exists()


def test_a_cluster_without_metrics_has_no_configuration(start: Any) -> None:
    start(metrics_port=0)
    with pytest.raises(CommandError, match="METRICS_PORT=0"):
        prometheus_configuration.print_configuration()


def test_an_ipv6_address_is_a_target() -> None:
    [scraped] = yaml.safe_load(prometheus_configuration.render("http://[::1]:3000", 9090, ""))["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["[::1]:9090"]}]

"""Implementation of the command metrics, which prints a Prometheus configuration for the running local cluster."""

from __future__ import annotations

import glob
import json
import shutil

from deploy.local import commands, port_list, private_files, running_cluster
from deploy.local.outcome import FAILED, OK, CommandError
from jobs.settings import CHECKOUT, LOCAL_FOLDER, Settings
from prometheus import thresholds

#: Folder with the rules and the token that Prometheus reads.
FOLDER = LOCAL_FOLDER / "prometheus"
TOKEN = FOLDER / "token"
#: Rules that apply to every cluster. A local cluster has none of the services in containers.yml.
_RULES = ("alerts.yml", "recording.yml")

_CONFIGURATION = """\
# Prometheus configuration of the local cluster at {url}. To start Prometheus as the user of the cluster:
#   cluster metrics --config > prometheus.yml
#   prometheus --config.file=prometheus.yml --web.listen-address=127.0.0.1:9091
# Print the configuration again after an update of the cluster, and if its ports or settings ALERT_* change.
global:
  scrape_interval: 5s
  scrape_timeout: 4s
  evaluation_interval: 5s
  # Address of the runbooks to which alerts link.
  external_labels: {{cluster: {label}}}

rule_files: [{rules}]

scrape_configs:
  # The coordinator also exports the metrics of Redis, of workers and runners, and of machines that have joined.
  - job_name: coordinator
    static_configs: [{{targets: [{target}]}}]
"""


def print_configuration() -> int:
    """Write the rules of the running cluster, print a configuration that reads them, and return the exit code."""
    url = running_cluster.find_api().url
    port = port_list.read().get("metrics", 0)
    if not port:
        raise CommandError(
            FAILED,
            "the cluster serves no metrics, because it was started with METRICS_PORT=0. Stop it, and start it again"
            " without this setting.",
        )
    settings = _settings_of_starter()
    _write_rules(settings)
    print(render(url, port, settings.metrics_token), end="")
    return OK


def render(url: str, metrics_port: int, token: str) -> str:
    """Return the configuration for the cluster at `url`."""
    host = url.removeprefix("http://").rpartition(":")[0]
    text = _CONFIGURATION.format(
        url=url,
        label=json.dumps(url),
        rules=json.dumps(f"{glob.escape(str(FOLDER))}/*.yml"),
        target=json.dumps(f"{host}:{metrics_port}"),
    )
    return f"{text}    authorization: {{credentials_file: {json.dumps(str(TOKEN))}}}\n" if token else text


def _settings_of_starter() -> Settings:
    """Return the settings for metrics with which the running cluster was started."""
    _, environment = commands.describe_starter()
    names = ("metrics_token", *(f"alert_{name}" for name in thresholds.threshold_names()))
    return Settings.model_validate({name: environment[name.upper()] for name in names if environment.get(name.upper())})


def _write_rules(settings: Settings) -> None:
    """Replace the files that the configuration names."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name in _RULES:
        shutil.copyfile(CHECKOUT / "prometheus" / "rules" / name, FOLDER / name)
    (FOLDER / thresholds.FILE.name).write_text(thresholds.render(settings))
    if settings.metrics_token:
        private_files.write(TOKEN, settings.metrics_token.encode())

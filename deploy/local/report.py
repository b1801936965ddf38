"""Implementation of the command report. deploy/local/report.sh adds error lines from logs, and removes secrets."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator

import httpx
import psutil

from deploy.docker import report as sections
from deploy.local import (
    commands,
    cpu_workers,
    gpus,
    port_list,
    program_control,
    redis_server,
    running_cluster,
    scraped_metrics,
)
from deploy.local.api import Api, local_url
from deploy.local.outcome import FAILED, OK, CommandError
from jobs import VERSION
from jobs.settings import CHECKOUT, LOCAL_FOLDER, Settings, load


def report() -> int:
    """Print versions, programs, health and measurements of the local cluster. Return the exit code."""
    if not (LOCAL_FOLDER / "logs").is_dir():
        raise CommandError(
            FAILED, "this checkout has not started a local cluster yet. Start one: ./deploy-cluster.sh local"
        )
    print("\n".join(_describe_versions()))
    try:
        api = running_cluster.find_api()
    except CommandError as error:
        print(f"\nMeasurements are missing: {error}")
        return OK
    sections.print_sections(
        ("supervisord", _describe_programs()),
        ("The API", sections.cluster(api.url, api.token)),
        ("The metrics port", _format_metrics()),
        ("The API", _list_alerts(api)),
    )
    return OK


def _describe_versions() -> Iterator[str]:
    yield "\n## Versions"
    yield f"threads {VERSION}"
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    yield f"revision {revision.stdout.strip() or 'unknown'}"
    yield f"python {platform.python_version()}"
    try:
        server = redis_server.find(LOCAL_FOLDER / "redis")
        yield f"redis {'.'.join(map(str, redis_server.version(server)))} {server}"
    except (redis_server.NoRedis, redis_server.NewerData) as error:
        yield f"redis {error}"
    memory = psutil.virtual_memory().total
    yield f"machine {os.cpu_count()} cores, {memory} bytes, {platform.platform()}"
    yield f"gpus {gpus.count_listed()}"


def _describe_programs() -> Iterator[str]:
    yield "\n## Programs"
    for program in program_control.list_programs().values():
        if program.has_process or cpu_workers.is_wanted(program.name):
            yield f"{program.name:<16} {program.state:<9} {_memory(program.pid):<8} {program.description}".rstrip()


def _memory(pid: int) -> str:
    """Return the resident memory of a process and its children."""
    try:
        process = psutil.Process(pid) if pid else None
        several = [process, *process.children(recursive=True)] if process else []
        return sections.size(sum(each.memory_info().rss for each in several)) if several else ""
    except psutil.Error:
        return ""


def _format_metrics() -> Iterator[str]:
    settings, port = load(), port_list.read().get("metrics", 0)
    if not port:
        yield "\nThe cluster serves no metrics (METRICS_PORT=0), so measurements are missing."
        return
    headers = {"Authorization": f"Bearer {settings.metrics_token}"} if settings.metrics_token else {}
    answer = httpx.get(f"{local_url(settings, port)}/metrics", headers=headers, timeout=10, trust_env=False)
    if answer.is_error:
        raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
    yield from scraped_metrics.format_scrape(answer.text)


def _list_alerts(api: Api) -> Iterator[str]:
    yield "\n## Alerts"
    firing = [alert for alert in api.get("/api/snapshot")["alerts"] if alert["state"] == "firing"]
    for alert in firing:
        yield f"{alert['rule']} ({alert['severity']}) since {alert['since']}: {alert['text']}"
    if not firing:
        yield "No alert is firing."


def configuration() -> int:
    """Print the ports, lanes, command and settings of the cluster if it is running. Return the exit code."""
    command, environment = commands.describe_starter()
    if not command:
        print("The cluster is not running.")
        return OK
    print(f"ports: {port_list.describe()}")
    print(f"lanes of CPU workers: {' '.join(map(str, cpu_workers.read_lanes()))}")
    print(f"command: {' '.join(command)}")
    for name in sorted({field.upper() for field in Settings.model_fields} & environment.keys()):
        print(f"{name}={environment[name]}")
    return OK

"""Helpers for tests of metrics, rules and dashboards: promtool, the rules and the metric names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import metrics

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "prometheus" / "rules").glob("*.yml"))

#: Metrics of other projects' programs that rules or dashboards use, with the exporter of each. The stack test checks
#: that
EXPORTERS = {
    "prometheus": "up ALERTS prometheus_config_last_reload_successful prometheus_rule_evaluation_failures_total",
    "process": "process_cpu_seconds_total process_open_fds process_resident_memory_bytes process_start_time_seconds",
    "redis-exporter": """
        redis_aof_current_size_bytes redis_aof_enabled redis_aof_last_bgrewrite_status redis_aof_last_write_status
        redis_blocked_clients redis_commands_duration_seconds_total redis_commands_processed_total redis_commands_total
        redis_connected_clients redis_cpu_sys_seconds_total redis_cpu_user_seconds_total redis_db_keys
        redis_db_keys_expiring redis_errors_total redis_evicted_keys_total redis_memory_max_bytes
        redis_memory_used_bytes redis_memory_used_rss_bytes redis_net_input_bytes_total redis_net_output_bytes_total
        redis_slowlog_length redis_up redis_uptime_in_seconds
    """,
    "nginx-exporter": """
        nginx_connections_accepted nginx_connections_handled nginx_connections_reading nginx_connections_waiting
        nginx_connections_writing nginx_http_requests_total nginx_up
    """,
    "web": "web_connections",
    "dcgm-exporter": """
        DCGM_FI_DEV_FB_USED DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_MEM_COPY_UTIL DCGM_FI_DEV_POWER_USAGE
        DCGM_FI_DEV_SM_CLOCK DCGM_FI_DEV_XID_ERRORS
    """,
}


def promtool(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool. Without promtool the test is skipped, or fails in CI."""
    need_prometheus()
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True)


def need_prometheus() -> None:
    """Skip the test if Prometheus is not installed, or fail it in CI."""
    if shutil.which("promtool") is None:
        reason = "Prometheus with promtool is not installed (Debian: apt-get install prometheus)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def rules() -> Iterator[dict[str, Any]]:
    """Return every recording rule and alert."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


@cache
def known() -> set[str]:
    """Return every name that an expression can use."""
    names = {rule["record"] for rule in rules() if "record" in rule} | metric_names_of_the_cluster()
    return names.union(*(shown.split() for shown in EXPORTERS.values()))


def metric_names_of_the_cluster() -> set[str]:
    """Return the names of the series that processes of the cluster export."""
    names = set()
    for metric in metrics.ALL:
        parts = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        names |= {metric.name + part for part in parts}
    return names


def added_over_replicas(expr: str) -> set[str]:
    """Return cluster-wide metrics that an expression wrongly sums over the coordinators."""
    alike = {metric.name for metric in metrics.ALL if not metric.per_replica}
    sums = re.finditer(
        r"\bsum\b\s*(?:by\s*\(([^)]*)\))?\s*\(\s*(?:\w+\()?\s*(?:label_replace\()?\s*(cluster_\w+)", expr
    )
    return {
        found[2]
        for found in sums
        if re.sub(r"_(bucket|sum|count)$", "", found[2]) in alike and "instance" not in (found[1] or "")
    }

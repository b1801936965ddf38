"""Print measurements of a cluster. ./deploy-cluster.sh report pipes this program into a coordinator's container.

The container can reach Prometheus and the API. Metric names come from jobs/metrics.py of its image; recording rules are
in prometheus/rules/recording.yml. deploy/local/report.py prints the same sections without Prometheus.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import httpx

from jobs import metrics

PROMETHEUS = "http://prometheus:9090"
API = "http://127.0.0.1:3000"
TOKEN = Path("/run/secrets/cluster_token")
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
#: Routes of requests that wait until a job finishes. Their responses are slow on purpose.
WAITING_ROUTES = "/api/results|/api/jobs/[{]job_id[}](/result|/events)?|/api/events"


#: Values of a measurement, each with its labels in one text.
Series = list[tuple[str, float]]


@dataclass(frozen=True)
class Measurement:
    """Measurement with a PromQL expression. Each series of the expression is one line of output."""

    title: str
    expression: str
    show: Callable[[float], str]


#: Titles of sections, with their measurements.
Sections = Sequence[tuple[str, Sequence[Measurement]]]


def seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def per_second(value: float) -> str:
    return f"{value:,.3g}/s"


def percent(value: float) -> str:
    return f"{value:.1%}"


def size(value: float) -> str:
    return f"{value / 2**20:,.0f} MB"


def _api_quantile(quantile: float) -> str:
    buckets = f'{metrics.HTTP_SECONDS.name}_bucket{{route!~"{WAITING_ROUTES}"}}'
    return f"histogram_quantile({quantile}, sum by (le) (rate({buckets}[15m]))) >= 0"


def recording_rule_measurements(title: str, rule: str) -> list[Measurement]:
    return [Measurement(f"{title} {name}", f"{rule}:{name}_5m", seconds) for name, _ in QUANTILES]


SECTIONS: Sections = (
    (
        "Throughput",
        (
            Measurement("finished jobs", "kind_outcome:cluster_jobs:rate5m > 0", per_second),
            Measurement("units", "kind_device:cluster_job_units:rate1m > 0", per_second),
            Measurement("leases", "outcome:cluster_leases:rate5m > 0", per_second),
            Measurement("API requests", f"sum(rate({metrics.HTTP_REQUESTS.name}[5m]))", per_second),
            Measurement("API errors", "cluster:cluster_http_errors_per_requests:ratio_rate5m", percent),
        ),
    ),
    (
        "Latency",
        (
            *(Measurement(f"API {name}", _api_quantile(quantile), seconds) for name, quantile in QUANTILES),
            *recording_rule_measurements("queue wait", "queue:cluster_queue_wait_seconds"),
            *recording_rule_measurements("job", "kind:cluster_job_duration_seconds"),
        ),
    ),
    (
        "Utilization",
        (
            Measurement("lanes busy", "device:cluster_lanes_busy:ratio", percent),
            Measurement("CPU of a host", f"max by (host) ({metrics.HOST_CPU.name})", percent),
            Measurement("memory of a host", "host:cluster_host_memory_used:ratio", percent),
            Measurement("GPU in use", f"max by (worker, gpu) ({metrics.GPU_UTILIZATION.name})", percent),
            Measurement("memory of Redis", "max(redis_memory_used_bytes)", size),
            Measurement("share of Redis' limit", "max(instance:redis_memory_used:ratio)", percent),
        ),
    ),
    ("Unreachable scrape targets", (Measurement("down", "up == 0", lambda _: "no answer"),)),
)


def get_json(url: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(url, headers=headers, timeout=10, trust_env=False)
    if answer.is_error:
        raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
    return answer.json()


def series(measurement: Measurement) -> Series:
    """Return the current values of a measurement from Prometheus, with their labels."""
    query = urllib.parse.urlencode({"query": measurement.expression})
    rows = get_json(f"{PROMETHEUS}/api/v1/query?{query}")["data"]["result"]
    return sorted((_labels(row["metric"]), float(row["value"][1])) for row in rows)


def _labels(labels: dict[str, str]) -> str:
    return " ".join(value for name, value in sorted(labels.items()) if name != "__name__")


def format_measurements(read: Callable[[Measurement], Series] = series, sections: Sections = SECTIONS) -> Iterator[str]:
    """Yield sections with the values that `read` returns for their measurements."""
    for title, shown in sections:
        yield f"\n## {title}"
        shown_any = False
        for figure in shown:
            for labels, value in read(figure):
                shown_any = True
                yield f"{f'{figure.title} {labels}'.strip():<44} {'no data' if isnan(value) else figure.show(value)}"
        if not shown_any:
            yield "none"


def alerts() -> Iterator[str]:
    yield "\n## Alerts"
    firing = [
        alert for alert in get_json(f"{PROMETHEUS}/api/v1/alerts")["data"]["alerts"] if alert["state"] == "firing"
    ]
    for alert in firing:
        labels, notes = alert["labels"], alert["annotations"]
        yield f"{labels['alertname']} ({labels.get('severity')}) since {alert['activeAt']}: {notes.get('summary')}"
    if not firing:
        yield "No alert is firing."


def cluster(api: str, token: str) -> Iterator[str]:
    yield "\n## Cluster"
    yield json.dumps(get_json(f"{api}/api/status", token), indent=2)
    yield "\n## Workers"
    for worker in get_json(f"{api}/api/workers", token)["workers"]:
        lanes = f"{worker['busy_lanes']} of {worker['lanes']} lanes busy"
        facts = (worker["id"], worker["device"], worker["state"], lanes)
        yield "  ".join(str(fact) for fact in facts)


def print_sections(*sections: tuple[str, Iterator[str]]) -> None:
    """Print sections. Each is a pair of the server's name, for error messages, and an iterator over its lines."""
    for what, lines in sections:
        try:
            for line in lines:
                print(line)
        except (httpx.HTTPError, OSError, ValueError, KeyError) as error:
            print(f"\n{what} does not answer: {error}")


def main() -> None:
    # While an operator replaces the token, the file contains two tokens. The first one is used.
    token = (TOKEN.read_text().replace(",", " ").split() or [""])[0] if TOKEN.is_file() else ""
    print_sections(("The API", cluster(API, token)), ("Prometheus", format_measurements()), ("Prometheus", alerts()))


if __name__ == "__main__":
    main()

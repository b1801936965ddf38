"""Metrics of the cluster under the names of grid-cli."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate

from coordinator.fleet import hosts
from coordinator.queries import Queries
from jobs import metrics
from jobs.store import keys
from threads_protocol.answers import telemetry as answers
from threads_protocol.states import JobState


def rows(queries: Queries) -> list[answers.Metric]:
    """Return the metrics under the names of grid-cli, with samples that include the counts of all coordinators."""
    figures = queries.store.telemetry.figures
    live = [worker for worker in queries.fleet.workers() if worker["live"]]
    scores = {name: score for name, of_it in hosts.by_host(live).items() if (score := hosts.score(of_it)) is not None}
    samples = {
        metrics.GRID_SUBMITTED: [_sample(metrics.GRID_SUBMITTED, sum(figures(keys.SUBMITTED).values()))],
        metrics.GRID_COMPLETED: _count_completed(figures(keys.ENDED)),
        metrics.GRID_DURATION: _durations(figures(keys.DURATIONS)),
        metrics.GRID_SCORE: [_sample(metrics.GRID_SCORE, score, host=name) for name, score in sorted(scores.items())],
        metrics.GRID_ACTIVE: [_sample(metrics.GRID_ACTIVE, queries.jobs.counts().get(JobState.RUNNING.value, 0))],
    }
    return [
        {"name": metric.name, "type": metric.type, "help": metric.help, "samples": samples[metric]}
        for metric in metrics.GRID
    ]


def _sample(metric: metrics.Metric, value: float, suffix: str = "", **labels: str) -> answers.Sample:
    whole = int(value) if value == int(value) else value
    return {"name": metric.name + suffix, "labels": labels, "value": whole}


def _count_completed(ended: Mapping[str, float]) -> list[answers.Sample]:
    """Count ended jobs as success or failure. The keys of `ended` are `kind|state`."""
    counts = {"success": 0.0, "failure": 0.0}
    for field, count in ended.items():
        counts["success" if field.rpartition("|")[2] == JobState.DONE else "failure"] += count
    return [_sample(metrics.GRID_COMPLETED, count, status=status) for status, count in counts.items()]


def _durations(stored: Mapping[str, float]) -> list[answers.Sample]:
    """Return the duration histogram of all kinds.

    The keys of `stored` are `kind|bound`, `kind|inf` and `kind|sum` (in milliseconds).
    """
    totals: dict[str, float] = defaultdict(float)
    for field, value in stored.items():
        totals[field.rpartition("|")[2]] += value
    metric, bounds = metrics.GRID_DURATION, (*(str(float(bound)) for bound in metrics.SECONDS), "+Inf")
    within = list(accumulate(totals[str(bound)] for bound in (*metrics.SECONDS, "inf")))
    found = [_sample(metric, value, "_bucket", le=bound) for bound, value in zip(bounds, within, strict=True)]
    return [*found, _sample(metric, totals["sum"] / 1000, "_sum"), _sample(metric, within[-1], "_count")]

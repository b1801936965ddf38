"""Generator of the reference of metrics, from their declarations."""

from __future__ import annotations

from deploy.docs.markdown import code, prose, table
from jobs import metrics

_HEAD = """\
# Metrics

Prometheus reads these metrics from coordinators and workers at `/metrics` on `METRICS_PORT`. See
[Monitoring](../monitoring.md) for dashboards and alerts.

All coordinators report the same cluster-wide values: aggregate them with `max`, not with `sum`. Metrics that are marked
"per coordinator" count the work of one process: aggregate those with `sum`.

"""
_SECTIONS = {"coordinator": "Metrics of coordinators", "worker": "Metrics of workers"}


def render() -> str:
    """Return the reference page of metrics as Markdown."""
    declared = {each.name: each for each in vars(metrics).values() if isinstance(each, metrics.Metric)}
    parts = [_HEAD]
    for process, title in _SECTIONS.items():
        records = (
            (
                code(each.name),
                each.type,
                ", ".join(map(code, each.labels)),
                prose(each.help) + (" Per coordinator." if each.per_replica else ""),
            )
            for each in sorted(declared.values(), key=lambda each: each.name)
            if each.shown_by == process
        )
        parts.append(f"## {title}\n\n{table(('Metric', 'Type', 'Labels', 'Description'), records)}\n")
    return "".join(parts)

"""All queries of the dashboards' panels, with variables replaced by values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from grafana.tables import DASHBOARDS

#: PromQL keywords that look like metrics.
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})
_GROUPING = r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"


@dataclass(frozen=True)
class Asked:
    dashboard: str
    panel: str
    expr: str
    #: "gpu", "dcgm" or "model": results can be empty without GPU workers, the DCGM exporter, or a model.
    needs: str


def every_query(window: str = "5m") -> Iterator[Asked]:
    """Yield all queries. `window` replaces $__rate_interval, and every other variable has its value for all."""
    for dashboard in DASHBOARDS:
        for row in dashboard.rows:
            for panel in row.panels:
                for query in panel.queries:
                    expr = query.expr.replace("$__rate_interval", window)
                    for name, _ in dashboard.variables:
                        expr = expr.replace(f"${name}", ".*")
                    yield Asked(dashboard.title, panel.title, expr, panel.needs)


def metric_names(expr: str) -> set[str]:
    """Return the names of the metrics in an expression."""
    bare = re.sub(r'"[^"]*"', "", expr)
    for noise in (r"\{[^}]*\}", r"\[[^]]*\]", _GROUPING):
        bare = re.sub(noise, " ", bare)
    return set(re.findall(r"(?<![\w:])[a-zA-Z_:][\w:]*\b(?!\s*\()", bare)) - _WORDS

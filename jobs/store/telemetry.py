"""Figures kept for people to look at: spans, history, alerts, counters."""

from __future__ import annotations

from jobs.store.scripts import Part


class Telemetry(Part):
    """Writes and reads figures; nothing about work depends on them."""

    def put_spans_away(self) -> int:
        """Join spans of lanes that went on to nothing to the others; return how many. Only the leader does."""
        return int(self._scripts.run("spans"))

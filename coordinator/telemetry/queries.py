"""Rows of alerts, read from Redis and shaped. Reads only."""

from __future__ import annotations

from datetime import datetime

from coordinator import decoding
from coordinator.telemetry import alerts
from jobs.store import Store, skipped
from threads_protocol.answers import telemetry as answers


class TelemetryQueries:
    """Alerts that fire and those that were resolved."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def alerts(self) -> list[answers.Alert]:
        """Return alerts that fire and, for an hour, those that did."""
        return alerts.sort_alerts(
            skipped.readable("alert", self._store.telemetry.alerts(), lambda _, text: _alert(text))
        )


def _alert(text: bytes) -> answers.Alert:
    alert: answers.Alert = decoding.parse_json(text)
    if alert["state"] not in ("firing", "resolved") or not isinstance(alert["id"], str):
        raise ValueError("it is no alert")
    datetime.fromisoformat(alert["since"])
    datetime.fromisoformat(alert["until"] or alert["since"])
    return alert

"""Read alerts from Redis for the API."""

from __future__ import annotations

from datetime import datetime

from coordinator import decoding
from coordinator.telemetry import alerts
from jobs.store import Store, unreadable_entries
from threads_protocol.answers import telemetry as answers


class TelemetryQueries:
    """Queries of firing and resolved alerts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def alerts(self) -> list[answers.Alert]:
        """Return the firing alerts, and the alerts resolved within the last hour."""
        return alerts.sort_alerts(
            unreadable_entries.readable("alert", self._store.telemetry.alerts(), lambda _, text: _alert(text))
        )


def _alert(text: bytes) -> answers.Alert:
    alert: answers.Alert = decoding.parse_json(text)
    if alert["state"] not in ("firing", "resolved") or not isinstance(alert["id"], str):
        raise ValueError("the stored alert is invalid")
    datetime.fromisoformat(alert["since"])
    datetime.fromisoformat(alert["until"] or alert["since"])
    return alert

"""What the API shows of alerts, read from Redis and shaped. Reads only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordinator import decoding
from coordinator.telemetry import alerts
from jobs.store import Store, skipped


class TelemetryQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that fire and, for an hour, those that did."""
        return alerts.shown(skipped.readable("alert", self._store.telemetry.alerts(), lambda _, text: _alert(text)))


def _alert(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = decoding.parsed(text)
    if found["state"] not in ("firing", "resolved") or not isinstance(found["id"], str):
        raise ValueError("it is no alert")
    datetime.fromisoformat(found["since"])
    datetime.fromisoformat(found["until"] or found["since"])
    return found

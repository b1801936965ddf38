"""Jobs that cannot finish before a test allows it, because half of their units wait for a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.live import Live

#: Duration of each unit in seconds.
PACE = 0.01


def submit(live: Live, go_on: Path, units: int, **more: Any) -> str:
    """Submit a job of the kind `faulty` whose second half waits for the file, and return its ID."""
    parameters = {"units": units, "seconds_per_unit": PACE, "fault": "wait", "at": units // 2, "once": str(go_on)}
    return live.submit("faulty", parameters | more)


def at_work(live: Live, job: str) -> set[str]:
    """Return the workers that have a lease of a job."""
    found = live.get("/api/stream")
    return {found["lanes"][one["lane"]]["worker"] for one in found["spans"] if one["open"] and one["job_id"] == job}

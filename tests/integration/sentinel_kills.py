"""Kills of the master under load: `python -m tests.integration.sentinel_kills 10` prints what each cost.

Each round submits jobs without pause, kills the master with SIGKILL, and goes on until writes are acknowledged again;
then what was acknowledged is looked up and its results are compared with the known sums.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.integration.live import until
from tests.integration.sentinel import SentinelLive

#: Seconds of load before the kill, and after writes succeed again.
BEFORE_SECONDS, AFTER_SECONDS = 1.0, 1.0
#: Seconds within which writes must succeed again.
GOAL_SECONDS = 10.0


@dataclass
class Load(threading.Thread):
    """Submits jobs one after another to any coordinator that answers, each until it is acknowledged."""

    live: SentinelLive
    number: int
    #: Number of units of each job by ID, in the order of acknowledgment.
    units: dict[str, int] = field(default_factory=dict)
    acknowledged: list[float] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        super().__init__(name=f"load-{self.number}", daemon=True)
        self.ended = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        with httpx.Client(timeout=15) as http:
            while not self.ended.is_set():
                self._submit(http, 3 + len(self.units) % 50)

    def _submit(self, http: httpx.Client, units: int) -> None:
        key = f"load-{self.number}-{len(self.units)}-{id(self)}"
        body = {"type": "faulty", "parameters": {"units": units}, "idempotency_key": key}
        while not self.ended.is_set():
            with contextlib.suppress(httpx.TransportError):
                answer = http.post(f"{self.live.url(self.refused % len(self.live.ports))}/api/submit", json=body)
                if answer.status_code == 202:
                    self.acknowledged.append(time.monotonic())
                    self.units[answer.json()["job_id"]] = units
                    return
                assert answer.status_code == 503, answer.text
            self.refused += 1
            time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Cost of one kill."""

    #: Seconds from the kill to the next acknowledged write.
    outage: float
    acknowledged: int
    refused: int
    lost: list[str]
    wrong: list[str]
    #: True if a job that was running when the master died has the same sum as without the kill.
    split: bool

    def __str__(self) -> str:
        return (
            f"writes resumed after {self.outage:.1f} s; {self.acknowledged} acknowledged, {self.refused} refused, "
            f"{len(self.lost)} lost, {len(self.wrong)} wrong; the divided job {'exact' if self.split else 'WRONG'}"
        )

    def is_good(self) -> bool:
        return self.outage <= GOAL_SECONDS and not self.lost and not self.wrong and self.split


def strike(live: SentinelLive, submitters: int = 2) -> Outcome:
    """Kill the master of a healthy cluster under load, and restart it as a replica."""
    until(live.whole, 60)
    large = live.submit("faulty", {"units": 600, "seconds_per_unit": 0.01})
    loads = [Load(live, number) for number in range(submitters)]
    for load in loads:
        load.start()
    until(lambda: live.job(large)["done"] > 0)
    time.sleep(BEFORE_SECONDS)
    died = time.monotonic()
    number = live.kill_master()
    until(lambda: any(load.acknowledged and load.acknowledged[-1] > died + 0.5 for load in loads), 90)
    time.sleep(AFTER_SECONDS)
    for load in loads:
        load.ended.set()
    for load in loads:
        load.join(30)
    live.start_server(number)
    units = {job: count for load in loads for job, count in load.units.items()}
    lost, wrong = judged(live, units)
    times = sorted(at for load in loads for at in load.acknowledged)
    outage = next(at for at in times if at > died + 0.5) - died
    refused = sum(load.refused for load in loads)
    exact = live.result(large, 90)["sum"] == expected(600)
    return Outcome(outage=outage, acknowledged=len(units), refused=refused, lost=lost, wrong=wrong, split=exact)


def judged(live: SentinelLive, units: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return missing jobs, and finished jobs whose result is not the sum of their units."""
    lost: list[str] = []
    wrong: list[str] = []
    with httpx.Client(timeout=60, base_url=live.url()) as http:
        for job, count in units.items():
            if (row := ended(http, job)) is None:
                lost.append(job)
            elif row["state"] != "done" or result(http, job)["sum"] != expected(count):
                wrong.append(job)
    return lost, wrong


def result(http: httpx.Client, job: str) -> Any:
    return until(lambda: (answer := http.get(f"/api/jobs/{job}/result")).is_success and answer).json()["result"]


def expected(count: int) -> int:
    return count * (count - 1) // 2


def ended(http: httpx.Client, job: str) -> Any:
    """Return the finished job, or None if there is no such job."""

    def look() -> Any:
        answer = http.get(f"/api/jobs/{job}?wait_seconds=5")
        if answer.status_code == 404:
            return {"state": "missing"}
        row = answer.json() if answer.status_code == 200 else {"state": "unknown"}
        return row if row["state"] in ("done", "failed", "cancelled") else None

    row = until(look, 60)
    return None if row["state"] == "missing" else row


def main(kills: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        live = SentinelLive(Path(folder), workers=2, coordinators=2)
        try:
            live.start()
            outcomes = []
            for number in range(1, kills + 1):
                outcomes.append(strike(live))
                print(f"kill {number}: {outcomes[-1]}", flush=True)
        finally:
            live.stop()
    bad = [outcome for outcome in outcomes if not outcome.is_good()]
    outages = sorted(outcome.outage for outcome in outcomes)
    lost, wrong = (sum(len(getattr(outcome, name)) for outcome in outcomes) for name in ("lost", "wrong"))
    print(
        f"{kills} kills: writes resumed after {outages[0]:.1f} to {outages[-1]:.1f} s, median "
        f"{outages[len(outages) // 2]:.1f} s; {sum(outcome.acknowledged for outcome in outcomes)} jobs acknowledged, "
        f"{lost} lost, {wrong} wrong"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 10))

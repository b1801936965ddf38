"""R1: kill -9 of a child or of a worker while both cores compute, until a warm lane has leased its range again."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Row
from jobs import leases
from tests.integration.live import Live, running, until
from tests.integration.test_worker import children

KILLS = 20
GOAL_SECONDS = 5.0
#: Two workers of a lane each: every lane has another that can take over.
WORKERS, LANES = 2, 1
VICTIM = "worker-0"
JOB = {"mode": "statistics", "start_number": 10**12, "number_count": 10**13}

Range = tuple[int, int]


def _leased(live: Live, job: str) -> dict[str, tuple[Range, str]]:
    """What is leased now: range and lane by token."""
    found = {}
    for token, text in live.redis().hgetall(leases.key(job, "lease")).items():
        lo, hi, *_, lane = text.decode().split(":")
        found[token.decode()] = ((int(lo), int(hi)), lane)
    return found


def _holders(live: Live, job: str, unit: int) -> set[str]:
    return {token for token, ((lo, hi), _) in _leased(live, job).items() if lo <= unit < hi}


def _free(live: Live, job: str, unit: int) -> bool:
    pieces = [piece.decode().split(":") for piece in live.redis().lrange(leases.key(job, "free"), 0, -1)]
    return any(int(lo) <= unit < int(hi) for lo, hi, *_ in pieces)


def _kill_child(live: Live) -> None:
    os.kill(children(live, VICTIM)[0].pid, signal.SIGKILL)


def _kill_worker(live: Live) -> None:
    live.kill(VICTIM)


def _lapsed(live: Live) -> int:
    """Leases that were taken back because their lane died."""
    return sum(int(count or 0) for count in live.redis().hmget("ct:outcomes", "crashed", "expired"))


def _once(live: Live, job: str, kill: Callable[[Live], None]) -> float | None:
    """Seconds from the kill of a lane until the first unit of its lease is in another. None: it had just committed."""
    token, lo = until(lambda: _held(live, job), 120)
    before = _lapsed(live)
    time.sleep(0.2)
    kill(live)
    died = time.monotonic()
    token, lo = _held(live, job) or (token, lo)
    until(lambda: token not in _holders(live, job, lo) and not _free(live, job, lo), 60)
    return time.monotonic() - died if _lapsed(live) > before else None


def _held(live: Live, job: str) -> tuple[str, int] | None:
    """Token and first unit of the victim's lease."""
    held = [(token, lo) for token, ((lo, _), lane) in _leased(live, job).items() if lane.startswith(VICTIM)]
    return held[0] if held else None


def _ready(live: Live) -> None:
    """Both workers are back, and both lanes compute."""
    if VICTIM not in live.processes:
        live.start_worker(0)
    until(lambda: len(live.redis().zrange("ct:workers", 0, -1)) == WORKERS, 120)


def _measure(live: Live, what: str, kill: Callable[[Live], None]) -> list[float]:
    job = live.submit("collatz", JOB)
    seconds: list[float] = []
    while len(seconds) < KILLS:
        _ready(live)
        took = _once(live, job, kill)
        if took is not None:
            seconds.append(took)
            print(f"R1 {what} {len(seconds)}: {took:.2f} s", file=sys.stderr)
    live.post(f"/api/jobs/{job}/cancel")
    _ready(live)
    return seconds


def run() -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), workers=WORKERS, lanes=LANES) as live:
        for what, kill in (("child", _kill_child), ("worker", _kill_worker)):
            seconds = _measure(live, what, kill)
            for name, reached in (("median", statistics.median(seconds)), ("max", max(seconds))):
                rows.append(
                    Row(
                        id=f"R1@{what}-{name}", ours=reached, peer=GOAL_SECONDS, ratio=GOAL_SECONDS / reached, unit="s",
                        peer_name="the goal",
                    )
                )  # fmt: skip
    return rows

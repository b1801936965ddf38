"""Tests that one job on lanes of different speeds uses all of them, and that all finish together."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.store import keys
from tests.gpu.host_device import MISSING
from tests.integration.live import Live, until, within

pytestmark = pytest.mark.skipif(bool(MISSING) and os.environ.get("CI") != "true", reason=MISSING)

#: Seconds of work for all lanes together; use BALANCE_SECONDS=60 for a longer test.
IDEAL = float(os.environ.get("BALANCE_SECONDS", "10"))
CPU_SECONDS = 0.001


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a CPU worker with one lane and a GPU worker with two, whose kind sets the duration of its units."""
    folder = tmp_path_factory.mktemp("balance")
    (folder / "faults").mkdir()
    live = Live(folder, workers=1, lanes=1)
    try:
        live.start()
        own = {"WORKER_ID": "gpu-0", "METRICS_PORT": "0", "PRETENDED_FAULTS": str(folder / "faults")}
        live.start_process("gpu-0", [sys.executable, "-m", "tests.gpu.pretended"], **own)
        live.wait_ready(2)
        yield live
    finally:
        live.stop()


def ends(live: Live) -> dict[str, float]:
    """Return when each lane committed its last lease of the only job, in seconds from the first lease."""
    spans = {lane.decode(): text.decode().split(":") for lane, text in live.redis().hgetall("ct:span").items()}
    first = min(int(span[3]) for span in spans.values())
    return {lane: (int(span[4]) - first) / 1000 for lane, span in spans.items()}


@pytest.mark.alone
@pytest.mark.timeout(300 + 6 * IDEAL)
@pytest.mark.parametrize("faster", [10, 0.1, 1], ids=lambda ratio: f"a GPU lane {ratio} times as fast")
def test_lanes_of_different_speed_end_together(both: Live, faster: float) -> None:
    assert within(lambda: imbalance(both, faster), 1.0)


def imbalance(mixed: Live, faster: float) -> float:
    """Return the worst of what a job's lanes had, how long it took and when they ended, as parts of what is allowed."""
    mixed.redis().delete(keys.SPAN, keys.PACE)  # what is kept of the jobs before
    gpu_seconds = CPU_SECONDS / faster
    speed = 1 / CPU_SECONDS + 2 / gpu_seconds
    units = int(IDEAL * speed)
    parameters = {"units": units, "cpu_seconds_per_unit": CPU_SECONDS, "gpu_seconds_per_unit": gpu_seconds}
    job = mixed.submit("paced", parameters)
    assert mixed.result(job, 2 * IDEAL + 40) == {"sum": units * (units - 1) // 2}
    shown: dict[str, Any] = mixed.job(job)
    used = {name: share["units"] / units for name, share in shown["usage"]["workers"].items()}
    last = ends(mixed)
    print(f"{shown['seconds']} s of {IDEAL} s, {used}, ends {last}")
    fair = (1 / CPU_SECONDS) / speed
    assert len(last) == 3
    return max(
        abs(used["worker-0"] / fair - 1) / 0.15,
        shown["seconds"] / (1.05 * IDEAL + 0.1 * bool(os.environ.get("CI"))),
        (max(last.values()) - min(last.values())) / (0.05 * IDEAL),
    )


@pytest.mark.alone
def test_nodes_show_the_rate_device_and_job_of_each(both: Live) -> None:
    both.redis().delete(keys.SPAN, keys.PACE)
    job = both.submit("paced", {"units": 10**6})
    until(
        lambda: all(node["job"] == job and node["rates"].get("paced") for node in both.get("/api/workers")["workers"])
    )
    until(lambda: both.job(job)["progress"] > 0.05)
    until(lambda: rates(both) == pytest.approx({"cpu": 1000, "gpu": 10_000}, rel=0.15))
    both.post(f"/api/jobs/{job}/cancel")


def rates(live: Live) -> dict[str, float]:
    """Return units per second by device, as the nodes report them."""
    return {node["device"]: node["rates"].get("paced", 0.0) for node in live.get("/api/workers")["workers"]}

"""Tests a GPU worker and a runner that share a fake GPU on a real cluster."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.gpu.host_device import MISSING
from tests.gpu.pretended import UUIDS
from tests.integration.live import Live, until
from tests.integration.test_gpu_worker import expected, node
from tests.integration.test_local_cluster import running

pytestmark = pytest.mark.skipif(bool(MISSING) and os.environ.get("CI") != "true", reason=MISSING)

#: Its first calls are answered by a cluster that asks for tokens.
TOKEN = "t" * 40
GPU = UUIDS[0]
#: Parameters of a job that takes the fake GPU some seconds.
WORK: dict[str, Any] = {"mode": "verify", "start_number": str(2**40), "number_count": 8 * 2**32}
SHOWS_ITS_GPU = 'printf \'"%s"\' "$CUDA_VISIBLE_DEVICES" > "$CLUSTER_RESULT"'


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start a cluster with a GPU worker and a runner that share the first GPU."""
    folder = tmp_path_factory.mktemp("sharing")
    (folder / "faults").mkdir()
    made = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts")
    try:
        made.start_redis()
        made.start_coordinator()
        start_gpu_worker(made)
        start_runner(made)
        made.wait_ready(2)
        yield made
    finally:
        made.stop()


def start_gpu_worker(live: Live) -> None:
    own = {"WORKER_ID": "gpu-0", "METRICS_PORT": "0", "PRETENDED_FAULTS": str(live.folder / "faults")}
    own |= {"CUDA_VISIBLE_DEVICES": "0", "PRETENDED_IDLE_SECONDS": "3"}
    live.start_process("gpu-0", [sys.executable, "-m", "tests.gpu.pretended"], **own)


def start_runner(live: Live) -> None:
    own = {
        "RUNNER_SLOTS": "2",
        "RUNNER_DIR": str(live.folder / "runner-0"),
        "METRICS_PORT": "0",
        "HOST_ID": "host-0",
        "PRETENDED_FAULTS": str(live.folder / "faults"),
    }
    live.start_process(
        "runner-0", [sys.executable, "-m", "tests.gpu.pretended_runner"], **{**own, **live.remote("runner-0")}
    )


def program(live: Live, text: str, priority: str = "normal", gpus: int = 2, **more: Any) -> str:
    """Start a program that by default needs both GPUs, one of which the GPU worker has."""
    spec = {"command": text, "requirements": {"gpus": gpus}, **more}
    return live.submit("command", spec, priority=priority)


def value(live: Live, job: str) -> Any:
    live.result(job, 90)
    return live.get(f"/api/jobs/{job}/units")["units"][0]["value"]


@cache
def the_result() -> Any:
    return expected(WORK)


def owner(live: Live) -> str:
    found: bytes = live.redis().get(f"ct:gpu:{GPU}") or b""
    return found.decode()


def ready(live: Live) -> None:
    until(lambda: node(live).get("state") in ("idle", "busy") and owner(live) == "gpu-0", 90)


def kernels(live: Live, priority: str = "normal") -> str:
    """Start a job that the GPU worker computes."""
    ready(live)
    (live.folder / "faults" / "slow").write_text("0.5")
    job = live.submit("collatz", WORK, device="gpu", priority=priority)
    until(lambda: live.job(job)["done"] > 0, 60)
    return job


def computed_once(live: Live, job: str) -> None:
    """Check that the result is exact and that no lease was lost."""
    (live.folder / "faults" / "slow").unlink(missing_ok=True)
    assert live.result(job, 120) == the_result()
    row = live.job(job)
    assert row["usage"]["expired_leases"] == 0
    assert sum(share["units"] for share in row["usage"]["workers"].values()) == row["total"]


def test_a_gpu_goes_from_the_worker_to_a_program_and_back(live: Live) -> None:
    job, process = kernels(live), live.processes["gpu-0"]
    go_on = live.folder / "go-on"
    ran = program(live, f"until [ -e '{go_on}' ]; do sleep 0.1; done; {SHOWS_ITS_GPU}")
    until(lambda: owner(live) == "runner-0", 60)
    until(lambda: node(live).get("state") == "parked", 60)
    (live.folder / "faults" / "slow").unlink()
    assert 0 < live.job(job)["done"] < live.job(job)["total"]
    go_on.touch()
    assert value(live, ran) == ",".join(UUIDS)
    ready(live)
    computed_once(live, job)
    assert process.poll() is None, "it is the same process, by its number"
    assert "committing finished work, then restarting" in live.log("gpu-0")


def test_a_program_of_a_lower_priority_waits_for_the_kernels(live: Live) -> None:
    job = kernels(live, "high")
    low = program(live, "true", "low")
    until(lambda: live.redis().zcard(f"ct:gpu:{GPU}:wanted"))
    computed_once(live, job)
    assert live.result(low, 90)["units"] == 1, "a worker without work gives way"
    assert live.job(low)["started"] >= live.job(job)["ended"]


def test_a_runner_that_is_killed_loses_the_gpu_when_it_is_back(live: Live) -> None:
    job = program(
        live, 'cd "$CLUSTER_WORKSPACE"; test -e begun && exit 0; touch begun; sleep 4344.1', "high", workspace="k"
    )
    until(lambda: running("sleep 4344.1"))
    live.kill("runner-0")
    assert owner(live) == "runner-0", "who knows what runs there"
    start_runner(live)
    assert live.result(job, 90)["attempts"] == 1
    ready(live)


def test_a_gpu_worker_that_is_killed_leaves_the_gpu_to_the_program(live: Live) -> None:
    job = kernels(live, "high")
    waiting = program(live, "true", "low")
    live.kill("gpu-0")
    (live.folder / "faults" / "slow").unlink()
    assert live.result(waiting, 60)["units"] == 1
    start_gpu_worker(live)
    assert live.result(job, 120) == the_result()


def test_a_parked_worker_ends_when_it_is_told_to(live: Live) -> None:
    ready(live)
    job = program(live, "sleep 600", "high")
    until(lambda: node(live).get("state") == "parked", 60)
    waits = live.submit("collatz", WORK, device="gpu")
    until(lambda: "programs use the GPUs" in (live.job(waits)["waiting_because"] or ""))
    process = live.processes.pop("gpu-0")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    until(lambda: node(live).get("state") == "stopped")
    for each in (job, waits):
        assert live.post(f"/api/jobs/{each}/cancel").status_code == 200


def test_a_gpu_on_which_something_of_others_lies_is_given_to_no_program(live: Live) -> None:
    (live.folder / "faults" / GPU).touch()
    assert value(live, program(live, SHOWS_ITS_GPU, gpus=1)) == UUIDS[1]
    assert "a test lies there" in live.log("runner-0")

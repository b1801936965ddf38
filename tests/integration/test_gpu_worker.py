"""Tests the GPU worker's process in a real cluster with a fake GPU, whose kernels run on the host."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.kinds import registry
from jobs.models import Device
from tests.gpu.host_device import MISSING
from tests.gpu.pretended import UUIDS, WATTS
from tests.integration.live import Live, until

pytestmark = pytest.mark.skipif(bool(MISSING) and os.environ.get("CI") != "true", reason=MISSING)

#: Parameters of a job whose units take the fake GPU a third of a second each.
VERIFY: dict[str, Any] = {"mode": "verify", "start_number": str(2**40), "number_count": 8 * 2**32}


@contextmanager
def gpu_cluster(folder: Path, gpus: int = 1, cpus: int = 0, **environment: Any) -> Iterator[Live]:
    (folder / "faults").mkdir()
    live = Live(folder, workers=cpus, lanes=1, **environment)
    try:
        live.start()
        for number in range(gpus):
            start_gpu_worker(live, number)
        live.wait_ready(cpus + gpus)
        yield live
    finally:
        live.stop()


def start_gpu_worker(live: Live, number: int = 0, **environment: str) -> None:
    own = {"WORKER_ID": f"gpu-{number}", "METRICS_PORT": "0", "PRETENDED_FAULTS": str(live.folder / "faults")}
    live.start_process(f"gpu-{number}", [sys.executable, "-m", "tests.gpu.pretended"], **own, **environment)


def node(live: Live, name: str = "gpu-0") -> dict[str, Any]:
    found: dict[str, Any] = next((one for one in live.get("/api/workers")["workers"] if one["id"] == name), {})
    return found


def expected(parameters: dict[str, Any]) -> Any:
    """Return the result of the CPU kernel."""
    definition: Any = registry.definition("collatz")
    plan = definition.plan(definition.parameters.model_validate(parameters))
    _, partial = registry.kernel("collatz", Device.CPU).run(plan.spec, 0, plan.total, lambda _: True)
    return definition.result(plan.spec, json.loads(json.dumps(partial)))


def test_a_gpu_worker_computes_and_shows_its_gpu(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path) as live:
        one = node(live)
        assert (one["device"], one["lanes"]) == ("gpu", 2)
        (shown,) = one["gpus"]
        assert (shown["uuid"], shown["power_watts"], shown["throttle_reasons"]) == (UUIDS[0], WATTS, ["sw_power_cap"])
        parameters = {"mode": "statistics", "start_number": 2**40 - 10**6, "number_count": 6 * 2**24}
        job = live.submit("collatz", parameters, device="gpu")
        assert live.result(job) == expected(parameters)
        usage = live.job(job)["usage"]
        assert set(usage["workers"]) == {"gpu-0"}
        assert 0 < usage["device_seconds"] <= live.job(job)["seconds"] + 0.1
        assert usage["joules"] == pytest.approx(WATTS * usage["device_seconds"], rel=0.05)
        small = {"mode": "verify", "start_number": 10**12, "number_count": 1000}
        assert live.result(live.submit("collatz", small, device="gpu")) == expected(small)
        default = {"seed": 1, "thread_count": 1000, "max_depth": 10, "batch_size": 256}
        answer = live.post("/api/submit", {"type": "thread", "gpu_preferred": True, "parameters": default}).json()
        golden = (registry.folder("thread") / "golden.json").read_text()
        assert live.result(answer["job_id"])["digest"] in golden and not answer["notes"]
        assert set(live.job(answer["job_id"])["usage"]["workers"]) == {"gpu-0"}
        assert "self-test passed" in live.log("gpu-0")


def test_what_has_no_gpu_kernel_goes_to_cpus_and_says_so(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path, cpus=1) as live:
        body = {"type": "collatz", "parameters": {"mode": "trajectory", "n": 27}, "gpu_preferred": True}
        answer = live.post("/api/submit", body).json()
        assert answer["notes"] == ["runs on the CPU: the job has no GPU kernel"]
        refused = live.post("/api/submit", {**body, "gpu_preferred": False, "device": "gpu"})
        assert refused.status_code == 422 and "cannot run on" in refused.json()["detail"]


def test_two_workers_of_a_host_claim_two_gpus_and_a_third_finds_none(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path, gpus=2) as live:
        claimed = [node(live, f"gpu-{number}")["gpus"][0]["uuid"] for number in range(2)]
        assert sorted(claimed) == sorted(UUIDS)
        start_gpu_worker(live, 2)
        assert live.processes["gpu-2"].wait(120) == 1
        assert "other workers use every GPU of this host" in live.log("gpu-2")
        live.kill("gpu-0", signal.SIGTERM)
        start_gpu_worker(live, 3)
        until(lambda: node(live, "gpu-3").get("state") == "idle", 120)
        assert node(live, "gpu-3")["gpus"][0]["uuid"] == claimed[0]


def test_a_gpu_that_was_killed_with_its_worker_is_free_soon(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path, CUDA_VISIBLE_DEVICES="1") as live:
        assert node(live)["gpus"][0]["uuid"] == UUIDS[1]
        live.kill("gpu-0")
        time.sleep(5.2)
        start_gpu_worker(live, 1)
        until(lambda: node(live, "gpu-1").get("state") == "idle", 120)


def test_a_device_error_hands_the_lease_back_and_retires_the_worker(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path) as live:
        (tmp_path / "faults" / "slow").write_text("0.3")
        job = live.submit("collatz", VERIFY, device="gpu")
        until(lambda: live.job(job)["done"] > 0)
        (tmp_path / "faults" / "lost").touch()
        assert live.processes["gpu-0"].wait(60) == 1
        assert live.redis().zcard(f"ct:job:{job}:leases") == 0
        gone = until(lambda: (row := node(live)).get("state") == "stopped" and row)
        assert "illegal memory access" in gone["retired"]
        assert "returns its leases and exits" in live.log("gpu-0")
        start_gpu_worker(live)
        assert live.processes["gpu-0"].wait(120) == 1, "a GPU that fails its self-test must get no work"
        assert "cannot be used" in live.log("gpu-0")
        (tmp_path / "faults" / "lost").unlink()
        (tmp_path / "faults" / "slow").unlink()
        start_gpu_worker(live)
        assert live.result(job, 120) == expected(VERIFY)


def test_a_sick_gpu_is_cordoned_and_what_it_computed_last_is_computed_elsewhere(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path) as live:
        (tmp_path / "faults" / "slow").write_text("1")
        job = live.submit("collatz", VERIFY)
        until(lambda: live.job(job)["done"] > 0, 60)
        (tmp_path / "faults" / "xid").write_text("79")
        sick = until(lambda: (row := node(live)).get("cordoned") and row["state"] == "drained" and row, 60)
        assert "Xid 79" in sick["cordoned"] and sick["live"] and not sick["busy_lanes"]
        assert live.job(job)["state"] == "running", "some of it is left"
        live.start_worker(0)
        assert live.result(job, 240) == expected(VERIFY)
        [host] = live.get("/api/hosts")["hosts"]
        assert [(one["cordoned"] or "")[:10] for one in host["devices"]] == [UUIDS[0][:10]]
        until(lambda: not live.redis().zcount("ct:workers:gpu", 0, "+inf"), 60)
        preferred = live.post("/api/submit", {"type": "collatz", "gpu_preferred": True, "parameters": VERIFY}).json()
        assert "no GPU worker is alive" in preferred["notes"][0]
        live.post(f"/api/jobs/{preferred['job_id']}/cancel")
        waits = live.submit("collatz", VERIFY, device="gpu")
        until(lambda: "Xid 79" in (live.job(waits)["waiting_because"] or ""), 60)
        live.kill("gpu-0", signal.SIGTERM)
        (tmp_path / "faults" / "xid").unlink()
        (tmp_path / "faults" / "slow").unlink()
        start_gpu_worker(live)
        until(lambda: live.job(waits)["state"] == "running", 120)


def test_a_gpu_with_wrong_answers_gets_no_work(tmp_path: Path) -> None:
    (tmp_path / "faults").mkdir()
    with (tmp_path / "faults" / "wrong").open("w"):
        live = Live(tmp_path, workers=0)
        try:
            live.start()
            start_gpu_worker(live)
            assert live.processes["gpu-0"].wait(120) == 1
            assert "failed its self-test and gets no work" in live.log("gpu-0")
            until(lambda: "wrong" in (node(live).get("retired") or ""))
        finally:
            live.stop()


#: Launches that two lanes begin within the two seconds in which a worker hears of a cancel; a lease has hundreds.
HEARD_LAUNCHES = 50


@pytest.mark.alone
def test_cancel_and_sigterm_wait_for_no_more_than_a_launch(tmp_path: Path) -> None:
    with gpu_cluster(tmp_path) as live:
        (tmp_path / "faults" / "slow").write_text("0.1")
        job = live.submit("collatz", {**VERIFY, "number_count": 10**6 * 2**32}, device="gpu")
        until(lambda: live.job(job)["done"] > 0)
        live.post(f"/api/jobs/{job}/cancel")
        begun = launches(tmp_path)
        live.wait_for(job, "cancelled")
        assert launches(tmp_path) - begun <= HEARD_LAUNCHES
        job = live.submit("collatz", {**VERIFY, "number_count": 10**6 * 2**32}, device="gpu")
        until(lambda: live.job(job)["done"] > 0)
        begun = launches(tmp_path)
        live.processes["gpu-0"].send_signal(signal.SIGTERM)
        assert live.processes["gpu-0"].wait(60) == 0
        assert launches(tmp_path) - begun <= HEARD_LAUNCHES
        assert live.redis().zcard(f"ct:job:{job}:leases") == 0


def launches(folder: Path) -> int:
    """Return the number of started launches."""
    return (folder / "faults" / "launches").stat().st_size


@pytest.mark.parametrize(("enabled", "code", "words"), [("false", 0, "GPU_ENABLED=false"), ("true", 0, "")])
def test_gpu_enabled_says_what_is_chosen(tmp_path: Path, enabled: str, code: int, words: str) -> None:
    (tmp_path / "faults").mkdir()
    live = Live(tmp_path, workers=0)
    try:
        live.start()
        start_gpu_worker(live, GPU_ENABLED=enabled)
        if enabled == "true":
            until(lambda: node(live).get("state") == "idle", 120)
            live.processes["gpu-0"].send_signal(signal.SIGTERM)
        assert live.processes["gpu-0"].wait(120) == code
        assert words in live.log("gpu-0")
    finally:
        live.stop()


@pytest.mark.parametrize(("enabled", "code"), [("auto", 0), ("true", 1)])
def test_without_a_gpu_the_real_worker_says_what_to_do(tmp_path: Path, enabled: str, code: int) -> None:
    live = Live(tmp_path, workers=0, GPU_ENABLED=enabled)
    try:
        live.start_redis()
        live.start_process("gpu-0", [sys.executable, "-m", "gpu_worker"])
        assert live.processes["gpu-0"].wait(120) == code
        said = live.log("gpu-0")
        assert "no GPU" in said and ("python -m cpu_worker" if enabled == "auto" else "set GPU_ENABLED=auto") in said
    finally:
        live.stop()

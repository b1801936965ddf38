"""Tests telemetry with the real pynvml and a fake libnvidia-ml.so.1: shares of a device, RAPL, and claimable GPUs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.claim import filter_visible
from gpu_worker.health import Health
from jobs import metrics
from jobs.worker.telemetry.gpus import HostGpu, Sample, describe_gpu
from jobs.worker.telemetry.host import Packages
from jobs.worker.telemetry.meter import Meter
from jobs.worker.telemetry.nvml import REASONS

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "tests" / "gpu" / "nvml_stub.c"
PROGRAM = """
import ctypes, json
from dataclasses import asdict
from jobs.worker.telemetry.nvml import Nvml
from jobs.worker.telemetry.gpus import NoTelemetry, describe_gpu
try:
    nvml = Nvml()
except NoTelemetry as error:
    print(json.dumps(str(error)))
else:
    found = nvml.gpus()
    samples = [describe_gpu(gpu, nvml.sample(gpu.uuid)) for _ in range(3) for gpu in found]
    faults = [nvml.fault("GPU-stub") for _ in range(2)] + [nvml.fault("GPU-gone")]
    lost = asdict(nvml.sample("GPU-gone")) | {"joules": nvml.joules("GPU-gone")}
    alive = ctypes.CDLL("libnvidia-ml.so.1").stub_samples_alive()
    nvml.close()
    print(json.dumps({"samples": samples, "lost": lost, "alive": alive, "faults": faults}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", STUB], check=True)
    return folder


def run_program(library: Path, stub: str = "", program: str = PROGRAM) -> Any:
    """Return what a new process reads from the library."""
    environment = {"LD_LIBRARY_PATH": str(library), "NVML_STUB": stub, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_that_nvml_tells_is_told_in_base_units(library: Path) -> None:
    found = run_program(library)
    first, second, _ = found["samples"]
    assert second == {
        "uuid": "GPU-stub",
        "index": 0,
        "name": "Stub H200",
        "utilization_ratio": 0.87,
        "sm_active_ratio": 0.7125,
        "memory_used_bytes": 3 * 2**30,
        "memory_total_bytes": 16 * 2**30,
        "temperature_celsius": 61.0,
        "power_watts": pytest.approx(345.678),
        "energy_joules_total": pytest.approx(5001.5),
        "clock_sm_hertz": 1.755e9,
        "clock_memory_hertz": 2.619e9,
        "pcie_receive_bytes_per_second": 4e6,
        "pcie_transmit_bytes_per_second": 3e6,
        "throttle_reasons": ["sw_power_cap", "hw_thermal_slowdown", "other"],
    }
    assert "sm_active_ratio" not in first, "one sample is no mean"
    assert set(second) == {"uuid", "index", "name"} | {field.name for field in fields(Sample)}
    assert found["alive"] == 1, "samples of activity are given back"
    assert set(found["lost"].values()) == {None}


def test_what_an_old_chip_does_not_tell_is_left_out_and_never_guessed(library: Path) -> None:
    known = run_program(library, "old")["samples"][-1]
    assert not {"sm_active_ratio", "power_watts", "energy_joules_total", "pcie_receive_bytes_per_second"} & set(known)
    assert known["utilization_ratio"] == 0.87


@pytest.mark.parametrize(
    ("stub", "fault"),
    [
        ("", ""),
        ("old", ""),
        ("programs", ""),
        ("xid", "the driver reported Xid 79"),
        ("ecc", "ECC could not correct 2 memory errors since the driver was loaded"),
    ],
)
def test_a_gpu_is_sick_by_what_its_driver_reports_of_it_and_not_of_programs(
    library: Path, stub: str, fault: str
) -> None:
    first, second, gone = run_program(library, stub)["faults"]
    assert (first, gone) == (fault, "")
    assert second == ("" if stub == "xid" else fault), "an event comes once, a count stays"


class _Provider:
    """Reports faults one after another."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)

    def fault(self, uuid: str) -> str:
        return self.faults.pop(0)


def test_the_first_fault_counts_and_nobody_is_asked_again() -> None:
    sick: Any = _Provider("", "Xid 79")
    health = Health(sick)
    gpu = HostGpu(index=0, uuid="GPU-x", name="X")
    assert health.look(None) == "" == health.look(gpu) == health.why()
    assert health.look(gpu).startswith("GPU-x: Xid 79; reset the GPU")
    assert health.look(gpu) == health.why() == health.look(None) and not sick.faults


def test_a_host_without_gpus_has_none(library: Path) -> None:
    assert run_program(library, "none")["samples"] == []


def test_a_driver_that_is_not_loaded_is_said(library: Path, tmp_path: Path) -> None:
    assert "Driver Not Loaded" in run_program(library, "broken")
    assert "nvidia-smi" in run_program(tmp_path)


def sampled(library: Path, file: Path, stub: str = "") -> list[Any]:
    """Return the recording of a host and its GPU by the process that a GPU worker starts."""
    asked = {
        "file": str(file),
        "hz": 20,
        "seconds": 0.6,
        "most": 1 << 20,
        "host": True,
        "gpus": ["GPU-stub"],
        "head": {},
    }
    environment = {"LD_LIBRARY_PATH": str(library), "NVML_STUB": stub, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gpu_worker.sampler"]
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    assert process.wait(60) == 0
    process.communicate()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_profile_has_the_gpu_beside_its_host(library: Path, tmp_path: Path) -> None:
    first, *_, last = sampled(library, tmp_path / "x")[1:]
    assert first["gpus"]["GPU-stub"].items() >= {"u": 0.87, "m": 3 * 2**30, "c": 61.0}.items()
    assert "cpu" in first and last["end"] == "time" and last["samples"] >= 1


def test_a_profile_without_a_driver_has_the_host_alone(library: Path, tmp_path: Path) -> None:
    first, *_ = sampled(library, tmp_path / "x", "broken")[1:]
    assert "cpu" in first and "gpus" not in first


def test_reasons_have_the_names_of_the_metric() -> None:
    assert {*REASONS.values(), "other"} == set(metrics.THROTTLE_REASONS)


def test_a_row_leaves_out_what_is_not_known() -> None:
    found = describe_gpu(HostGpu(index=3, uuid="GPU-x", name="X"), Sample(power_watts=0.0))
    assert found == {"uuid": "GPU-x", "index": 3, "name": "X", "power_watts": 0.0}


#: Program that prints the GPUs that a runner finds, and their measurements before and after the first one.
RUNNER = """
import json, threading
from runner import gpus
responds, nvml = threading.Event(), gpus.Nvml
gpus.Nvml = lambda: responds.wait(60) and nvml()
found = gpus.detect()
telemetry = gpus.Telemetry(found)
first = telemetry.read()
responds.set()
telemetry.settle()
print(json.dumps([[gpu.row() for gpu in found], first, telemetry.read()]))
"""


def test_a_runner_measures_its_gpus_like_a_gpu_worker(library: Path) -> None:
    [row], [first], [gpu] = run_program(library, program=RUNNER)
    assert row == {"memory_mib": 16 << 10, "compute_capability": "9.0"}
    assert first == {"uuid": "GPU-stub", "index": 0, "name": "Stub H200"}, "no heartbeat waits for the driver"
    known = run_program(library)["samples"][0]
    assert gpu == known and gpu["utilization_ratio"] == 0.87 and gpu["temperature_celsius"] == 61.0


def test_a_runner_without_a_driver_has_no_gpus(library: Path) -> None:
    assert run_program(library, "broken", RUNNER) == [[], [], []]


GPUS = [HostGpu(index=0, uuid="GPU-aa1", name=""), HostGpu(index=1, uuid="GPU-bb2", name="")]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [("", [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-aa", [0]), ("GPU-bb2, 0", [1, 0]), ("7", [])],
)
def test_only_visible_gpus_may_be_claimed(visible: str, indices: list[int]) -> None:
    assert [gpu.index for gpu in filter_visible(GPUS, visible)] == indices


# Shares


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.joules: float | None = 1000.0

    def passes(self, seconds: float, watts: float = 100.0) -> None:
        self.now += seconds
        if self.joules is not None:
            self.joules += seconds * watts


def test_a_device_is_shared_evenly_by_the_leases_that_run_and_idle_time_is_nobodys() -> None:
    clock = Clock()
    meter = Meter(energy=lambda: clock.joules, clock=lambda: clock.now)
    clock.passes(5)
    with meter.lease() as first:
        clock.passes(1)
        with meter.lease() as second:
            clock.passes(4)
        clock.passes(2)
    clock.passes(7)
    with meter.lease() as third:
        clock.passes(1, watts=300)
    assert (first.seconds, second.seconds, third.seconds) == pytest.approx((5, 2, 1))
    assert (first.joules, second.joules, third.joules) == pytest.approx((500, 200, 300))


def test_energy_that_is_not_told_is_absent() -> None:
    clock = Clock()
    clock.joules = None
    with Meter(energy=lambda: clock.joules, clock=lambda: clock.now).lease() as share:
        clock.passes(3)
    assert share.seconds == 3 and share.joules is None


# CPUs


def zone(folder: Path, name: str, microjoules: int) -> Path:
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text("1000000000\n")
    return path


def test_energy_of_all_packages_is_summed_over_their_wraps(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 999_000_000)
    zone(tmp_path, "intel-rapl:1", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", 77)  # a part of package 0
    packages = Packages(tmp_path)
    assert packages.joules() == 0
    zone(tmp_path, "intel-rapl:0", 2_000_000)
    zone(tmp_path, "intel-rapl:1", 6_500_000)
    assert packages.joules() == pytest.approx(3 + 1.5)


def test_energy_that_may_not_be_read_is_absent(tmp_path: Path) -> None:
    assert Packages(tmp_path / "none").joules() is None
    zone(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert Packages(tmp_path).joules() is None

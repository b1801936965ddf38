"""Tests which GPU workers the local cluster starts on machines with and without a driver and CuPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import cluster_programs, gpus
from deploy.local.processes import Run
from deploy.local.shape import Shape
from jobs.settings import Settings


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a machine whose driver lists some GPUs, with or without CuPy."""

    def made(count: int, *, cupy: bool) -> None:
        lines = "".join(f"GPU {number}: Pretended (UUID: GPU-{number})\\n" for number in range(count))
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        found = (lambda name: object()) if cupy else (lambda name: None)
        monkeypatch.setattr("deploy.local.gpus.importlib.util.find_spec", found)

    return made


def chosen(enabled: str = "auto", visible: str = "") -> Settings:
    return Settings.model_validate({"GPU_ENABLED": enabled, "CUDA_VISIBLE_DEVICES": visible})


def test_a_worker_for_each_gpu(machine: Callable[..., None]) -> None:
    machine(3, cupy=True)
    assert gpus.usable_gpus(chosen()) == (3, "")
    assert gpus.usable_gpus(chosen(visible="0,2")) == (2, "")
    assert gpus.usable_gpus(chosen("false")) == (0, "")


@pytest.mark.usefixtures("machine")
def test_a_machine_without_a_driver_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert gpus.usable_gpus(chosen()) == (0, "")
    with pytest.raises(gpus.NoGpus, match=r"GPU_ENABLED=true, but nvidia-smi lists no usable GPU.*GPU_ENABLED=auto"):
        gpus.usable_gpus(chosen("true"))


def test_a_gpu_without_cupy_is_told_with_the_next_command(machine: Callable[..., None]) -> None:
    machine(1, cupy=False)
    count, told = gpus.usable_gpus(chosen())
    assert count == 0 and "1 GPU(s)" in told and gpus.INSTALL in told
    with pytest.raises(gpus.NoGpus, match="CuPy is not installed"):
        gpus.usable_gpus(chosen("true"))


def test_gpu_workers_stand_beside_the_others_and_count(tmp_path: Path) -> None:
    shape = Shape(redis_server="redis-server", redis_port=1, port=2, metrics_port=0, lanes=(1, 1), gpus=2)
    parts = cluster_programs.programs(shape, Run.new(tmp_path), cluster_programs.passwords())
    programs = {each.name: each for each in parts}
    assert {each.name for each in parts if each.environment.get("SECRETS_KEY") != ""} == {"coordinator", "door"}
    assert {"gpu-worker-1", "gpu-worker-2", "cpu-worker-1"} <= programs.keys()
    assert programs["gpu-worker-2"].environment["WORKER_ID"] == "gpu-2"
    assert programs["coordinator"].environment["CLUSTER_SIZE"] == "4"

"""Tests CPU levels: the machine's level, the permitted levels, and the compiler options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import measure
from jobs import settings
from jobs.hosts import cpu_level

V2 = "fpu lm cmov cx16 cx8 fxsr mmx popcnt lahf_lm sse sse2 pni sse4_1 sse4_2 ssse3"
AVX2 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl avx512_vbmi2"


@pytest.mark.parametrize(("flags", "level"), [(V2, "v2"), (AVX2, "avx2"), (AVX512, "avx512")])
def test_a_cpu_has_the_highest_level_of_which_it_has_everything(flags: str, level: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nmodel name\t: x\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t: {flags}\n")
    assert cpu_level.of_host(file) == level


@pytest.mark.parametrize("lacks", ["avx512_vbmi2", "avx512dq"])
def test_avx512_without_what_the_kernels_need_is_avx2(lacks: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("flags : " + " ".join(flag for flag in AVX512.split() if flag != lacks))
    assert cpu_level.of_host(file) == "avx2"


def test_without_flags_it_is_the_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.hosts.cpu_level.platform.machine", lambda: "aarch64")
    file = tmp_path / "cpuinfo"
    assert cpu_level.of_host(file / "none") == "aarch64"
    file.write_text("processor : 0\nFeatures : fp asimd\n")
    assert cpu_level.of_host(file) == "aarch64"


def test_what_the_cpu_lacks_is_refused_with_what_it_has() -> None:
    for wanted in ("", "v2", "avx2"):
        cpu_level.check(wanted, "avx2")
    with pytest.raises(
        cpu_level.UnsupportedLevel, match=r"avx512, which this CPU \(avx2\) does not support: set it to v2 or avx2, or"
    ):
        cpu_level.check("avx512", "avx2")
    with pytest.raises(cpu_level.UnsupportedLevel, match=r"\(aarch64\) does not support: leave it empty"):
        cpu_level.check("v2", "aarch64")


def test_a_lower_level_is_told_to_numba_and_gcc_and_ones_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_level, "of_host", lambda: "avx512")
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    for wanted in ("", "avx512"):
        monkeypatch.setattr(measure, "load", lambda wanted=wanted: settings.Settings(cpu_level=wanted))
        assert settings.use_cpu_level(wanted) == "avx512" and "NUMBA_CPU_NAME" not in os.environ
        assert measure.gcc_target() == "-march=native"
    monkeypatch.setattr(measure, "load", lambda: settings.Settings(cpu_level="avx2"))
    monkeypatch.setenv("NUMBA_CPU_NAME", "other")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "other")
    assert settings.use_cpu_level("avx2") == "avx2" and os.environ["NUMBA_CPU_NAME"] == "x86-64-v3"
    assert "+avx2" in os.environ["NUMBA_CPU_FEATURES"] and "avx512" not in os.environ["NUMBA_CPU_FEATURES"]
    assert measure.gcc_target() == "-march=x86-64-v3"


def test_a_worker_refuses_a_level_that_its_cpu_has_not(tmp_path: Path) -> None:
    """The worker exits before it connects to Redis."""
    program = (
        "from jobs.hosts import cpu_level\nfrom cpu_worker import __main__ as worker\n"
        "cpu_level.of_host = lambda: 'v2'\nraise SystemExit(worker.main())"
    )
    environment = {**os.environ, "CPU_LEVEL": "avx2", "REDIS_URL": f"unix://{tmp_path}/none", "METRICS_PORT": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "set it to v2, or leave it empty" in done.stderr, done.stderr

"""Tests the analysis of recordings with known results (loads, gaps, incomplete lines, clocks, GPUs) and plots."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from threads_cluster.errors import BadArgument
from threads_cluster.profiling import profile_analysis, profile_plots

GIB = 1 << 30
HEAD: dict[str, Any] = {
    "profile": 1,
    "id": "a" * 16,
    "host": "one",
    "worker": "w-1",
    "hz": 10,
    "cores": 4,
    "memory_total_bytes": 8 * GIB,
    "devices": ["host:one"],
    "gpus": [],
    "offset": 0.0,
    "wall": 1000.0,
    "t": 5.0,
}


def write(folder: Path, rows: list[Any], name: str = "w-1.1", **head: Any) -> Path:
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps(row) for row in [{**HEAD, **head}, *rows]) + "\n"
    file = folder / f"{name}.jsonl.gz"
    file.write_bytes(gzip.compress(text.encode()))
    return file


def steady(seconds: float, cores: float, *, start: float = 0.0, hz: int = 10, base: float = 100.0) -> list[Any]:
    """Return samples of a host with some busy cores, 2 MB/s of received data, and 50 W."""
    times = [start + number / hz for number in range(int(seconds * hz) + 1)]
    return [
        {
            "t": at,
            "cpu": base + cores * (at - start),
            "rx": int(2e6 * (at - start)),
            "m": 2 * GIB,
            "j": 50 * (at - start),
        }
        for at in times
    ]


def summed(folder: Path) -> Any:
    return profile_analysis.summary(profile_analysis.read(folder))


def test_a_steady_load_has_its_figures(tmp_path: Path) -> None:
    rows = [*steady(10, 1.0), {"end": "stopped", "samples": 101, "missed": 2, "cpu_seconds": 0.2}]
    write(tmp_path / "p", rows)
    (tmp_path / "p" / "profile.json").write_text('{"name": "night"}')
    found = summed(tmp_path / "p")
    [host] = found["devices"]
    assert found["name"] == "night" and found["seconds"] == pytest.approx(10) and found["begin"] == pytest.approx(1000)
    assert host["utilization"]["mean"] == pytest.approx(0.25) and host["idle_ratio"] == 0
    assert host["memory_bytes"] == pytest.approx({"mean": 2 * GIB, "p95": 2 * GIB, "max": 2 * GIB})
    assert host["power_watts"]["mean"] == pytest.approx(50) and found["energy_joules"] == pytest.approx(500)
    assert host["receive"] == pytest.approx({"bytes": 2e7, "mean": 2e6, "max": 2e6})
    assert (host["samples"], host["missed"], host["transmit"], host["read"]) == (101, 2, None, None)
    assert host["profiler_ratio"] == pytest.approx(0.2 / (10 * 4))


def test_half_of_the_time_idle_is_half_idle(tmp_path: Path) -> None:
    rows = [*steady(10, 4.0), *steady(10, 0.0, start=10.1, base=140.0)]
    [host] = summed(write(tmp_path / "p", rows).parent)["devices"]
    assert host["idle_ratio"] == pytest.approx(0.5, abs=0.03)
    assert host["utilization"]["mean"] == pytest.approx(0.5, abs=0.03) and host["utilization"]["max"] == pytest.approx(
        1
    )


def test_what_did_not_change_is_left_out_of_a_line(tmp_path: Path) -> None:
    rows = [{"t": 0, "cpu": 5.0, "m": GIB}, *({"t": number / 10} for number in range(1, 100)), {"t": 10.0, "cpu": 5.0}]
    [host] = summed(write(tmp_path / "p", rows).parent)["devices"]
    assert host["utilization"]["mean"] == 0 and host["idle_ratio"] == 1 and host["memory_bytes"]["mean"] == GIB


def test_a_gap_is_no_idle_time(tmp_path: Path) -> None:
    """The worker was down for ten seconds. The next process continued with energy counters that restart at zero."""
    folder = tmp_path / "p"
    write(folder, steady(10, 4.0))
    write(folder, steady(10, 4.0, base=220.0), "w-2.1", wall=1020.0)
    found = summed(folder)
    [host] = found["devices"]
    assert found["seconds"] == pytest.approx(30) and host["seconds"] == pytest.approx(20)
    assert host["idle_ratio"] == 0 and host["utilization"]["mean"] == pytest.approx(1)
    assert host["energy_joules"] == pytest.approx(1000, rel=0.06)


def test_samples_that_are_missing_within_a_recording_are_a_gap(tmp_path: Path) -> None:
    rows = [*steady(5, 4.0), *steady(5, 4.0, start=15.0, base=120.0)]
    recorded = profile_analysis.read(write(tmp_path / "p", rows).parent)
    axis = profile_analysis.Axis.of(recorded)
    [line] = profile_analysis.lines(recorded, axis, "utilization").values()
    assert [value for at, value in zip(axis.seconds, line, strict=True) if 6 < at <= 15] == [None] * 18


def test_clocks_of_hosts_are_moved_to_that_of_the_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    write(folder, steady(10, 1.0))
    write(folder, steady(10, 1.0), "w-2.1", host="two", devices=["host:two"], wall=4600.0, offset=-3600.0)
    found = summed(folder)
    assert found["seconds"] == pytest.approx(10) and len(found["devices"]) == 2


def test_a_line_that_a_kill_cut_off_and_lines_of_noise_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "w.jsonl"
    lines = [json.dumps(row) for row in [HEAD, *steady(2, 1.0)]]
    file.write_text("\n".join([*lines[:10], '{"t":0.9,"cpu":1', "[]", '{"x":1}', *lines[10:], lines[-1][:20]]))
    [host] = summed(file)["devices"]
    assert host["torn"] == 4 and host["samples"] == 21 and host["utilization"]["mean"] == pytest.approx(0.25)


def test_a_gpu_has_its_figures(tmp_path: Path) -> None:
    gpus = [{"uuid": "GPU-1", "name": "H100", "index": 0}]
    rows = [
        {"t": number / 10, "gpus": {"GPU-1": {"u": 1.0, "s": 0.5, "m": 3 * GIB, "w": 300.0, "rx": 1e9}}}
        for number in range(101)
    ]
    write(tmp_path / "p", rows, gpus=gpus, devices=["gpu:GPU-1"])
    [gpu] = summed(tmp_path / "p")["devices"]
    assert gpu["device"] == "gpu:GPU-1" and gpu["title"] == "one GPU 0, H100"
    assert gpu["utilization"]["mean"] == pytest.approx(0.5), "of its multiprocessors"
    assert gpu["energy_joules"] == pytest.approx(3000) and gpu["receive"]["mean"] == pytest.approx(1e9)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not a recording"),
        ('{"profile": 2}\n', "not a recording"),
        (json.dumps(HEAD) + "\n", "contains no samples"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(BadArgument, match=why):
        profile_analysis.read(file)


def test_bytes_that_are_cut_off_in_a_file_of_gzip_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "p", steady(2, 1.0))
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(BadArgument, match="cannot be read"):
        profile_analysis.read(file)


def test_a_plot_without_matplotlib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("threads_cluster.profiling.profile_plots.importlib.import_module", lacks)
    with pytest.raises(BadArgument, match=r"pip install 'matplotlib>=3.9'"):
        profile_plots.check(tmp_path / "x.pdf")


@pytest.mark.parametrize(
    ("name", "why"), [("x.gif", "must end with"), ("x", "must end with"), ("no/x.png", "folder .* does not exist")]
)
def test_a_plot_that_cannot_be_written_is_refused_first(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        profile_plots.check(tmp_path / name)


@pytest.mark.parametrize(("ending", "begins"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_plot_is_a_file_of_its_kind(tmp_path: Path, ending: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "p"
    for number in range(12 if ending == "png" else 2):  # many lines are drawn as a band
        write(folder, steady(3, 1.0), f"w-{number}.1", host=f"h{number}", devices=[f"host:h{number}"])
    file = tmp_path / f"x.{ending}"
    profile_plots.write(profile_analysis.read(folder), file)
    assert file.read_bytes().startswith(begins) and file.stat().st_size > 5000

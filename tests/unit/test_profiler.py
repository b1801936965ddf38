"""Tests a worker's part of profiles: the sampled values, the files, and the handling of failures."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.store.profiles import Order, Recording, Reported
from jobs.store.server.connection import CoordinatorAway
from jobs.store.work.lease_store import Heard
from jobs.worker.telemetry import recordings, sampler
from jobs.worker.telemetry.profiler import Profiler
from jobs.worker.telemetry.recordings import Parcel, Unusable
from jobs.worker.telemetry.sampler import Asked, Lines, Sampler
from tests.integration.live import until

ID = "0123456789abcdef"
RECORDING = Order(profile_id=ID, state="recording", hz=50, until=10**15)
COLLECTING = Order(profile_id=ID, state="collecting", hz=50, until=10**15)


# -- the process that samples -----------------------------------------------------------------------------------------


class Clock:
    """A clock that advances while the profiler waits, by `late` more seconds at some samples."""

    def __init__(self, late: dict[int, float] | None = None) -> None:
        self.now, self.late, self.waits = 100.0, late or {}, 0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> str:
        self.now += seconds + self.late.get(self.waits, 0.0)
        self.waits += 1
        return ""


def asked(**more: Any) -> Asked:
    fields: dict[str, Any] = {
        "file": "",
        "hz": 10,
        "seconds": 0.85,
        "most": 1 << 20,
        "host": True,
        "gpus": (),
        "head": {"profile": 1},
    }
    return Asked(**(fields | more))


def sampled(file: Path, clock: Clock, source: Any = None, **more: Any) -> tuple[str, Sampler, list[Any]]:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    made = asked(**more)
    one = Sampler(made, source, lines=Lines(descriptor, made.most), clock=clock, wait=clock.wait)
    reason = one.run()
    os.close(descriptor)
    return reason, one, [json.loads(line) for line in file.read_text().splitlines()]


def test_samples_come_at_their_moments_and_those_that_passed_are_counted(tmp_path: Path) -> None:
    reason, one, lines = sampled(tmp_path / "x", Clock(late={3: 0.35}))
    assert reason == "time" and (one.samples, one.missed) == (7, 3)
    assert [line["t"] for line in lines[1:-1]] == pytest.approx([0, 0.1, 0.2, 0.3, 0.75, 0.8, 0.9])
    assert lines[0]["profile"] == 1 and "wall" in lines[0]
    assert lines[-1]["end"] == "time" and lines[-1]["samples"] == 7


def test_above_ten_hertz_slow_figures_come_ten_times_a_second(tmp_path: Path) -> None:
    samples: list[str] = []

    def sample(uuid: str) -> Any:
        samples.append(uuid)
        return _gpu(len(samples))

    _, _, lines = sampled(tmp_path / "x", Clock(), SimpleNamespace(sample=sample), hz=100, gpus=("G",), seconds=0.985)
    assert len(lines) == 102 and len(samples) == 10
    assert lines[1]["gpus"] == {"G": {"u": 1.0, "w": 100.0}} and lines[11]["gpus"] == {"G": {"u": 0.5}}


def _gpu(number: int) -> Any:
    known = dict.fromkeys(sampler.GPU_FIELDS.values())
    return SimpleNamespace(**{**known, "utilization_ratio": 1.0 / number, "power_watts": 100.0})


def test_a_recording_ends_where_its_room_does(tmp_path: Path) -> None:
    reason, _, lines = sampled(tmp_path / "x", Clock(), seconds=1000.0, most=8192)
    assert reason == "full" and (tmp_path / "x").stat().st_size <= 8192 and lines[-1]["end"] == "full"


def test_a_disk_that_is_full_costs_samples_and_spoils_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second write fails, the third is cut off, and the others succeed."""
    calls: list[int] = []
    write = os.write

    def scarce(descriptor: int, data: bytes) -> int:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:5] if len(calls) == 4 else data)

    monkeypatch.setattr(os, "write", scarce)
    descriptor = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    lines = Lines(descriptor, 1 << 20)
    assert [lines.write({"t": number}) for number in range(6)] == [True, True, False, False, True, True]
    os.close(descriptor)
    whole = [line for line in (tmp_path / "x").read_text().split("\n") if line.endswith("}")]
    assert [json.loads(line)["t"] for line in whole] == [0, 1, 4, 5]


def test_the_cpu_time_of_a_recording_leaves_out_the_start_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.process_time", lambda: 7.0)
    _, one, lines = sampled(tmp_path / "x", Clock())
    assert one.progress()["cpu_seconds"] == lines[-1]["cpu_seconds"] == 0


def test_after_samples_that_were_not_written_the_next_has_all_figures(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    one = Sampler(asked(), lines=Lines(descriptor, 1 << 20), clock=(clock := Clock()), wait=clock.wait)
    assert one.run() == "time" and (one.samples, one.missed) == (0, 10)
    os.close(descriptor)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "profiles"
    recordings.prepare(made)
    return made


def leave(folder: Path, name: str = "w-1.5", *, cut: bool = False) -> bytes:
    head = {"profile": 1, "host": "one", "devices": ["host:one"]}
    lines = [head, *({"t": number / 10, "cpu": number} for number in range(50))]
    text = "\n".join(json.dumps(line) for line in lines) + ('\n{"t": 4' if cut else "\n")
    recordings.path(folder, ID, name).write_text(text)
    return text.encode()


def packed(parcel: Parcel) -> Recording:
    parcel.pack()
    until(lambda: parcel.recording.size)
    return parcel.recording


def test_a_recording_that_was_left_is_packed_as_it_is(folder: Path) -> None:
    text = leave(folder, cut=True)
    assert recordings.left(folder) == [(ID, "w-1.5")] and recordings.left(folder, "f" * 16) == []
    parcel = Parcel.take(folder, ID, "w-1.5")
    assert parcel
    row = packed(parcel)
    data = parcel.part(0)
    assert gzip.decompress(data) == text and (row.size, row.sha) == (len(data), hashlib.sha256(data).hexdigest())
    assert (row.host, row.samples, row.seconds, row.reason) == ("one", 50, 4.9, "killed")
    parcel.remove()
    assert not list(folder.iterdir())


def test_a_file_that_somebody_writes_or_sends_is_left_alone(folder: Path) -> None:
    leave(folder)
    with recordings.path(folder, ID, "w-1.5").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert Parcel.take(folder, ID, "w-1.5") is None
    parcel = Parcel.take(folder, ID, "w-1.5")
    assert parcel and Parcel.take(folder, ID, "w-1.5") is None
    parcel.release()
    again = Parcel.take(folder, ID, "w-1.5")
    assert again
    again.release()


def test_names_that_lead_elsewhere_are_no_recordings(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (folder / f"{ID}.link.jsonl").symlink_to(tmp_path / "secret")
    (folder / "notes.jsonl").write_text("x")
    assert Parcel.take(folder, ID, "link") is None
    assert recordings.left(folder) == [(ID, "link")]


def test_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o777)
    open_to_all.chmod(0o777)
    with pytest.raises(Unusable, match="PROFILE_DIR"):
        recordings.prepare(open_to_all)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(Unusable, match="PROFILE_DIR"):
        recordings.prepare(tmp_path / "link")


# -- the worker's thread ----------------------------------------------------------------------------------------------


class Calls:
    """A fake cluster for a worker, which grants requests and accepts parts."""

    def __init__(self) -> None:
        self.granted: tuple[str, ...] = ("host:one",)
        self.state = "recording"
        self.rows: dict[str, Recording] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.away = False
        self.profiles = self

    def report(self, profile_id: str, worker: str, devices: Any, found: Any) -> Reported:
        if self.away:
            raise CoordinatorAway("away", 0.0)
        self.rows.update({one.name: one for one in found})
        wanted = {one.name: self._wanted(one) for one in found}
        granted = tuple(one for one in devices if one in self.granted)
        return Reported(state=self.state, now=int(time.time() * 1000), devices=granted, wanted=wanted)

    def _wanted(self, one: Recording) -> str:
        if not one.size or self.state != "collecting":
            return "wait"
        return "kept" if one.name in self.parts else "0"

    def add_part(self, profile_id: str, worker: str, recording: str, number: int, data: bytes) -> str:
        self.parts.setdefault(recording, {})[number] = data
        return "stored"

    def lines(self) -> dict[str, list[Any]]:
        return {
            name: [json.loads(line) for line in gzip.decompress(parts[0]).splitlines()]
            for name, parts in self.parts.items()
        }


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def profiler(calls: Calls, folder: Path) -> Iterator[Profiler]:
    made: Any = Profiler(calls, "w-1", "one", folder)  # type: ignore[arg-type]
    yield made
    for running in made.running_profiles.values():
        running.end()


def rounds(profiler: Profiler, order: Order, what: Callable[[], Any]) -> None:
    """Run rounds until a condition is true."""
    until(lambda: (profiler.round({order.profile_id: order}), what())[1])


def test_what_was_sampled_is_brought_once_the_profile_is_collected(
    profiler: Profiler, calls: Calls, folder: Path
) -> None:
    rounds(profiler, RECORDING, lambda: any(row.samples >= 20 for row in calls.rows.values()))
    calls.state = "collecting"
    rounds(profiler, COLLECTING, lambda: not list(folder.iterdir()))
    [(head, *rows)] = calls.lines().values()
    assert head["host"] == "one" and head["hz"] == 50 and abs(head["offset"]) < 5
    assert rows[-1]["end"] == "stopped" and rows[-1]["samples"] == len(rows) - 1 >= 20


def test_a_sampler_that_was_killed_is_followed_by_another_and_both_are_brought(
    profiler: Any, calls: Calls, folder: Path
) -> None:
    rounds(profiler, RECORDING, lambda: any(row.samples >= 5 for row in calls.rows.values()))
    profiler.running_profiles[ID].process.kill()
    profiler.running_profiles[ID].process.wait()
    rounds(profiler, RECORDING, lambda: sum(row.samples >= 5 for row in calls.rows.values()) == 2)
    calls.state = "collecting"
    rounds(profiler, COLLECTING, lambda: not list(folder.iterdir()))
    assert sorted("end" in rows[-1] for rows in calls.lines().values()) == [False, True]


def test_a_device_that_another_worker_has_is_not_sampled(profiler: Any, calls: Calls, folder: Path) -> None:
    calls.granted = ()
    profiler.round({ID: RECORDING})
    assert not profiler.running_profiles and not list(folder.iterdir())
    elsewhere = Order(profile_id=ID, state="recording", hz=10, until=10**15, hosts=("two",))
    calls.granted = ("host:one",)
    profiler.round({ID: elsewhere})
    assert not profiler.running_profiles


def test_what_an_earlier_process_left_is_brought_and_what_nobody_wants_is_deleted(
    profiler: Profiler, calls: Calls, folder: Path
) -> None:
    text = leave(folder, cut=True)
    calls.state = "collecting"  # it was done, and is opened by the report
    until(lambda: (profiler.round({}), not list(folder.iterdir()))[1])
    assert gzip.decompress(calls.parts["w-1.5"][0]) == text


def test_what_is_of_a_deleted_profile_goes(profiler: Profiler, calls: Calls, folder: Path) -> None:
    leave(folder)
    calls.state = "gone"
    until(lambda: (profiler.round({}), not list(folder.iterdir()))[1])
    assert not calls.parts


def test_a_cluster_that_is_away_costs_no_sample_and_no_file(profiler: Any, calls: Calls, folder: Path) -> None:
    rounds(profiler, RECORDING, lambda: any(row.samples >= 5 for row in calls.rows.values()))
    calls.away = True
    with pytest.raises(CoordinatorAway):
        profiler.round({ID: RECORDING})
    [file] = folder.iterdir()
    size = file.stat().st_size
    until(lambda: file.stat().st_size > size)
    calls.away, calls.state = False, "collecting"
    rounds(profiler, COLLECTING, lambda: not list(folder.iterdir()))
    assert len(calls.lines()) == 1


def test_a_thread_that_hears_of_nothing_does_nothing(calls: Calls, folder: Path) -> None:
    """A coordinator that cannot report profiles does not claim that there are none."""
    made: Any = Profiler(calls, "w-1", "one", folder)  # type: ignore[arg-type]
    made.hear(Heard(leases=(), word="ok", profiles=(RECORDING,)))
    made.hear(Heard(leases=(), word="ok"))
    assert made.current_orders == {ID: RECORDING}
    made.start()
    until(lambda: any(row.samples for row in calls.rows.values()))
    made.end()
    assert not made.is_alive() and len(list(folder.iterdir())) == 1

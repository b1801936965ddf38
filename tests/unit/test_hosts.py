"""Tests host records: how they are built from workers, what a worker reports about its machine, and the output."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from coordinator.fleet import hosts
from coordinator.fleet import serializers as fleet_serializers
from coordinator.hosts import queries, serializers
from jobs import VERSION, errors
from jobs.worker.telemetry import host as worker_host
from jobs.worker.telemetry.host import Clock, Disks, Host, Speed
from threads_cluster.cli import show
from threads_cluster.client import answers
from threads_protocol.answers.hosts import HostDetail

GIB = 2**30


def worker(name: str, **facts: Any) -> Any:
    """Return the record of a live worker, built from its hash like in the API."""
    stored = {
        "device": "cpu",
        "state": "busy",
        "lanes": 2,
        "busy_lanes": 1,
        "job": "j1",
        "host": "attic",
        "network": "7",
        "cpu_ratio": 0.5,
        "cpus": 4,
        "memory_used_bytes": GIB,
        "memory_total_bytes": 4 * GIB,
        "rates": "{}",
        "network_receive_bytes_per_second": 100,
        "network_transmit_bytes_per_second": 50,
        "load1": 2.0,
        "disks": json.dumps([{"disk": "8:1", "places": ["data"], "free_bytes": GIB, "total_bytes": 9 * GIB}]),
        "versions": json.dumps({"threads_cluster": VERSION, "python": "3.11.2"}),
        "seen": 1_000_000_000,
        "clock": 1_000_000.0,
        "round_trip_seconds": 0.2,
    }
    texts = {key: str(value) for key, value in (stored | facts).items() if value is not None}
    return fleet_serializers.serialize_worker(fleet_serializers.parse_report(name, texts), True, 1_000_001.0)


def gpu(uuid: str = "GPU-1", used: float | None = 0.5, **facts: Any) -> str:
    known = {} if used is None else {"utilization_ratio": used}
    return json.dumps([{"uuid": uuid, "index": 0, "name": "A GPU", **known, **facts}])


def test_a_host_is_what_its_workers_say_of_it() -> None:
    other = json.dumps(
        [
            {"disk": "8:1", "places": ["runner"], "free_bytes": 2, "total_bytes": 9},
            {"disk": "0:44", "places": ["temporary"], "free_bytes": 1, "total_bytes": 2},
        ]
    )
    there = [worker("a", network="7"), worker("b", network="7"), worker("c", network="8", disks=other)]
    row = queries.host([*there, worker("x", host="elsewhere")], "attic")
    assert (row["load1"], row["cpus"], row["score"]) == (2.0, 4, 50.0)
    assert row["network_receive_bytes_per_second"] == 200, "once a network"
    assert [(disk["disk"], disk["places"]) for disk in row["disks"]] == [
        ("0:44", ["temporary"]),
        ("8:1", ["data", "runner"]),
    ]
    assert row["versions"] == {"python": ["3.11.2"], "threads_cluster": [VERSION]}
    assert row["clock_offset_seconds"] == 0.1, "half of the round trip was the way here"
    assert [one["id"] for one in row["worker_rows"]] == row["workers"] == ["a", "b", "c"]


def test_a_worker_of_a_version_before_tells_less() -> None:
    silent = dict.fromkeys(
        (
            "load1",
            "disks",
            "versions",
            "clock",
            "round_trip_seconds",
            "network_receive_bytes_per_second",
            "network_transmit_bytes_per_second",
        )
    )
    row = serializers.serialize_host("attic", [worker("old", **silent)])
    unknown = ("load1", "score", "clock_offset_seconds", "network_receive_bytes_per_second")
    assert [row[name] for name in unknown] == [None] * 4 and not row["disks"] and not row["versions"]  # type: ignore[literal-required]
    beside = serializers.serialize_host(
        "attic", [worker("old", **silent), worker("new", versions='{"python": "3.12.1"}')]
    )
    assert beside["load1"] == 2.0 and beside["versions"] == {"python": ["3.12.1"]}


def test_of_a_host_that_is_gone_nothing_is_said_to_be_now() -> None:
    gone = worker("a") | {"live": False, "state": "lost"}
    row = serializers.serialize_host("attic", [gone])
    assert not row["live"] and row["score"] is None and row["load1"] is None and row["disks"] == []


def test_a_host_that_nobody_knows_is_not_found() -> None:
    with pytest.raises(errors.NotFound, match="host cellar does not exist; the only host is attic"):
        queries.host([worker("a")], "cellar")


@pytest.mark.parametrize(
    ("took", "offset"), [(0.2, 0.1), (0.0, 0.0), (1.0, 0.5), (1.001, None), (-1.0, None), (3600.0, None)]
)
def test_a_clock_is_compared_only_where_the_answer_came_soon(took: float, offset: float | None) -> None:
    assert worker("a", round_trip_seconds=took).get("clock_offset_seconds") == offset


def test_one_worker_whose_beat_was_late_makes_no_clock_wrong() -> None:
    several = [worker("a"), worker("b"), worker("c", clock=1_000_009.0)]
    assert hosts.clock_offset(several) == 0.1
    assert hosts.clock_offset([worker("c", clock=1_000_009.0)]) == 9.1


def test_the_score_counts_the_load_a_core_and_the_gpus() -> None:
    one, two = worker("g1", gpus=gpu(used=0.25)), worker("g2", gpus=gpu("GPU-2", 0.75))
    assert hosts.score([one, two]) == 50 + 3 * 50
    assert hosts.score([worker("g", gpus=gpu(used=None))]) == 50, "what a GPU does not tell counts nothing"
    assert hosts.score([worker("a", cpus=None)]) is None


@pytest.mark.parametrize(
    ("facts", "idle"),
    [
        ({"job": "", "busy_lanes": 0, "gpus": gpu(used=0)}, True),
        ({"job": "", "busy_lanes": 0, "gpus": gpu()}, False),
        ({"gpus": gpu(used=0)}, False),
        ({"job": "", "busy_lanes": 0, "gpus": gpu(used=None)}, False),
    ],
)
def test_a_gpu_that_is_claimed_and_idle_is_listed(facts: dict[str, Any], idle: bool) -> None:
    [device] = serializers.serialize_host("attic", [worker("g", **facts)])["devices"]
    assert device["idle"] is idle and device["worker"] == "g"


# -- what a worker tells ----------------------------------------------------------------------------------------------


def test_a_worker_tells_versions_load_and_disks(tmp_path: Path) -> None:
    host = Host("h", {"data": tmp_path, "runner": tmp_path / "not-made-yet"})
    host.figures()
    host.disks.settle()
    told = host.figures()
    [disk] = json.loads(str(told["disks"]))
    assert disk["places"] == ["data"] and 0 < disk["free_bytes"] <= disk["total_bytes"]
    versions = json.loads(str(told["versions"]))
    assert versions["threads_cluster"] == VERSION and {"python", "numba"} <= set(versions)
    assert float(told["load1"]) >= 0


def test_a_disk_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers_now, seconds = threading.Event(), iter((0.0, 0.0, 99.0, 99.0, 199.0, 199.0)).__next__
    real = shutil.disk_usage

    def hung(folder: Path) -> Any:
        answers_now.wait(60)
        return real(folder)

    disks = Disks({"data": tmp_path}, clock=seconds)
    monkeypatch.setattr("jobs.worker.telemetry.host.shutil.disk_usage", hung)
    before = threading.active_count()
    assert disks.read() == [] and disks.read() == []
    assert threading.active_count() <= before + 1, "one look at a time"
    answers_now.set()
    disks.settle()
    assert [disk["places"] for disk in disks.read()] == [["data"]]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\nGCC version: 12.2.0", "570.86.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build", "565.57.01"),
        ("something else", None),
    ],
)
def test_the_driver_says_its_version(tmp_path: Path, text: str, version: str | None) -> None:
    (tmp_path / "version").write_text(text)
    assert worker_host.versions(tmp_path / "version").get("driver") == version
    assert "driver" not in worker_host.versions(tmp_path / "missing")


def test_speeds_are_of_the_time_between() -> None:
    speed = Speed(iter((0.0, 2.0, 3.0, 3.0)).__next__)
    assert speed.of(100, 0) == {}
    assert list(speed.of(300, 50).values()) == [100, 25]
    assert speed.of(0, 60) == {}, "the counter began anew"
    assert speed.of(10, 60) == {}, "no time has passed"


def test_a_clock_is_told_once_a_beat_was_answered() -> None:
    moments = iter((0.0, 1.0, 5.0, 7.0, 9.0)).__next__
    clock = Clock(lambda: 123.0, moments)
    assert clock.heartbeat_fields() == {}
    assert clock.heartbeat_fields() == {}, "the first was never answered"
    clock.answered()
    assert clock.heartbeat_fields() == {"clock": 123.0, "round_trip_seconds": 4.0}


# -- what people see --------------------------------------------------------------------------------------------------


def test_people_see_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    row = queries.host([worker("g", clock=1_000_002.0, gpus=gpu(used=0), job="", busy_lanes=0)], "attic")
    checked = answers.checked(HostDetail, dict(row), "http://cluster.test")
    show.table([checked], show.HOSTS)
    assert "live, clock +2.1 s" in capsys.readouterr().out
    show.host(checked)
    text = capsys.readouterr().out
    for words in (
        "2.00 on 4 cpus",
        "data: 1 GiB free of",
        "2.100 s ahead of Redis' clock; enable NTP on this host",
        "idle",
    ):
        assert words in text, text


def test_people_see_sick_gpus_given_labels_and_cards(capsys: pytest.CaptureFixture[str]) -> None:
    sick = worker("g", gpus=gpu(used=0.0), job="", busy_lanes=0, cordoned="GPU-1: Xid 79", labels="eu,trusted")
    card = {"card": "card0", "name": "AMD Instinct MI210", "temperature_celsius": 52.0}
    row = queries.host([sick, worker("c", labels="trusted", cards=json.dumps([card]))], "attic")
    assert not row["devices"][0]["idle"] and row["given_labels"] == ["trusted"] and row["cards"] == [card]
    checked = answers.checked(HostDetail, dict(row), "http://cluster.test")
    show.table([checked], show.HOSTS)
    text = capsys.readouterr().out
    assert "live, 1 GPU cordoned" in text and "trusted" in text
    show.host(checked)
    text = capsys.readouterr().out
    for words in (
        "g accepts no work: GPU-1: Xid 79",
        "cordoned",
        "given labels  trusted",
        "AMD Instinct MI210",
        "52 C",
    ):
        assert words in text, text


def test_a_gpu_is_listed_once_with_the_worker_that_uses_it() -> None:
    two = json.dumps([{"uuid": "GPU-1", "job": "j7"}, {"uuid": "GPU-2"}])
    runner = worker("a", device="runner", gpus=two, offer=None)
    claiming = worker("g", device="gpu", gpus=gpu("GPU-2"))
    gone = claiming | {"live": False}
    jobs = {
        "both live": fleet_serializers.serialize_gpus(fleet_serializers.remove_repeated_gpus([runner, claiming])),
        "runner only": fleet_serializers.serialize_gpus(fleet_serializers.remove_repeated_gpus([gone, runner])),
    }
    assert {name: [(one["uuid"], one["worker"], one["job"]) for one in found] for name, found in jobs.items()} == {
        "both live": [("GPU-1", "a", "j7"), ("GPU-2", "g", "j1")],
        "runner only": [("GPU-1", "a", "j7"), ("GPU-2", "a", None)],
    }


def test_programs_without_gpus_leave_the_gpus_of_their_runner_idle() -> None:
    runner = worker("r", device="runner", job="j1", busy_lanes=1, gpus=gpu(used=0))
    [device] = serializers.serialize_host("attic", [runner])["devices"]
    assert (device["job"], device["idle"]) == (None, True)
    [device] = serializers.serialize_host("attic", [worker("r", device="runner", gpus=gpu(used=0, job="j7"))])[
        "devices"
    ]
    assert (device["job"], device["idle"]) == ("j7", False)

"""Tests programs that fill a disk: their units fail, the space is freed at once, and the runner continues."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.files.cache import FileCache
from runner.files.directories import Places
from runner.files.environments import Environments
from runner.files.working_directory import Workplace
from runner.programs import cleanup
from tests.small_disk import mounted, used_mib
from tests.unit.test_runner_leases import Bench, Files, during

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guards need Linux")

DISK_MIB, LEAST_FREE_MIB = 16, 4
#: Program that writes until the disk is full.
FILL = "head -c 1G /dev/zero > big 2> /dev/null"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", DISK_MIB) as at:
        yield at


@pytest.fixture
def bench(disk: Path) -> Iterator[Bench]:
    made = Bench(disk, LEAST_FREE_MIB << 20)
    yield made
    made.lane.close()


def test_a_program_that_fills_the_disk_fails_with_its_log_and_the_next_one_runs(bench: Bench, disk: Path) -> None:
    call = bench.fail(f"{FILL}; echo x; exit 3")
    assert call[2].startswith("disk full: ") and "reduce its output" in call[2]
    assert (call[5]["reason"], call[5]["exit"], call[5]["tail"]) == ("disk", 3, "x\n")
    assert bench.files.kept == [([0], {"logs/0": b"x\n"})]
    assert not bench.home.exists() and used_mib(disk) == 0
    assert bench.lane.ready and bench.run("echo y", job="k")[0] == 1


@pytest.mark.parametrize(
    "then",
    [
        "echo 1 > $CLUSTER_RESULT",
        "mkdir out; echo 1 > out/a; mv big out",
        "sleep 60",
    ],
)
def test_nothing_that_a_program_does_on_a_full_disk_keeps_it_full(bench: Bench, disk: Path, then: str) -> None:
    bench.fail(f"{FILL}; echo x; {then}", outputs=["out/**"], timeout_seconds=2)
    assert used_mib(disk) == 0 and bench.run("echo y", job="k")[0] == 1


def test_a_program_that_fills_the_disk_with_its_workspace_fails_and_its_log_shows_the_end(
    bench: Bench, disk: Path
) -> None:
    """If the attempt did not count, the unit would fill the disk of the next runner too."""
    fill = "head -c 1G /dev/zero > $CLUSTER_WORKSPACE/big 2> /dev/null"
    call = bench.fail(f"{fill}; echo x", workspace="fits")
    assert call[2].startswith("disk full: ") and "its workspace fits was not deleted" in call[2]
    assert (call[5]["reason"], call[5]["tail"]) == ("disk", "x\n")
    assert used_mib(disk) == DISK_MIB and not bench.lane.ready
    (bench.host.places.workspace("default", "fits", None) / "big").unlink()
    assert bench.lane.ready and bench.run("echo y", job="k")[0] == 1


def test_units_that_ended_before_the_one_that_filled_the_disk_count(bench: Bench) -> None:
    assert bench.fail(f"test $CLUSTER_UNIT -lt 2 || {FILL}; echo x", 0, 4)[1] == 2
    assert bench.leases.calls[0][:3] == ("commit", 0, 2)
    assert [units for units, _ in bench.files.kept] == [[0, 1, 2]]


def test_a_cancelled_program_frees_the_disk_and_its_log_is_kept(bench: Bench, disk: Path) -> None:
    task = bench.task(f"{FILL}; echo x; : > ready; sleep 60", 0, 1)
    during(bench, task, lambda: task.ask_to_stop(2))
    assert used_mib(disk) == 0 and bench.lane.ready
    assert bench.files.kept == [([0], {"logs/0": b"x\n"})]


def test_a_program_that_is_stopped_because_its_runner_ends_frees_the_disk(bench: Bench, disk: Path) -> None:
    during(bench, bench.task(f"{FILL}; : > ready; sleep 60"), lambda: setattr(bench, "stopping", True))
    assert used_mib(disk) == 0


def test_a_unit_on_a_disk_that_others_fill_is_not_tried_and_leaves_nothing(bench: Bench, disk: Path) -> None:
    (disk / "others").write_bytes(bytes(DISK_MIB - 2 << 20))
    assert bench.run(f"{FILL}; echo x")[0] == 0
    assert not bench.leases.calls and used_mib(disk) == DISK_MIB - 2
    assert "the disk is full: 2 MiB are free" in bench.host.cordon.why()


def test_a_jobs_files_that_do_not_fit_on_the_disk_leave_nothing(bench: Bench, disk: Path) -> None:
    bench.files = Files({"a": bytes(9 << 20)})
    assert bench.run(["true"], files="a" * 64)[0] == 0, "the cache and the folder each need the space"
    assert used_mib(disk) == 9
    bench.lane.repair()
    assert bench.lane.ready and bench.run(["true"], job="k")[0] == 1


def test_a_runner_that_starts_on_a_full_disk_frees_it(disk: Path) -> None:
    """An earlier runner left files of its programs, and unused files and environments."""
    places = Places(disk)
    places.make()
    for folder in (places.work / "0" / "home", places.work / "7" / "home", places.environments / "e"):
        folder.mkdir(parents=True)
        (folder / "big").write_bytes(bytes(2 << 20))
    (places.environments / "e.ready").write_text(str(2 << 20))
    for name in "ab":
        (places.cache / (name * 64)).write_bytes(bytes(4 << 20))
    cleanup.remove(places)
    assert used_mib(disk) == 10
    bench = Bench(disk, 13 << 20)
    bench.host.inputs.cache = FileCache(places.cache, 1 << 30)
    assert not bench.lane.ready
    bench.lane.repair()
    assert bench.lane.ready and used_mib(disk) <= 3
    bench.lane.close()


def test_an_environment_that_is_in_use_stays_when_the_disk_is_freed(tmp_path: Path) -> None:
    for name in ("free", "used"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.ready").write_text("1")
    environments = Environments(tmp_path, 1 << 30)
    assert environments.take_place(tmp_path / "used")
    environments.evict_until(lambda: False)
    assert [path.name for path in tmp_path.iterdir() if not path.suffix] == ["used"]


def test_a_slot_removes_what_an_earlier_runner_left_however_deep_it_is(tmp_path: Path) -> None:
    places = Places(tmp_path / "runner")
    places.make()
    bench = Bench(tmp_path / "other")
    place = Workplace(places, bench.slot, bench.host.inputs)
    place.folder.path.mkdir()
    deep = "i=0; while [ $i -lt 300 ]; do mkdir d && cd d && i=$((i+1)); done"
    subprocess.run(["sh", "-c", deep], check=True, cwd=place.folder.path)
    cleanup.remove(places)
    assert place.folder.path.exists(), "it is too deep"
    place.discard()
    assert not place.folder.path.exists()
    bench.lane.close()

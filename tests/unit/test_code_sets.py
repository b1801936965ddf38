"""Code that several processes compiled gives correct results together. Processes see a whole set or none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import pytest

from tests.unit import toy_starts

ROOT = Path(__file__).resolve().parents[2]
#: Number of files and folders that a start completes for one kind: index and code of two functions, a table, the set.
COMPLETED = 6


Run: TypeAlias = Callable[..., list[list[Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run steps in order, with the starts of each step in parallel, and return their output.

    All starts are forks of one process, because loading numba takes longer than a start.
    """
    folder = tmp_path_factory.mktemp("toys")
    toy_starts.write(folder)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    command = [sys.executable, "-m", "tests.unit.toy_starts"]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        yield partial(_run, process.stdin, process.stdout)
        process.stdin.close()


def _run(requests: IO[str], answers: IO[str], *steps: list[dict[str, Any]]) -> list[list[Any]]:
    print(json.dumps(steps), file=requests, flush=True)
    said: list[list[Any]] | None = json.loads(answers.readline())
    assert said is not None, "a start failed: its output says why"
    return said


def start(cache: Path, *kinds: str, **asked: Any) -> dict[str, Any]:
    return {"kinds": kinds or ["even"], "cache": str(cache), **asked}


def sets(cache: Path) -> list[str]:
    """Return the folders of sets, published or not, without the random part of their names."""
    return sorted(path.name.rpartition("-")[0] for path in cache.glob("*/*") if path.is_dir())


def test_a_killed_process_leaves_nothing_that_others_use(run: Run, tmp_path: Path) -> None:
    caches = [tmp_path / f"cache-{at}" for at in range(1, COMPLETED + 2)]
    steps = [
        [start(cache, kill_at=at) for at, cache in enumerate(caches, start=1)],
        [start(cache) for cache in caches],
        [start(cache) for cache in caches],
    ]
    killed, first, second = run(*steps)
    for answer in first + second:
        assert answer["answers"] == toy_starts.expected("even") and answer["wrong"] == {}
    assert [answer is None for answer in killed] == [True] * COMPLETED + [False]
    assert [answer["hits"] for answer in first] == [0] * COMPLETED + [2]
    assert [answer["hits"] for answer in second] == [2] * len(caches)
    assert [sets(cache) for cache in caches] == [["cpu"]] * len(caches)


@pytest.mark.parametrize("order", [("even", "odd"), ("odd", "even")])
def test_code_of_kinds_from_two_processes_works_together_in_any_order(
    run: Run, tmp_path: Path, order: tuple[str, str]
) -> None:
    cache = tmp_path / "cache"
    *_, [both] = run([start(cache, "even")], [start(cache, "odd")], [start(cache, *order)])
    assert both["answers"] == toy_starts.expected("even", "odd") and both["wrong"] == {}
    assert both["hits"] == 4


def test_code_that_is_compiled_after_publication_is_right_and_not_kept(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run([start(cache)])
    published = contents(cache)
    orders = [["int64", "int32"], ["int32", "int64"], ["int64"]]
    for [answer] in run(*[[start(cache, types=types, warms=False)] for types in orders]):
        assert answer["answers"] == toy_starts.expected("even") and answer["hits"] == 2
    assert contents(cache) == published


def contents(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lost", ["*.nbc", "*.nbi", "*.npz", "*"])
def test_a_set_that_has_lost_files_is_compiled_again_and_published(run: Run, tmp_path: Path, lost: str) -> None:
    cache = tmp_path / "cache"
    run([start(cache)])
    [published] = cache.glob("*/cpu-*")
    next(published.glob(lost)).unlink() if lost != "*" else shutil.rmtree(published)
    published.mkdir(exist_ok=True)
    [first], [second] = run([start(cache)], [start(cache)])
    for answer in first, second:
        assert answer["answers"] == toy_starts.expected("even") and answer["wrong"] == {}
    assert (first["hits"], second["hits"]) == (0, 2)
    assert sets(cache) == ["cpu"] and published not in cache.glob("*/cpu-*")


def test_files_of_another_process_are_never_used(run: Run, tmp_path: Path) -> None:
    """Foreign files result from copying one cache over another, or from earlier versions."""
    cache, other, former = (tmp_path / name for name in ("cache", "other", "former"))
    run([start(each) for each in (cache, other, former)])
    [one], [two], [three] = (list(each.glob("*/cpu-*")) for each in (cache, other, former))
    for file in two.iterdir():
        shutil.copy(file, one)
    for file in three.iterdir():
        file.rename(three.parent / file.name)
    three.rmdir()
    (three.parent / "compiled").touch()
    answers = run([start(cache), start(former)])[0]
    for answer in answers:
        assert answer["answers"] == toy_starts.expected("even") and answer["wrong"] == {}
        assert answer["hits"] == 0


def test_processes_that_start_together_publish_one_set_of_each_kind(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    together, [later] = run([start(cache, "even", "odd")] * 4, [start(cache, "even", "odd")])
    for answer in [*together, later]:
        assert answer["answers"] == toy_starts.expected("even", "odd") and answer["wrong"] == {}
    assert sum(answer["hits"] for answer in together) == 4 * 3 and later["hits"] == 4
    assert sets(cache) == ["cpu", "cpu"]


def test_code_that_cannot_be_kept_is_used_all_the_same(run: Run, tmp_path: Path) -> None:
    failures = [*({"full_at": at} for at in range(1, COMPLETED + 1)), {"most_bytes": 1000}]
    caches = [tmp_path / f"cache-{number}" for number in range(len(failures))]
    full, later = run(
        [start(cache, **failure) for cache, failure in zip(caches, failures, strict=True)],
        [start(cache) for cache in caches],
    )
    for answer in full + later:
        assert answer["answers"] == toy_starts.expected("even") and answer["wrong"] == {} and answer["hits"] == 0
    assert all("[Errno" in answer["unkept"]["even"] for answer in full)
    assert all(answer["unkept"] == {} for answer in later)
    assert [sets(cache) for cache in caches] == [["cpu"]] * len(caches)


def test_code_is_compiled_if_the_cache_cannot_be_looked_into(run: Run, tmp_path: Path) -> None:
    """The cache is below a folder of another user, which root could read."""
    [[answer]] = run([start(tmp_path / ("x" * 300))])
    assert answer["answers"] == toy_starts.expected("even") and answer["wrong"] == {}
    assert "[Errno" in answer["unkept"]["even"]


def test_a_cache_that_cannot_be_written_is_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "cache"
    [none], _, [read] = run(
        [start(tmp_path / "file" / "cache")], [start(cache)], [start(cache, "even", "odd", is_read_only=True)]
    )
    assert none["answers"] == toy_starts.expected("even") and none["wrong"] == {}
    assert "Not a directory" in none["unkept"]["even"]
    assert read["answers"] == toy_starts.expected("even", "odd") and read["wrong"] == {}
    assert read["hits"] == 2 and list(read["unkept"]) == ["odd"]
    assert "Read-only" in read["unkept"]["odd"]


def test_each_device_has_a_set_of_its_own(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    answers = run(*[[start(cache, device=device)] for device in ("cpu", "gpu", "gpu", "cpu")])
    assert [answer["hits"] for [answer] in answers] == [0, 0, 2, 2]
    assert all(answer["answers"] == toy_starts.expected("even") for [answer] in answers)
    assert sets(cache) == ["cpu", "gpu"]


def test_a_process_that_imported_the_kernel_before_publishes_no_part_of_a_set(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    [answer] = run([start(cache, imports_first=True)])[0]
    assert answer["answers"] == toy_starts.expected("even")
    assert sets(cache) == []


COMPILE = """
import sys, time
from jobs.kinds import code_sets
with code_sets.compile_once("collatz"):
    print("in", time.monotonic(), flush=True)
    if sys.argv[1] == "dies":
        raise SystemExit(1)
    time.sleep(float(sys.argv[1]))
    print("out", time.monotonic(), flush=True)
"""


def compiling(cache: Path, what: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", COMPILE, what]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def spent(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Return the times at which the process entered and left."""
    words = process.communicate(timeout=60)[0].split()
    return float(words[1]), float(words[3])


def test_one_process_compiles_and_the_others_then_load_at_once(tmp_path: Path) -> None:
    died = compiling(tmp_path, "dies")
    assert "out" not in died.communicate(timeout=60)[0]
    first, second = sorted(spent(process) for process in [compiling(tmp_path, "0.7") for _ in range(2)])
    assert first[1] <= second[0]
    together = [compiling(tmp_path, "600") for _ in range(2)]
    for process in together:
        assert process.stdout and process.stdout.readline().startswith("in"), "it waits for the other"
    for process in together:
        process.kill()
        process.communicate()


MEANWHILE = """
from jobs.kinds import code_sets
for kind in ("collatz", "thread"):
    with code_sets.compile_once(kind, wait=False) as may_compile:
        print(may_compile)
"""


def test_who_does_not_wait_compiles_what_nobody_else_does(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", MEANWHILE]
    with compiling(tmp_path, "600") as first:
        assert first.stdout and first.stdout.readline().startswith("in")
        meanwhile = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        first.kill()
    assert meanwhile.stdout.split() == ["False", "True"]
    afterwards = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert afterwards.stdout.split() == ["True", "True"]

"""Tests the executor with a fake cluster, which runs the calls in a process on this machine."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.integration.live import until
from tests.unit.calling_fake import Calling
from tests.unit.programs_fake import page, unit
from threads_cluster import Cluster
from threads_cluster.client.calling import batches, call_jobs, pickling, project
from threads_cluster.client.calling.batches import Call, CallQueue
from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.client.calling.futures import ClusterFuture
from threads_cluster.client.calling.watcher import Listener
from threads_cluster.errors import BadArgument, CallFailed, CallTimedOut, NoRunner, RemoteTraceback


@pytest.fixture(scope="module")
def fake() -> Iterator[Calling]:
    fake = Calling()
    yield fake
    fake.end()


@pytest.fixture(autouse=True)
def no_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upload no modules, because this checkout has many and the fake cluster runs calls in its folder."""
    monkeypatch.setattr(project, "PROJECT", project.Project({}))


@pytest.fixture
def cluster(fake: Calling) -> Iterator[Cluster]:
    fake.submitted.clear()
    fake.holds = False
    with fake.cluster() as cluster:
        yield cluster


@pytest.fixture
def executor(cluster: Cluster) -> Iterator[ClusterExecutor]:
    with cluster.executor() as executor:
        yield executor


def test_a_lambda_with_a_closure_runs_in_another_process(executor: ClusterExecutor) -> None:
    factor = 3
    assert executor.submit(lambda x, *, plus: (x * factor + plus, os.getpid()), 2, plus=1).result() != (7, os.getpid())
    assert executor.submit(lambda x: x * factor, 2).result() == 6


def test_calls_of_one_function_become_one_job(executor: ClusterExecutor, fake: Calling) -> None:
    assert list(executor.map(lambda x: x + 1, range(50))) == list(range(1, 51))
    assert sum(len(body["parameters"]["items"]) for body in fake.submitted) == 50
    assert len({body["parameters"]["input"] for body in fake.submitted}) == 1


def _call() -> Call:
    pickled = pickling.Pickled(text="")
    return Call(name="f", function=pickled, arguments=pickled, future=ClusterFuture())


def test_a_call_waits_for_others_only_during_a_submission() -> None:
    queue = CallQueue()
    queue.put(_call())
    [alone], _ = queue.take(lambda: True)
    for call in (_call(), _call()):
        queue.put(call)
    [several], is_open = queue.take(lambda: False)
    assert (len(alone.calls), len(several.calls), is_open) == (1, 2, True)


def test_calls_of_a_burst_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LONGEST_SECONDS", 20.0)
    queue, has_first = CallQueue(), threading.Event()

    def is_idle() -> bool:
        has_first.set()
        return True

    with ThreadPoolExecutor() as threads, queue.burst():
        queue.put(_call())
        taken = threads.submit(queue.take, is_idle)
        assert has_first.wait(20)
        queue.put(_call())
    [batch], _ = taken.result()
    assert len(batch.calls) == 2


def test_large_arguments_and_values_travel_as_files(executor: ClusterExecutor, fake: Calling) -> None:
    data = os.urandom(60_000)
    assert executor.submit(lambda x: x[::-1], data).result() == data[::-1]
    assert "items_artifact" in fake.submitted[0]["parameters"]


def test_an_exception_arrives_as_itself_with_its_traceback(executor: ClusterExecutor) -> None:
    def divide(a: int, b: int) -> float:
        return a / b

    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        executor.submit(divide, 1, 0).result()
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in divide" in str(caught.value.__cause__)


def test_an_exception_that_cannot_be_pickled_arrives_as_text(executor: ClusterExecutor) -> None:
    def fail() -> None:
        raise ValueError(threading.Lock())

    with pytest.raises(CallFailed, match="ValueError: <unlocked") as caught:
        executor.submit(fail).result()
    assert "in fail" in str(caught.value.__cause__)


def test_a_call_that_ends_its_process_fails_alone(executor: ClusterExecutor) -> None:
    with pytest.raises(CallFailed, match="exit code 3"):
        executor.submit(os._exit, 3).result()
    assert executor.submit(abs, -1).result() == 1


def test_futures_of_two_functions_complete(executor: ClusterExecutor) -> None:
    futures = [executor.submit(abs, -1), executor.submit(len, "ab")]
    assert sorted(future.result() for future in as_completed(futures)) == [1, 2]


def test_an_executor_accepts_no_calls_after_shutdown(cluster: Cluster) -> None:
    executor = cluster.executor()
    future = executor.submit(abs, -1)
    executor.shutdown()
    assert future.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)


def test_map_computes_several_results_per_call(executor: ClusterExecutor, fake: Calling) -> None:
    assert list(executor.map(pow, range(7), itertools.repeat(2), chunksize=3)) == [n * n for n in range(7)]
    assert sum(len(body["parameters"]["items"]) for body in fake.submitted) == 3


def test_map_with_a_buffersize_reads_values_when_they_are_needed(executor: ClusterExecutor) -> None:
    values = iter(range(100))
    results = executor.map(abs, values, buffersize=2)
    assert [next(results), next(results)] == [0, 1]
    assert next(values) == 4


def test_options_become_parameters_of_the_job(cluster: Cluster, fake: Calling) -> None:
    options = {"gpus": 1, "memory": "1.5 GiB", "retries": 2, "timeout": 5, "labels": ["a=b"], "env": {"X": "1"}}
    with cluster.executor(**options, priority="high", max_running=3, tags=["t"], queue=True) as executor:
        executor.submit(abs, -1).result()
    (body,) = fake.submitted
    assert body["parameters"]["requirements"] == {"gpus": 1, "memory_mib": 1536, "labels": ["a=b"]}
    assert body["parameters"]["retries"] == {"max": 2}
    assert body["parameters"]["timeout_seconds"] == 5
    assert body["parameters"]["env"] == {"X": "1"}
    assert [body[name] for name in ("priority", "max_running", "tags", "name")] == ["high", 3, ["t"], "abs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"memory": "much"}, "2 GiB"), ({"python": "3"}, "3.13"), ({"labels": "a"}, "must be a list")],
)
def test_an_invalid_option_is_rejected(cluster: Cluster, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        cluster.executor(**options)


def test_calls_fail_if_no_runner_could_take_them(cluster: Cluster, fake: Calling) -> None:
    fake.fits("no live runner has 8 GPUs")
    try:
        with cluster.executor(gpus=8) as executor, pytest.raises(NoRunner, match="8 GPUs"):
            executor.submit(abs, -1).result()
    finally:
        fake.fits()
    assert not fake.submitted


def test_a_job_whose_calls_are_all_cancelled_is_cancelled(cluster: Cluster, fake: Calling) -> None:
    fake.holds = True
    with cluster.executor(max_running=3) as executor:  # All calls then become one job
        futures = [executor.submit(abs, number) for number in range(3)]
        assert futures[0].cancel()
        submitted = threading.Event()
        futures[2].add_submitted_callback(lambda future: submitted.set())
        assert submitted.wait(20)
        assert futures[2].job_id
        executor.shutdown(cancel_futures=True)
    assert wait(futures, 0).not_done == set()
    assert all(future.cancelled() for future in futures)
    assert fake.cancelled == {futures[2].job_id}


def test_a_started_call_cannot_be_cancelled() -> None:
    future = ClusterFuture()
    assert future.start() and future.running() and not future.cancel()
    future.finish(1)
    assert future.result() == 1


def test_a_result_of_a_cancelled_call_is_dropped() -> None:
    future = ClusterFuture()
    assert future.cancel() and future.cancel()
    future.finish(1)
    assert future.cancelled()


def test_a_result_without_an_event_is_found(cluster: Cluster, fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.holds = True
    listeners: list[Listener] = []
    monkeypatch.setattr(cluster.watcher, "add", lambda job_id, listener: listeners.append(listener))
    with cluster.executor() as executor:
        results = executor.map(abs, [-1, -2], timeout=20)
        until(lambda: listeners)
        done = [unit("done", number, value=pickling.text_of(pickling.dump(number).data)) for number in range(2)]
        fake.on("GET", "/api/jobs/j1/units", page(done[0], unit("running", 1)), page(done[1]))
        listeners[0]("running")
        assert list(results) == [0, 1]


def test_a_call_that_takes_too_long_raises_timeout_error(cluster: Cluster, fake: Calling) -> None:
    fake.is_slow = True
    with cluster.executor(timeout=2) as executor, pytest.raises(TimeoutError, match="longer than its timeout of 2 s"):
        executor.submit(abs, -1).result()
    fake.is_slow = False
    assert issubclass(CallTimedOut, CallFailed)


def test_waiting_for_a_call_raises_timeout_error(executor: ClusterExecutor, fake: Calling) -> None:
    fake.holds = True
    future = executor.submit(abs, -1)
    with pytest.raises(TimeoutError) as caught:
        future.result(timeout=0.01)
    assert not isinstance(caught.value, CallFailed) and not future.done()
    assert future.cancel()


def test_calls_of_a_job_that_a_user_cancels_fail(executor: ClusterExecutor, fake: Calling) -> None:
    fake.holds = True
    future = executor.submit(abs, -1)
    submitted = threading.Event()
    future.add_submitted_callback(lambda future: submitted.set())
    assert submitted.wait(20)
    assert future.job_id
    fake.end_job(future.job_id, "cancelled")
    with pytest.raises(CallFailed, match="is cancelled"):
        future.result(20)


def test_pages_contain_all_units() -> None:
    assert list(call_jobs.pages([0, 1, 999, 1000, 5000])) == [(0, 1000), (1000, 1), (5000, 1)]
    assert list(call_jobs.pages([])) == []


def test_an_executor_that_is_not_shut_down_ends_with_its_calls(cluster: Cluster) -> None:
    executor = cluster.executor()
    future = executor.submit(abs, -1)
    del executor
    assert future.result() == 1
    assert until(lambda: not any(thread.name.startswith("cluster-executor") for thread in threading.enumerate()))


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, "x"]}, "text", True])
def test_a_safe_executor_accepts_values_of_json(cluster: Cluster, value: Any) -> None:
    with cluster.executor(safe=True) as executor:
        assert executor.submit(lambda: value).result() == value


@pytest.mark.parametrize("length", [3, 100_000])
def test_a_safe_executor_accepts_arrays(length: int) -> None:
    stream = pickling.dump([numpy.arange(length), numpy.float32(1.5)])
    array, number = pickling.join([bytearray(part) for part in stream.parts], safe=True)
    assert array.tolist() == list(range(length)) and number == 1.5


def test_a_safe_executor_runs_no_code_of_a_runner(cluster: Cluster, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "attacked"),)

    with cluster.executor(safe=True) as executor, pytest.raises(CallFailed, match=r"mkdir.*safe=True"):
        executor.submit(lambda: [Attack()]).result()
    assert not (tmp_path / "attacked").exists()


def test_a_safe_executor_describes_exceptions_that_are_not_built_in(cluster: Cluster) -> None:
    class Mine(Exception):
        pass

    def fail(kind: type[Exception]) -> None:
        raise kind("why")

    with cluster.executor(safe=True) as executor:
        with pytest.raises(CallFailed, match="Mine: why"):
            executor.submit(fail, Mine).result()
        with pytest.raises(KeyError, match="why"):
            executor.submit(fail, KeyError).result()


def test_a_pickled_object_is_released_at_once() -> None:
    class Kept:
        pass

    kept = Kept()
    seen = weakref.ref(kept)
    pickling.dump(kept)
    gc.disable()
    try:
        del kept
        assert seen() is None
    finally:
        gc.enable()

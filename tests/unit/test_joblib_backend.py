"""Tests the backend of joblib with an executor of threads in place of runners."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import joblib
import pytest

import threads_cluster
from threads_cluster.joblib_backend import NAME, ClusterBackend

#: Set when the second of two calls of joblib has failed.
FAILED = threading.Event()


def wait_for_failure(n: int) -> int:
    FAILED.wait(20)
    return n


class Pool(ThreadPoolExecutor):
    """Executor that pickles calls and their values, as the cluster's executor does."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        pickled = cloudpickle.dumps((fn, args, kwargs))

        def call() -> Any:
            function, arguments, keywords = pickle.loads(pickled)  # noqa: S301 - a pickle of this test
            return function(*arguments, **keywords)

        return super().submit(call)


class FakeCluster:
    """Cluster with two runners, whose executors run in this process."""

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []
        self.pools: list[Pool] = []
        self.counted = 0

    def workers(self) -> list[dict[str, Any]]:
        self.counted += 1
        runner = {"device": "runner", "live": True, "draining": False, "lanes": 2}
        others = [{**runner, "live": False}, {**runner, "draining": True}, {**runner, "device": "cpu"}]
        return [runner, {**runner, "lanes": 3}, *others]

    def executor(self, **options: Any) -> Pool:
        self.options.append(options)
        self.pools.append(Pool(4))
        return self.pools[-1]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    threads_cluster.register_joblib()
    cluster = FakeCluster()
    with joblib.parallel_config(NAME, cluster=cluster, memory="1 GiB"):
        yield cluster
    for pool in cluster.pools:
        pool.shutdown()


def test_calls_of_joblib_run_on_an_executor_with_the_options(cluster: FakeCluster) -> None:
    assert joblib.Parallel()(joblib.delayed(lambda n: n * n)(n) for n in range(50)) == [n * n for n in range(50)]
    assert cluster.options == [{"max_running": 5, "name": "joblib", "memory": "1 GiB"}]


@pytest.mark.parametrize(("requested", "effective"), [(-1, 5), (-2, 4), (-9, 1), (3, 3), (None, 5)])
def test_the_number_of_jobs_is_the_number_of_slots_of_live_runners(requested: int | None, effective: int) -> None:
    backend = ClusterBackend(FakeCluster())  # type: ignore[arg-type]
    assert backend.effective_n_jobs(requested) == effective


def test_no_jobs_are_an_error() -> None:
    with pytest.raises(ValueError, match="n_jobs == 0"):
        ClusterBackend(FakeCluster()).effective_n_jobs(0)  # type: ignore[arg-type]


def test_one_job_runs_in_this_process(cluster: FakeCluster) -> None:
    assert joblib.Parallel(n_jobs=1)([joblib.delayed(threading.get_ident)()]) == [threading.get_ident()]
    assert cluster.options == []


def test_an_exception_cancels_the_other_batches(cluster: FakeCluster) -> None:
    def fail(n: int) -> int:
        if n == 3:
            raise ValueError("three")
        return n

    with pytest.raises(ValueError, match="three"):
        joblib.Parallel(batch_size=1)(joblib.delayed(fail)(n) for n in range(20))
    assert joblib.Parallel()(joblib.delayed(fail)(n) for n in range(3)) == [0, 1, 2]


def test_the_limit_of_running_calls_remains_after_an_error(cluster: FakeCluster) -> None:
    with joblib.Parallel(n_jobs=2) as parallel, pytest.raises(ZeroDivisionError):
        parallel(joblib.delayed(divmod)(1, 0) for _ in range(3))
    assert [options["max_running"] for options in cluster.options] == [2, 2]


def test_batches_of_a_failed_call_do_not_run_in_the_next_call(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Pool.submit

    def submit_and_wait(self: Pool, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future = submit(self, fn, *args, **kwargs)
        future.exception()  # The first batch fails before joblib submits the second one
        return future

    monkeypatch.setattr(Pool, "submit", submit_and_wait)
    with joblib.Parallel(n_jobs=2) as parallel:
        with pytest.raises(ZeroDivisionError):
            parallel(joblib.delayed(divmod)(0, 0) for _ in range(2))
        assert parallel(joblib.delayed(divmod)(1, 1) for _ in range(2)) == [(1, 0)] * 2


def test_an_error_does_not_cancel_the_calls_of_another_parallel(cluster: FakeCluster) -> None:
    with joblib.Parallel(return_as="generator", batch_size=1) as first, joblib.Parallel(n_jobs=2) as second:
        results = first(joblib.delayed(wait_for_failure)(n) for n in range(30))
        with pytest.raises(ZeroDivisionError):
            second(joblib.delayed(divmod)(0, 0) for _ in range(5))
        FAILED.set()
        assert list(results) == list(range(30))


def test_the_slots_are_counted_once_for_several_calls(cluster: FakeCluster) -> None:
    with joblib.Parallel() as parallel:
        for _ in range(3):
            assert parallel([joblib.delayed(abs)(-1)]) == [1]
    assert cluster.counted == 1
    assert joblib.effective_n_jobs() == 5 and cluster.counted == 2


def test_nested_calls_run_in_threads_of_the_slot(cluster: FakeCluster) -> None:
    def nested(n: int) -> list[int]:
        powers: list[int] = joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(n, k) for k in range(3))
        return powers

    assert joblib.Parallel()(joblib.delayed(nested)(n) for n in range(3)) == [[1, 0, 0], [1, 1, 1], [1, 2, 4]]


def test_results_can_arrive_one_by_one(cluster: FakeCluster) -> None:
    results = joblib.Parallel(return_as="generator")(joblib.delayed(abs)(-n) for n in range(10))
    assert list(results) == list(range(10))

"""Tests the executor with a fake cluster, which runs the calls in a process on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import as_completed

import pytest

from tests.unit.calling_fake import Calling
from threads_cluster import Cluster
from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.errors import CallFailed, RemoteTraceback


@pytest.fixture(scope="module")
def fake() -> Iterator[Calling]:
    fake = Calling()
    yield fake
    fake.end()


@pytest.fixture
def cluster(fake: Calling) -> Iterator[Cluster]:
    fake.submitted.clear()
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

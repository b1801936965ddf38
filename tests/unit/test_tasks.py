"""Tests tasks with a fake cluster, which runs the calls in a process on this machine."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from tests.unit.calling_fake import Calling
from tests.unit.test_client_concurrency import in_child
from threads_cluster import Cluster, Task, as_completed
from threads_cluster.compat.pycluster import HeadNode
from threads_cluster.errors import BadArgument, CallFailed

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


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
def double(cluster: Cluster) -> Task[[int], int]:
    @cluster.task
    def double(number: int) -> int:
        """Return twice the number."""
        return 2 * number

    return double


def test_a_task_is_called_here_or_on_a_runner(cluster: Cluster, double: Task[[int], int], fake: Calling) -> None:
    here: Task[[], int] = cluster.task(os.getpid)
    assert here() == os.getpid()
    assert here.submit().result() != os.getpid()
    assert double(3) == double.submit(3).result() == 6
    assert double.__doc__ == "Return twice the number."


def test_map_yields_results_in_order(double: Task[[int], int]) -> None:
    assert list(double.map(range(100))) == list(range(0, 200, 2))
    assert list(double.map(range(10), chunksize=4)) == list(range(0, 20, 2))


def test_completed_calls_are_yielded(double: Task[[int], int]) -> None:
    calls = [double.submit(number) for number in range(10)]
    assert {call.result() for call in futures.as_completed(calls)} == set(range(0, 20, 2))
    assert {call.result() for call in as_completed(calls)} == set(range(0, 20, 2))


def test_options_apply_to_the_jobs_of_a_task(cluster: Cluster, double: Task[[int], int], fake: Calling) -> None:
    assert double.options(gpus=1).options(retries=2).submit(3).result() == 6
    assert fake.submitted[-1]["parameters"]["requirements"] == {"gpus": 1}
    assert fake.submitted[-1]["parameters"]["retries"] == {"max": 2}

    @cluster.task(memory="2 GiB")
    def work() -> int:
        return 1

    assert work.submit().result() == 1
    assert fake.submitted[-1]["parameters"]["requirements"] == {"memory_mib": 2048}
    with pytest.raises(BadArgument, match="must be a number of MiB"):
        work.options(memory="much")


def test_tasks_with_the_same_options_share_an_executor(cluster: Cluster) -> None:
    executors = cluster.task_executors
    assert executors.get({"gpus": 1}) is executors.get({"gpus": 1}) is not executors.get({})


def test_a_task_can_call_itself_on_a_runner(cluster: Cluster) -> None:
    @cluster.task
    def factorial(number: int) -> int:
        return number * factorial(number - 1) if number else 1

    assert factorial.submit(5).result() == 120


# -- dependencies ---------------------------------------------------------------------------------------------------


def test_arguments_can_be_futures(cluster: Cluster, double: Task[[int], int]) -> None:
    total = cluster.task(lambda numbers, *, plus: sum(numbers) + plus["value"])
    parts = [double.submit(number) for number in range(5)]
    call = total.submit(parts, plus={"value": double.submit(double.submit(1))})
    assert call.result() == 20 + 4


def test_a_call_waits_for_the_futures_in_its_arguments(double: Task[[int], int]) -> None:
    first: futures.Future[int] = futures.Future()
    call = double.submit(first)
    assert not call.done() and call.job_id is None
    first.set_result(4)
    assert call.result() == 8


def test_the_same_future_can_be_used_twice(cluster: Cluster, double: Task[[int], int]) -> None:
    part = double.submit(2)
    assert cluster.task(lambda a, b: a * b).submit(part, part).result() == 16


def test_a_failed_dependency_fails_the_call_with_its_reason(cluster: Cluster, double: Task[[int], int]) -> None:
    divided = cluster.task(lambda number: 1 / number).submit(0)
    with pytest.raises(CallFailed, match=r"double was not called, .* failed: ZeroDivisionError: division") as caught:
        double.submit(double.submit(divided)).result()
    assert isinstance(caught.value.__cause__, CallFailed)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


def test_a_cancelled_dependency_fails_the_call(double: Task[[int], int]) -> None:
    first: futures.Future[int] = futures.Future()
    call = double.submit(first)
    first.cancel()
    with pytest.raises(CallFailed, match="on which it depends was cancelled"):
        call.result()


def test_a_call_that_waits_for_another_can_be_cancelled(double: Task[[int], int], fake: Calling) -> None:
    first: futures.Future[int] = futures.Future()
    call = double.submit(first)
    assert call.cancel()
    first.set_result(4)
    assert call.cancelled() and not fake.submitted


def test_a_call_that_cannot_be_pickled_fails_after_its_dependencies(double: Task[[int], int]) -> None:
    first: futures.Future[Any] = futures.Future()
    call = double.submit(first)
    first.set_result(threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        call.result()


# -- asyncio and fork -----------------------------------------------------------------------------------------------


def test_futures_can_be_awaited(double: Task[[int], int]) -> None:
    async def call() -> tuple[int, set[int]]:
        several = [double.submit(number) for number in range(5)]
        return await double.submit(3), {await done async for done in as_completed(several, 20)}

    assert asyncio.run(call()) == (6, {0, 2, 4, 6, 8})


def test_waiting_for_calls_in_a_coroutine_times_out() -> None:
    async def wait() -> None:
        async for _ in as_completed([futures.Future()], 0.01):
            pass

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_a_cancelled_coroutine_cancels_its_call(double: Task[[int], int]) -> None:
    call = double.submit(futures.Future())

    async def cancel() -> None:
        waiting = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(cancel())
    assert call.cancelled()


def test_an_executor_of_the_parent_process_is_refused_after_a_fork(cluster: Cluster) -> None:
    with cluster.executor() as executor:
        assert executor.submit(abs, -1).result() == 1

        def call() -> str:
            with pytest.raises(RuntimeError) as caught:
                executor.submit(abs, -1)
            return str(caught.value)

        assert in_child(call).startswith("this executor belongs to the parent process")
        assert executor.submit(abs, -2).result() == 2


def test_a_task_gets_another_executor_after_a_fork(cluster: Cluster, double: Task[[int], int]) -> None:
    assert double.submit(1).result() == 2
    parent = cluster.task_executors.get({})
    assert in_child(lambda: cluster.task_executors.get({}) is not parent)


def test_calls_that_wait_at_a_fork_fail_in_the_child_process(
    cluster: Cluster, double: Task[[int], int], fake: Calling
) -> None:
    ended, needed = double.submit(1), futures.Future[int]()
    ended.result()
    called: list[object] = []
    fake.holds = True
    calls, cancelled = [double.submit(2), double.submit(needed)], double.submit(4)
    assert cancelled.cancel()
    try:
        for call in calls:
            call.add_done_callback(called.append)

        def read() -> list[Any]:
            errors = [str(call.exception(5)) for call in as_completed(calls, 5)]
            return [ended.result(), cancelled.cancelled(), len(called), *errors]

        why = "the result of the call goes to the parent process, because this process was forked from it"
        assert in_child(read) == [2, True, 0, why, why]
        assert not any(call.done() for call in calls)
    finally:
        fake.holds = False
        calls[0].cancel()
        needed.set_result(3)
    assert calls[1].result(20) == 6


def test_a_forked_process_keeps_the_values_of_its_parent() -> None:
    fake = Calling()  # No thread of another test uses it at the fork
    with fake.cluster() as cluster:
        kept = [cluster.put(b"x" * 100_000)]

        def drop_and_close() -> list[str]:
            kept.clear()
            cluster.close()
            return list(fake.artifacts)

        stored = list(fake.artifacts)
        assert stored and in_child(drop_and_close) == stored
    assert not fake.artifacts


# -- PyCluster ------------------------------------------------------------------------------------------------------


def test_the_example_of_pycluster_works(fake: Calling) -> None:
    with HeadNode("n", cluster=fake.cluster()) as cluster:
        assert cluster.submit_task(lambda x: x**2, 10).result() == 100

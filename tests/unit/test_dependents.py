"""Tests calls that depend on other calls: their jobs, and how the calls receive the results."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

import pytest

from tests.integration.live import until
from tests.unit.calling_fake import Calling
from threads_cluster import Cluster, Task
from threads_cluster.client.calling.futures import ClusterFuture
from threads_cluster.client.programs import KIND
from threads_cluster.errors import CallFailed

SIZE = 1 << 20


@pytest.fixture(scope="module")
def process() -> Iterator[Calling]:
    fake = Calling()
    yield fake
    fake.end()


@pytest.fixture
def fake(process: Calling) -> Calling:
    for each in (process.submitted, process.downloaded, process.uploaded, process.cancelled, process.artifacts):
        each.clear()
    process.holds = process.is_old = process.refuses_after = False
    process.lacks = ""
    return process


@pytest.fixture
def cluster(fake: Calling) -> Iterator[Cluster]:
    with fake.cluster() as cluster:
        yield cluster


@pytest.fixture
def make(cluster: Cluster) -> Task[[int], bytearray]:
    return cluster.task(bytearray)


@pytest.fixture
def size(cluster: Cluster) -> Task[[Any], int]:
    """Return a task that adds the sizes of values."""
    return cluster.task(lambda *values: sum(map(len, values)))


def units(fake: Calling, job: int = -1) -> list[Any]:
    """Return the units that the first item of a submitted job names."""
    item = fake.submitted[job]["parameters"]["items"][0]
    return [list(unit) for unit in item["units"]] if isinstance(item, dict) else []


def submitted(future: ClusterFuture) -> ClusterFuture:
    """Wait until the job of a call is submitted."""
    event = threading.Event()
    future.add_submitted_callback(lambda _: event.set())
    assert event.wait(20)
    return future


# -- jobs after jobs --------------------------------------------------------------------------------------------------


def test_a_dependent_call_is_a_job_after_the_other_job(fake: Calling, cluster: Cluster, size: Any) -> None:
    fake.holds = True
    first = submitted(size.submit("ab"))
    second = submitted(size.submit(first, first))
    third = submitted(size.submit([second], {"a": (first,)}))
    assert [body.get("after") for body in fake.submitted] == [
        None,
        [first.job_id],
        sorted([str(first.job_id), str(second.job_id)]),
    ]
    assert units(fake, 1) == [[first.job_id, 0]] and units(fake, 2) == [[second.job_id, 0], [first.job_id, 0]]
    assert all(body["type"] == KIND for body in fake.submitted)
    assert third.cancel() and until(lambda: third.job_id in fake.cancelled)
    assert first.cancel() and until(lambda: {first.job_id, second.job_id} <= fake.cancelled)
    with pytest.raises(CallFailed, match="on which it depends was cancelled"):
        second.result(20)


def test_the_client_does_not_download_large_results(fake: Calling, make: Any, size: Any, cluster: Cluster) -> None:
    double = cluster.task(lambda value: value + value)
    first = make.submit(SIZE)
    second = double.submit(first)
    assert size.submit(second, [1]).result(20) == 2 * SIZE + 1
    assert [body.get("after") for body in fake.submitted] == [None, ["j1"], ["j2"]]
    # The modules of the functions are uploaded, unless a test before has done so.
    assert not fake.downloaded and max(fake.uploaded, default=0) < SIZE
    assert first.result() == bytearray(SIZE) and first.result() is first.result()
    assert len(fake.downloaded) == 1, "a result is downloaded once"


def test_a_stored_result_becomes_a_reference(fake: Calling, make: Any, size: Any) -> None:
    first = make.submit(SIZE)
    assert until(first.done)
    assert size.submit(first, "a").result(20) == SIZE + 1
    assert "after" not in fake.submitted[-1] and not fake.downloaded and max(fake.uploaded, default=0) < SIZE


def test_a_call_does_not_wait_for_calls_that_it_does_not_need(fake: Calling, cluster: Cluster, size: Any) -> None:
    needed, other = ClusterFuture(), ClusterFuture()
    for unit, future in enumerate((needed, other)):
        future.set_job("a", unit, 2, cluster.values)
    fake.holds = True
    dependent, both = size.submit(needed), submitted(size.submit(needed, other))
    assert [body["after"] for body in fake.submitted] == [["a"]] and units(fake) == [["a", 0], ["a", 1]]
    needed.finish("ab")
    submitted(dependent)
    assert "after" not in fake.submitted[-1] and not units(fake)
    assert dependent.cancel() and both.cancel()


def test_the_same_result_is_one_object(cluster: Cluster, make: Any) -> None:
    part = make.submit(SIZE)
    assert cluster.task(lambda one, two: one is two[0]).submit(part, [part]).result(20)


def test_small_and_large_results_of_several_jobs_are_combined(cluster: Cluster, make: Any, fake: Calling) -> None:
    parts = [make.submit(number) for number in (1, 100, 5_000, 70_000, 200_000, SIZE)]
    sizes = cluster.task(lambda values, *, more: [*map(len, values), more])
    assert sizes.submit(parts, more="x").result(20) == [1, 100, 5_000, 70_000, 200_000, SIZE, "x"]
    assert max(fake.uploaded, default=0) < 200_000


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_call_of_a_skipped_job_fails_with_the_error_of_the_other_call(fake: Calling, size: Any) -> None:
    fake.holds = True
    first = submitted(size.submit("ab"))
    second = submitted(size.submit(first))
    assert first.job_id and second.job_id
    fake.end_job(second.job_id, "skipped")
    assert until(lambda: any(each.url.path == f"/api/jobs/{second.job_id}" for each in fake.asked))
    assert not second.done(), "the reason is not known yet"
    fake.end_job(first.job_id, "failed")
    with pytest.raises(CallFailed, match="was not called") as caught:
        second.result(20)
    assert isinstance(caught.value.__cause__, CallFailed)
    assert f"job {first.job_id} of the call is failed" in str(caught.value.__cause__)


@pytest.mark.parametrize("lacking", ["is_old", "lacks", "refuses_after"])
def test_the_client_sends_results_that_the_cluster_cannot_provide(
    fake: Calling, make: Any, size: Any, lacking: str
) -> None:
    setattr(fake, lacking, "units: job j1 was deleted, with its results")
    part = make.submit(SIZE)
    assert size.submit(part, "a").result(20) == SIZE + 1
    assert len(fake.submitted) == 3 and "after" in fake.submitted[1] and "after" not in fake.submitted[2]


def test_a_deleted_result_fails_the_call(fake: Calling, make: Any, size: Any) -> None:
    part = make.submit(SIZE)
    assert part.exception(20) is None
    for path in [path for path in fake.replies if path[1].endswith("/manifest")]:
        del fake.replies[path]
    with pytest.raises(CallFailed, match="the result of the call cannot be read"):
        size.submit(part).result(20)
    with pytest.raises(CallFailed, match="the result of the call cannot be read"):
        part.result()


# -- lifetime of results ----------------------------------------------------------------------------------------------


def test_a_result_is_deleted_with_its_future(fake: Calling, cluster: Cluster, make: Any) -> None:
    part = make.submit(SIZE)
    assert part.result(20) and len(fake.artifacts) == 1
    del part
    gc.collect()
    make.submit(1).result(20)
    assert until(lambda: not fake.artifacts)


def test_a_result_remains_until_the_calls_that_need_it_have_ended(fake: Calling, make: Any, size: Any) -> None:
    part = make.submit(SIZE)
    assert part.exception(20) is None
    fake.holds = True
    call = submitted(size.submit(part))
    del part
    gc.collect()
    assert size.submit("a").cancel() and len(fake.artifacts) == 1
    fake.end_job(str(call.job_id), "cancelled")
    assert call.exception(20) and until(lambda: not fake.artifacts)


def test_a_result_is_released_although_a_call_on_which_it_depends_is_still_referred_to(make: Any, size: Any) -> None:
    part, results = make.submit(SIZE), []
    for _ in range(3):
        call = size.submit(part)
        assert call.result(20) == SIZE
        results.append(weakref.ref(call))
    del call
    assert until(lambda: gc.collect() >= 0 and not any(each() for each in results))
    results.append(weakref.ref(part))
    del part
    assert until(lambda: gc.collect() >= 0 and not any(each() for each in results))


def test_closing_a_cluster_deletes_results_that_no_call_needs(fake: Calling) -> None:
    with fake.cluster() as cluster:
        make = cluster.task(bytearray)
        parts = [make.submit(SIZE) for _ in range(2)]
        wait(parts, 20)
        parts[0].users.add(object())
    assert len(fake.artifacts) == 1
    with pytest.raises(CallFailed, match=r"call result\(\) before the Cluster is closed"):
        parts[1].result()


def test_a_result_that_is_awaited_is_loaded_outside_of_the_event_loop(fake: Calling, make: Any) -> None:
    async def load() -> int:
        return len(await make.submit(SIZE))

    assert asyncio.run(load()) == SIZE


def test_an_executor_loads_results_at_once(fake: Calling, cluster: Cluster) -> None:
    with cluster.executor() as executor:
        call = executor.submit(bytearray, SIZE)
        assert call.exception(20) is None and fake.downloaded
    assert call.result() == bytearray(SIZE) and call.stored is None
    assert until(lambda: not fake.artifacts)

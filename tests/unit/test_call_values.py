"""Tests large arguments and results of calls, and values that calls share, with a fake cluster."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.unit.calling_fake import Calling
from threads_cluster import Cluster
from threads_cluster.client.calling import pickling, program
from threads_cluster.client.calling.executor import ClusterExecutor
from threads_cluster.errors import BadArgument, ValueNotStored

#: Number of 8-byte numbers of an array that travels as a file.
LARGE = 20_000
#: Values that travel in a call, or as files.
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.floats(allow_nan=False),
        st.binary(max_size=20),
        st.builds(lambda size: b"x" * size, st.sampled_from([0, 70_000, 2_000_000])),
        arrays.arrays(st.sampled_from(["i1", "<f4", ">i8", "U3", "M8[s]"]), arrays.array_shapes(max_side=4)),
        st.builds(lambda order: np.arange(LARGE * 2).reshape(2, -1).copy(order), st.sampled_from("CF")),
        st.builds(lambda: np.arange(3 * LARGE)[::3]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def fake() -> Iterator[Calling]:
    fake = Calling()
    yield fake
    fake.end()


@pytest.fixture
def cluster(fake: Calling) -> Iterator[Cluster]:
    with fake.cluster() as cluster:
        yield cluster
    assert not fake.artifacts  # Neither calls nor values leave artifacts


@pytest.fixture
def executor(cluster: Cluster) -> Iterator[ClusterExecutor]:
    with cluster.executor() as executor:
        yield executor


def identity(value: Any) -> Any:
    return value


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and bool(one == other)


def round_trip(cluster: Cluster, fake: Calling, value: Any) -> Any:
    """Return a value after the way from the client to the program and back, without the network."""
    sent = cluster.values.encode(value)
    descriptors = []
    for name in sent.sizes:
        path = program.FOLDER / name
        path.write_bytes(sent.contents.get(name) or fake.stored[name])
        descriptors.append(os.open(path, os.O_RDONLY))
    found = program.answer_with(program.load(sent.text, program.open_files(sent.sizes, descriptors)))
    if "files" not in found:
        return pickling.decode(found["value"])
    return pickling.join([bytearray((program.FOLDER / name).read_bytes()) for name in found["value"]])


@settings(max_examples=50, deadline=None, database=None)
@given(value=VALUES, is_put=st.booleans())
def test_values_of_any_size_return_unchanged(value: Any, is_put: bool) -> None:
    fake = Calling()
    with fake.cluster() as cluster, tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "FOLDER", Path(folder))
        assert equal(value, round_trip(cluster, fake, cluster.put(value) if is_put else value))


def test_references_inside_of_arguments_and_of_other_values_are_resolved(
    cluster: Cluster, executor: ClusterExecutor
) -> None:
    array, text = np.arange(LARGE), "small"
    inner = cluster.put(array)
    outer = cluster.put({"arrays": [inner, inner], "text": cluster.put(text)})
    found, same = executor.submit(
        lambda value, *, also: ([value, also], value["arrays"][0] is value["arrays"][1]), outer, also={"x": (inner,)}
    ).result()
    assert equal([{"arrays": [array, array], "text": text}, {"x": [array]}], [found[0], {"x": list(found[1]["x"])}])
    assert same


def test_a_function_can_use_a_reference_and_a_large_array(cluster: Cluster, executor: ClusterExecutor) -> None:
    shared, captured = cluster.put(np.arange(LARGE)), np.ones(LARGE)
    results = list(executor.map(lambda n: int(shared[n] + captured[n]), [1, 2, 3]))  # type: ignore[index]
    assert results == [2, 3, 4]


def test_a_value_is_uploaded_once_for_all_calls(cluster: Cluster, executor: ClusterExecutor, fake: Calling) -> None:
    fake.uploaded.clear()
    array = np.random.default_rng(1).random(LARGE)
    reference = cluster.put(array)
    assert list(executor.map(lambda n, value: value[n], range(5), [reference] * 5)) == list(array[:5])
    assert list(executor.map(lambda n, value: value[n], range(5), [array] * 5)) == list(array[:5])
    assert fake.uploaded.count(array.nbytes) == 1


def test_an_option_limits_the_arguments_in_the_job(cluster: Cluster, fake: Calling) -> None:
    fake.uploaded.clear()
    with cluster.executor(inline_bytes=100) as executor:
        assert [executor.submit(len, "x" * length).result() for length in (10, 1000)] == [10, 1000]
    assert max(fake.uploaded) > 1000
    with pytest.raises(BadArgument, match="must be 0 to 65536"):
        cluster.executor(inline_bytes=1 << 20)


def test_an_array_is_not_copied_into_the_pickle(cluster: Cluster) -> None:
    array = np.arange(LARGE)
    stream = cluster.values.encode((array,))
    assert max(stream.sizes.values()) == array.nbytes and len(stream.text) < 1000
    large = np.zeros(1 << 18)
    assert not [part for part in cluster.values.encode(large).contents.values() if part.nbytes == large.nbytes]


def test_a_caller_can_change_an_argument_after_the_submission(executor: ClusterExecutor) -> None:
    for size in (10, LARGE, 1 << 18):
        array = np.zeros(size)
        futures = []
        for number in range(3):
            array[:] = number
            futures.append(executor.submit(lambda value: value.sum() / len(value), array))
        assert [future.result() for future in futures] == [0.0, 1.0, 2.0]


def test_a_call_can_change_its_argument_and_no_other_call_notices(cluster: Cluster, executor: ClusterExecutor) -> None:
    def change(value: Any) -> float:
        before = float(value[0])
        value[0] = 5
        return before

    for argument in (cluster.put(np.ones(LARGE)), cluster.put(np.ones(5)), np.ones(LARGE)):
        assert [executor.submit(change, argument).result() for _ in range(2)] == [1.0, 1.0]


def test_a_value_is_deleted_with_its_last_reference(cluster: Cluster, fake: Calling) -> None:
    first, second = cluster.put(np.zeros(LARGE)), cluster.put(np.zeros(LARGE))
    outer = cluster.put([first, os.urandom(70_000)])
    assert len(fake.artifacts) == 3
    del first, second
    gc.collect()
    cluster.values.delete_unused()
    assert len(fake.artifacts) == 2 and "bytes" in repr(outer)


def test_a_value_is_deleted_although_a_call_has_used_it(
    cluster: Cluster, executor: ClusterExecutor, fake: Calling
) -> None:
    assert executor.submit(len, cluster.put(np.zeros(LARGE))).result() == LARGE
    executor.shutdown()
    gc.collect()
    cluster.values.delete_unused()
    assert not fake.artifacts


def test_a_reference_cannot_be_pickled_elsewhere(cluster: Cluster) -> None:
    import pickle

    with pytest.raises(TypeError, match="only be an argument of a call"):
        pickle.dumps(cluster.put(1))


def test_a_call_with_too_many_references_says_what_to_do(cluster: Cluster) -> None:
    references = [cluster.put(bytes([number]) * 70_000) for number in range(121)]
    with pytest.raises(BadArgument, match="at most 120 references and large arrays, but this call uses 121; join them"):
        cluster.values.encode(references)


def test_a_value_beyond_the_quota_is_named_with_its_size(cluster: Cluster, fake: Calling) -> None:
    detail = "the artifact exceeds max_stored_bytes of tenant default"
    refusal = {"type": "about:blank", "title": "Over limit", "status": 429, "detail": detail}
    before = fake.replies[("POST", "/api/artifacts")]
    fake.on("POST", "/api/artifacts", httpx.Response(429, json=refusal, headers={"Retry-After": "3600"}))
    try:
        with pytest.raises(ValueNotStored, match=r"value of 160,\d{3} bytes in the cluster: the artifact exceeds"):
            cluster.put(np.arange(LARGE))
    finally:
        fake.replies[("POST", "/api/artifacts")] = before
        fake.artifacts.clear()

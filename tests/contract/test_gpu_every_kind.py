"""The contract of a GPU kernel, for every kind that has one: over cuts it answers what the reference answers.

Plans are those of its known answers, since a kind's example may be planned to CPUs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_worker import selftest
from jobs.kinds import gpu
from jobs.models import Device
from tests.contract import every_kind
from tests.gpu import devices

ASKED = [(kind, asked["parameters"]) for kind in selftest.kinds() for asked in selftest.questions(kind)]
each = pytest.mark.parametrize(
    ("kind", "parameters"), ASKED, ids=[f"{kind}-{at}" for at, (kind, _) in enumerate(ASKED)]
)


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    """Blocks and grids of a shape that no array is a multiple of."""
    gpu.set_device(devices.device(most_blocks=3, most_threads=96))
    yield
    gpu.set_device(None)


def test_there_are_kinds_with_a_gpu_kernel() -> None:
    assert {kind for kind, _ in ASKED} >= {"collatz", "thread"}


@each
def test_gpu_kernel_equals_reference(kind: str, parameters: dict[str, Any]) -> None:
    every_kind.kernel_equals_reference(kind, Device.GPU, every_kind.plan(kind, parameters))


@each
def test_any_cut_in_any_order_gives_the_same_result(kind: str, parameters: dict[str, Any]) -> None:
    every_kind.any_cut_merges_to_the_whole(kind, Device.GPU, every_kind.plan(kind, parameters))


@each
def test_a_stop_keeps_what_was_computed(kind: str, parameters: dict[str, Any]) -> None:
    every_kind.a_stop_keeps_what_was_computed(kind, Device.GPU, every_kind.plan(kind, parameters))

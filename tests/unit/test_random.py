"""Tests SplitMix64 against published numbers, and equal numbers from Python, numba and the GPU's source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.kinds import gpu, random, random_cpu
from tests.gpu import devices

WORDS = st.integers(0, random.MASK)
#: Published numbers by seed, from Vigna's splitmix64.c and Rosetta Code's "Pseudo-random numbers/Splitmix64".
PUBLISHED = {
    0: (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F),
    1234567: (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431),
}
KERNEL = """#include "random.cuh"
extern "C" __global__ void draw(const u64* keys, u64 count, u64* words)
{
    for (u64 at = threadIdx.x; at < count; at += blockDim.x) words[at] = sub(keys[at], at);
}
"""


@pytest.mark.parametrize("seed", PUBLISHED)
def test_words_of_a_seed_are_the_published_ones(seed: int) -> None:
    assert tuple(random.sub(seed, number) for number in range(len(PUBLISHED[seed]))) == PUBLISHED[seed]


@given(WORDS, st.integers(0, 2**41))
def test_compiled_words_are_those_of_python(key: int, number: int) -> None:
    assert int(random_cpu.mix(np.uint64(key))) == random.mix(key)
    assert int(random_cpu.sub(np.uint64(key), number)) == random.sub(key, number)
    assert random.mix(key + random.offset(number) & random.MASK) == random.sub(key, number)


@pytest.fixture
def device() -> Iterator[gpu.Device]:
    gpu.set_device(made := devices.device(most_blocks=1, most_threads=7))
    yield made
    gpu.set_device(None)


def test_words_of_a_gpu_are_those_of_python(device: gpu.Device, tmp_path: Path) -> None:
    (tmp_path / "draw.cu").write_text(KERNEL)
    keys = [random.sub(99, number) for number in range(50)]
    words = device.zeros(len(keys), np.uint64)
    gpu.kernels(gpu.Source(tmp_path / "draw.cu"))("draw", 1, 7, device.put(np.array(keys, np.uint64)), len(keys), words)
    assert device.get(words).tolist() == [random.sub(key, number) for number, key in enumerate(keys)]

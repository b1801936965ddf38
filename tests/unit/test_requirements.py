"""Tests the descriptions of programs' requirements and of what runners lack."""

from __future__ import annotations

import pytest

from jobs.hosts import requirements

GPU = {"memory_mib": 40_000, "compute_capability": "8.0"}
OFFER = {"cpus": 8, "memory_mib": 16_000, "gpus": [GPU, GPU], "host": "amber", "labels": ["ssd", "eu"]}


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        ({}, []),
        ({"gpus": 2, "cpus": 8, "memory_mib": 16_000, "host": "amber", "labels": ["eu"]}, []),
        ({"gpus": 4}, ["4 GPUs, but it has 2"]),
        ({"gpu_memory_mib": 80_000}, ["1 GPU with 80000 MiB, but it has 0"]),
        ({"compute_capability": "7.5"}, []),
        ({"compute_capability": "10.0"}, ["1 GPU with compute capability 10.0, but it has 0"]),
        ({"cpus": 8.5, "memory_mib": 16_001}, ["8.5 CPUs, but it has 8", "16001 MiB of memory, but it has 16000"]),
        ({"host": "basalt"}, ["host basalt, but it has host amber"]),
        ({"labels": ["nvme", "eu"]}, ["label nvme, but it has eu, ssd"]),
    ],
)
def test_what_a_runner_lacks_is_said_in_words(needed: dict[str, object], words: list[str]) -> None:
    assert requirements.describe_shortfalls(needed, OFFER) == words


def test_equal_requirements_are_equal_texts() -> None:
    one = requirements.canonical({"labels": ["b", "a", "b"], "gpus": 1})
    assert (
        one
        == requirements.canonical({"gpus": 1, "labels": ["a", "b"], "host": None})
        == '{"gpus":1,"labels":["a","b"]}'
    )
    assert requirements.canonical({"labels": []}) == ""


def test_the_nearest_runner_lacks_least() -> None:
    small, large = {**OFFER, "gpus": [GPU]}, {**OFFER, "gpus": [GPU] * 3}
    offers = [("a", {**large, "cpus": 1}), ("b", small), ("c", large)]
    name, short = requirements.nearest({"gpus": 4, "cpus": 8}, offers) or ("", ())
    assert (name, [(each.needed, each.has) for each in short]) == ("c", [("4 GPUs", "3")])
    assert requirements.nearest({"gpus": 1}, []) is None

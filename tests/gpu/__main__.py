"""`python -m tests.gpu`: the GPU kernels' tests on a real GPU. Fails when none ran on it.

Needs cupy, numba, pytest, hypothesis and what the project's jobs import; neither a network nor, but for the last test,
a Redis.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


class Counter:
    """Counts the tests that passed."""

    def __init__(self) -> None:
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed


def main(more: list[str]) -> int:
    os.environ["GPU_TESTS"] = "cuda"
    from tests.gpu import devices

    try:
        print(f"on {devices.real().name}")
    except Exception as error:
        print(f"error: no GPU can be used: {error}\n  see nvidia-smi and `pip show cupy-cuda12x`", file=sys.stderr)
        return 1
    counter = Counter()
    files = [*sorted(map(str, TOP.glob("tests/contract/test_gpu_*.py"))), str(TOP / "tests/gpu")]
    failed = pytest.main([*files, *more], plugins=[counter])
    print(f"{counter.passed} tests passed, {devices.launches[0]} launches on {devices.real().name}")
    if not counter.passed or not devices.launches[0]:
        print("error: nothing ran on the GPU", file=sys.stderr)
        return 1
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A lane of a CPU worker: what the child makes of bad partials, and when the parent's handle is ready for work."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from cpu_worker import child
from jobs import errors, execution
from jobs.execution import Computed


def test_a_kernel_that_returns_numpys_integers_fails_its_job_and_not_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(*_: Any) -> Computed:
        return Computed(upto=5, partial={"sum": numpy.int64(10)}, seconds=0.1)

    monkeypatch.setattr(execution, "compute", compute)
    answer = child._lease([0, 0], "k", {}, 0, 5, 2.0)
    assert isinstance(answer, errors.KernelFailed)
    assert "k on cpu: the partial cannot be stored as JSON: TypeError: Object of type int64" in str(answer)

"""Kinds are found, and kernels are loaded one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import errors, kinds
from jobs.kinds import registry
from jobs.models import Device

ROOT = Path(__file__).resolve().parents[2]


def test_a_device_without_a_kernel_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(ROOT / "tests" / "kinds" / "jobs" / "kinds")])
    registry.names.cache_clear()
    with pytest.raises(errors.NoKernel, match="kind faulty has no kernel for gpu"):
        registry.kernel("faulty", Device.GPU)
    registry.names.cache_clear()

"""Tests that kinds are found, and that kernels are loaded one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from jobs import errors, kinds
from jobs.kinds import registry
from jobs.kinds.contract import Kind
from jobs.models import Device, Partial, Plan, Spec

ROOT = Path(__file__).resolve().parents[2]


def test_a_device_without_a_kernel_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(ROOT / "tests" / "kinds" / "jobs" / "kinds")])
    registry.names.cache_clear()
    with pytest.raises(errors.NoKernel, match="jobs of kind faulty cannot run on device gpu"):
        registry.kernel("faulty", Device.GPU)
    registry.names.cache_clear()


class Plain(Kind):
    """A kind that overrides no hook."""

    model_version = 1
    summary = "Nothing."
    example: ClassVar[dict[str, Any]] = {}
    parameters = BaseModel

    def plan(self, parameters: Any) -> Plan:
        raise NotImplementedError

    def merge(self, left: Partial, right: Partial) -> Partial:
        return left

    def result(self, spec: Spec, partial: Partial) -> dict[str, Any]:
        return partial


def test_a_kind_that_overrides_no_hook_has_nothing_besides_its_work() -> None:
    kind = Plain()
    assert (kind.title({"a": 1}), kind.marks({}, {}), kind.result_schema, kind.is_for_leader) == ("", [], None, False)
    assert not kind.mark_kinds and not kind.questions and not kind.binaries


@pytest.mark.parametrize("name", registry.names())
def test_each_of_what_a_kind_lists_has_a_hook(name: str) -> None:
    kind = type(registry.definition(name))
    for listed, hook in (("mark_kinds", "marks"), ("questions", "question"), ("binaries", "binary")):
        assert bool(getattr(kind, listed)) == (getattr(kind, hook) is not getattr(Kind, hook)), (listed, hook)
    assert registry.folder(name).name == name

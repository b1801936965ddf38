"""Known answers that a CPU worker asks for reach all compiled code that Python calls, and the kernels know them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from jobs.kinds import registry
from jobs.models import Device
from jobs.worker import known_answers

#: Modules whose functions run once, to make tables that all others read.
TABLES = {"tables"}


def counted(function: Any, name: str, called: set[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        called.add(name)
        return function(*arguments)

    return call


@pytest.mark.parametrize("kind", ["collatz", "thread"])
def test_every_compiled_function_that_python_calls_is_asked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.dispatcher import Dispatcher

    registry.kernel(kind, Device.CPU).warm()
    known_answers.check(kind, Device.CPU)
    compiled: set[str] = set()
    called: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(f"jobs.kinds.{kind}.") and name.rpartition(".")[2] not in TABLES:
            for place, value in list(vars(module).items()):
                if isinstance(value, Dispatcher) and value.stats.cache_hits | value.stats.cache_misses:
                    function = f"{value.py_func.__module__}.{value.py_func.__qualname__}"
                    compiled.add(function)
                    monkeypatch.setattr(module, place, counted(value, function, called))
    known_answers.check(kind, Device.CPU)
    assert called == compiled

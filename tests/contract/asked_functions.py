"""Prints the compiled functions that a kind's known answers call, and all that Python calls: `python -m ... KIND`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from numba.core.dispatcher import Dispatcher

from jobs.kinds import registry
from jobs.models import Device
from jobs.worker import known_answers

#: Modules whose functions run once to create tables for all other functions.
_TABLES = {"tables", "frontier_tables"}


def _counted(function: Any, name: str, called: set[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        called.add(name)
        return function(*arguments)

    return call


def main(kind: str) -> None:
    """Print both lists as JSON. Requires a separate process that has loaded kernels of a single CPU level."""
    registry.kernel(kind, Device.CPU).warm()
    known_answers.check(kind, Device.CPU)
    compiled: set[str] = set()
    called: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(f"jobs.kinds.{kind}.") and name.rpartition(".")[2] not in _TABLES:
            for place, value in list(vars(module).items()):
                if isinstance(value, Dispatcher) and value.stats.cache_hits | value.stats.cache_misses:
                    function = f"{value.py_func.__module__}.{value.py_func.__qualname__}"
                    compiled.add(function)
                    setattr(module, place, _counted(value, function, called))
    known_answers.check(kind, Device.CPU)
    print(json.dumps({"called": sorted(called), "compiled": sorted(compiled)}))


if __name__ == "__main__":
    main(sys.argv[1])

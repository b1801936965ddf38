"""Titles of simulation jobs, such as "Threads: 8 cores, work stealing"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Maximum number of core counts and of schedulers that a title lists; more are only counted.
_LISTED_CORES, _LISTED_SCHEDULERS = 5, 2


def title(parameters: Mapping[str, Any]) -> str:
    """Return a short description of the simulated machine."""
    machine = f"{_cores(_as_list(parameters['cores']))}, {_schedulers(_as_list(parameters['scheduler']))}"
    trace = parameters.get("trace")
    return f"Threads: {machine}" if trace is None else f"Threads: trace of replica {int(trace['replica'])}, {machine}"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _cores(counts: list[Any]) -> str:
    numbers = [int(count) for count in counts]
    if len(numbers) > _LISTED_CORES:
        return f"{min(numbers)} to {max(numbers)} cores"
    return f"{', '.join(map(str, numbers))} core{'' if numbers == [1] else 's'}"


def _schedulers(names: list[Any]) -> str:
    if len(names) > _LISTED_SCHEDULERS:
        return f"{len(names)} schedulers"
    return " and ".join(str(name).replace("_", " ") for name in names)

"""Options of an executor, and the parameters of jobs that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threads_cluster.client.calling.pickling import INLINE_BYTES
from threads_cluster.client.programs import Program
from threads_cluster.errors import BadArgument

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(KiB|MiB|GiB|TiB|K|M|G|T)", re.IGNORECASE)
_EXPONENTS = {"k": -1, "m": 0, "g": 1, "t": 2}
_PYTHON = re.compile(r"3\.[0-9]{1,2}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an executor. The docstring of `Cluster.executor` describes them."""

    gpus: int | None = None
    cpus: float | None = None
    memory: int | str | None = None
    retries: int | None = None
    timeout: float | None = None
    labels: Sequence[str] = ()
    host: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    priority: str | None = None
    max_running: int | None = None
    tags: Sequence[str] = ()
    name: str | None = None
    files: str | Path | None = None
    requirements: Sequence[str] | str | Path | None = None
    python: str | None = None
    inline_bytes: int = INLINE_BYTES
    safe: bool = False
    progress: bool = False
    queue: bool = False

    def __post_init__(self) -> None:
        if self.python is not None and not _PYTHON.fullmatch(self.python):
            raise BadArgument(f"must be a version such as 3.13; got {self.python!r}", "python")
        if self.python is not None and self.requirements is not None:
            raise BadArgument("cannot be combined with requirements, which use the Python of the runner", "python")
        if not 0 <= self.inline_bytes <= INLINE_BYTES:
            raise BadArgument(f"must be 0 to {INLINE_BYTES}; got {self.inline_bytes!r}", "inline_bytes")
        if isinstance(self.labels, str):
            raise BadArgument(f"must be a list of texts; got {self.labels!r}", "labels")
        self.program(["true"]).parameters()

    def program(self, command: Sequence[str | Mapping[str, str]]) -> Program:
        """Return the program with this command and these options."""
        return Program(
            command=command,
            env=self.env,
            secrets=self.secrets,
            timeout_seconds=self.timeout,
            retries=self.retries,
            gpus=self.gpus,
            cpus=self.cpus,
            memory_mib=None if self.memory is None else mebibytes(self.memory),
            host=self.host,
            labels=self.labels,
        )

    def choices(self, function: str, calls: int) -> dict[str, Any]:
        """Return the options of `Cluster.submit` for a job with some calls of a function."""
        name = self.name or (f"{function} × {calls}" if calls > 1 else function)
        chosen = {"priority": self.priority, "max_running": self.max_running, "tags": list(self.tags) or None}
        return {"name": name, **{key: value for key, value in chosen.items() if value is not None}}


def mebibytes(memory: int | str) -> int:
    """Return an amount of memory in MiB, rounded up. A text has a unit, such as "2 GiB" or "512M"."""
    if isinstance(memory, int):
        return memory
    match = _MEMORY.fullmatch(memory.strip())
    if match is None:
        raise BadArgument(f'must be a number of MiB or a text such as "2 GiB"; got {memory!r}', "memory")
    return max(1, -int(-float(match[1]) * 1024.0 ** _EXPONENTS[match[2][0].lower()] // 1))

"""Specification of a command job as used by runners, and the environment variables of its programs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.kinds import program_texts as texts
from jobs.models import Spec
from jobs.settings import search_path

#: Name of the file in the working directory into which a program can write its value.
RESULT = ".cluster-result"
#: Maximum size in bytes of a program's value in the job's result. Larger values are stored as files.
VALUE_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Command:
    """Specification of a command job, except for the arguments of its program."""

    #: The complete specification as submitted.
    spec: Spec
    total: int
    has_items: bool = False
    #: True if the job's items are the lines of a file, one item per line.
    items_in_file: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    has_files: bool = False
    outputs: tuple[str, ...] = ()
    timeout_seconds: float = 0.0
    stop_signal_seconds: float = 0.0
    #: Maximum number of units per lease. 0 means as many units as take a few seconds.
    batch: int = 0
    memory_bytes: int = 0
    workspace: str = ""
    #: Path of the requirements file for Python among the job's files, or an empty string.
    python: str = ""
    #: Name of a Python module, or empty. The runner installs no environment if its own Python has this module.
    module: str = ""
    grace_seconds: float = 10.0
    #: True if the program stays alive between units.
    persistent: bool = False
    value_bytes: int = VALUE_BYTES


def parse(spec: Spec) -> Command:
    """Parse the specification of a command job. Absent and null fields get their default values."""
    known: dict[str, Any] = {name: value for name, value in spec.items() if value is not None}
    plain = {name: known[name] for name in _PLAIN if name in known}
    requirements = known.get("requirements", {})
    return Command(
        spec=spec,
        items_in_file="items_artifact" in known,
        has_items="items" in known or "items_artifact" in known,
        secrets=tuple(known.get("secrets", ())),
        has_files=bool(known.get("files")),
        outputs=tuple(known.get("outputs", ())),
        memory_bytes=requirements.get("memory_mib", 0) << 20,
        python=known.get("python", {}).get("requirements", ""),
        module=known.get("python", {}).get("module") or "",
        **plain,
    )


#: Fields that have the same name in a Command and in the specification.
_PLAIN = (
    "total",
    "env",
    "timeout_seconds",
    "stop_signal_seconds",
    "batch",
    "workspace",
    "grace_seconds",
    "persistent",
    "value_bytes",
)


@dataclass(frozen=True, kw_only=True)
class ProgramContext:
    """Settings that the programs of one lease share, in addition to the job's specification."""

    job: str
    #: Path of the working directory.
    folder: str
    #: Path of the persistent workspace, or an empty string if the job has none.
    workspace: str = ""
    #: Path of the Python environment's bin folder, or an empty string if the job has none.
    python_bin: str = ""
    #: Trace context of the job, or an empty string if the job is not traced.
    traceparent: str = ""
    tracestate: str = ""
    #: UUIDs of the assigned GPUs, separated by commas.
    gpus: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: Default PATH of programs: the search path of the runner.
    path: str = field(default_factory=search_path)


def environment(
    command: Command, around: ProgramContext, *, unit: int, attempt: int, item: str | None
) -> dict[str, str]:
    """Return the environment variables of a unit's program. `item` is the unit's item as JSON."""
    path = command.env.get("PATH", around.path)
    traced = {"TRACEPARENT": around.traceparent, "TRACESTATE": around.tracestate}
    place = {name: text for name, text in traced.items() if text and "TRACEPARENT" not in command.env}
    given = {
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        **place,
        **command.env,
        **around.secrets,
        "PATH": os.pathsep.join([around.python_bin, path]) if around.python_bin else path,
        "HOME": around.folder,
        "TMPDIR": around.folder,
        "CUDA_VISIBLE_DEVICES": around.gpus,
        "CLUSTER_JOB_ID": around.job,
        "CLUSTER_UNIT": str(unit),
        "CLUSTER_UNITS": str(command.total),
        "CLUSTER_ATTEMPT": str(attempt),
        "CLUSTER_RESULT": f"{around.folder}/{RESULT}",
    }
    if item is not None:
        given |= {"CLUSTER_ITEM": _item_text(item), "CLUSTER_ITEM_JSON": item}
    if around.workspace:
        given["CLUSTER_WORKSPACE"] = around.workspace
    return given


def _item_text(item: str) -> str:
    """Return an item that is a valid text unchanged. Return any other item as JSON.

    Texts with NUL characters or lone surrogates are not valid in an environment variable.
    """
    value = json.loads(item)
    return value if isinstance(value, str) and not texts.problem(value) else item

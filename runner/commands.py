"""A command job as a runner reads it: its frozen specification, and the environment of each unit's program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.kinds import program_texts as texts
from jobs.models import Spec
from jobs.settings import search_path

#: Name of the file, in the program's folder, into which it may write its value.
RESULT = ".cluster-result"
#: Most bytes of a value that is stored with the result; a longer one becomes a file.
VALUE_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Command:
    """A job as a runner must know it, beside the arguments of its program."""

    #: The specification as it is.
    spec: Spec
    total: int
    has_items: bool = False
    #: Its items are the lines of a file.
    items_in_file: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    has_files: bool = False
    outputs: tuple[str, ...] = ()
    timeout_seconds: float = 0.0
    stop_signal_seconds: float = 0.0
    #: Most units in one lease; 0: as many as take some seconds.
    batch: int = 0
    memory_bytes: int = 0
    workspace: str = ""
    #: Path, among the files, of a list of Python packages; empty: none.
    python: str = ""
    #: Module of these packages: a runner's own Python that has it will do. Empty: none will.
    module: str = ""
    grace_seconds: float = 10.0
    value_bytes: int = VALUE_BYTES


def parse(spec: Spec) -> Command:
    """Read a specification. Absent and null fields have their defaults."""
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


#: Fields of a specification that a Command has under the same name.
_PLAIN = (
    "total",
    "env",
    "timeout_seconds",
    "stop_signal_seconds",
    "batch",
    "workspace",
    "grace_seconds",
    "value_bytes",
)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Surroundings of the programs of one lease, beside what their job says."""

    job: str
    #: Path of the folder in which they start.
    folder: str
    #: Path of the folder that outlives them; empty: none was asked for.
    workspace: str = ""
    #: Path of the commands of their Python environment; empty: none was asked for.
    python_bin: str = ""
    #: The job's place in a trace; empty: it is in none.
    traceparent: str = ""
    tracestate: str = ""
    #: UUIDs of their GPUs, with commas between.
    gpus: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: Where programs look for commands, unless their job says otherwise: as the runner itself does.
    path: str = field(default_factory=search_path)


def environment(command: Command, around: Surroundings, *, unit: int, attempt: int, item: str | None) -> dict[str, str]:
    """Return all variables of a unit's program. `item` is its item as JSON."""
    path = command.env.get("PATH", around.path)
    traced = {"TRACEPARENT": around.traceparent, "TRACESTATE": around.tracestate}
    place = {name: text for name, text in traced.items() if text and "TRACEPARENT" not in command.env}
    given = {
        "LANG": "C.UTF-8",
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
    """Return a text item as it is. Return other values, and texts that no variable can hold, as JSON."""
    value = json.loads(item)
    return value if isinstance(value, str) and not texts.problem(value) else item

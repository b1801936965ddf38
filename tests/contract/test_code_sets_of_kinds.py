"""Compiled code of the built-in kinds gives correct results, no matter which processes have compiled it."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding

from jobs.kinds import compiled_code, registry
from tests import kernels

#: Work stealing and global queues are two compiled functions, so the job uses schedulers of both types.
PARAMETERS: dict[str, Any] = {
    "seed": 28,
    "replicas": 8,
    "thread_count": 30,
    "max_depth": 5,
    "scheduler": ["work_stealing", "fifo"],
    "cores": [5, 17],
    "join_cost_us": 0.5,
    "steal_cost_us": 5,
}
#: Program that starts like a worker's child, without the known answers, and prints a partial. With an argument N, it is
#: killed just before it completes the N-th file of the cache.
PROGRAM = """
import json, os, signal, sys
from cpu_worker import child
from jobs.kinds import registry
from jobs.models import Device

registry.kinds_for_device = lambda device: ("thread",)
child.known_answers.check = lambda kind, device: None
left = int(sys.argv[2])

def kill(event, arguments):
    global left
    if event == "os.rename" and os.environ["NUMBA_CACHE_DIR"] in str(arguments[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
child.load(None, "thread", child.Load(may_compile=True))
definition = registry.definition("thread")
plan = definition.plan(definition.parameters.model_validate_json(sys.argv[1]))
print(json.dumps(registry.kernel("thread", Device.CPU).run(plan.spec, 0, plan.total, lambda _: True)[1]))
"""


def start(cache: Path, killed_at: int = 0) -> Any:
    """Return the partial that a new process computes; None if it was killed."""
    environment = {**os.environ, **kernels.ENVIRONMENT, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", PROGRAM, json.dumps(PARAMETERS), str(killed_at)]
    done = subprocess.run(command, cwd=kernels.TOP, env=environment, stdout=subprocess.PIPE, text=True)
    if killed_at:
        assert done.returncode == -signal.SIGKILL
        return None
    assert done.returncode == 0
    return json.loads(done.stdout)


def test_a_worker_that_is_killed_between_two_functions_leaves_no_wrong_code(tmp_path: Path) -> None:
    definition: Any = registry.definition("thread")
    plan = definition.plan(definition.parameters.model_validate(PARAMETERS))
    expected = json.loads(json.dumps(registry.reference("thread").run(plan.spec, 0, plan.total)))
    start(tmp_path, killed_at=3)  # it has written the index and the code of the first function
    assert start(tmp_path) == expected, "who compiles the rest"
    assert start(tmp_path) == expected, "who loads what both have compiled"


def symbols(kind: str) -> set[str]:
    """Return the symbols of the kind's compiled functions in the JIT linker."""
    [published] = compiled_code.folder(kind).glob("cpu-*")
    names: set[str] = set()
    for file in published.glob("*.nbc"):
        (_, _, (_, bitcode)), *_ = pickle.loads(file.read_bytes())  # noqa: S301
        module = llvmlite.binding.parse_bitcode(bitcode)
        shown = [*module.functions, *module.global_variables]
        local = (llvmlite.binding.Linkage.internal, llvmlite.binding.Linkage.private)
        names |= {each.name for each in shown if not each.is_declaration and each.linkage not in local}
    return names


def test_compiled_functions_of_two_kinds_have_no_name_in_common() -> None:
    collatz, thread = symbols("collatz"), symbols("thread")
    assert any("collatz" in name for name in collatz) and any("thread" in name for name in thread)
    # Functions of numba itself are equal in all modules. It names those that make errors by a hash of their types.
    named = {name for name in collatz | thread if not name.startswith(("NRT_", "__excinfo_unwrap_args"))}
    assert collatz & thread & named == set()
    counted = {name for name in named if not re.search(r"B\d+v\d{10,}", name)}
    assert counted == set(), "another process can give these names to other functions"

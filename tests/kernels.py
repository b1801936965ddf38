"""Compiled kernels that all tests share, so that a run compiles each at most once: `python -m tests.kernels`."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from jobs.kinds import compiled_code

TOP = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("NUMBA_CACHE_DIR") or compiled_code.CACHE_FOLDER)


def path(top: Path = TOP) -> str:
    """Return the PYTHONPATH of workers of tests: the kinds that ship, those of the tests, and what was there before."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(top / "tests" / "kinds"), str(top), *([inherited] if inherited else [])])


#: Environment of workers of tests.
ENVIRONMENT = {"PYTHONPATH": path(), "NUMBA_CACHE_DIR": str(CACHE)}
#: Folders of tests that start workers.
FOLDERS = {"integration", "hostile", "chaos", "browser"}
#: Compile or load every kernel, unless another process has done so since the sources changed.
_PROGRAM = """
from cpu_worker import child
from jobs.kinds import compiled_code, registry
from jobs.models import Device
if not all(map(compiled_code.is_compiled, registry.computed_on(Device.CPU))):
    if wrong := child.warm().wrong:
        raise SystemExit(f"wrong kernels: {wrong}; if their sources are right, remove .cluster/cache/numba")
"""


@cache
def compile_all() -> None:
    """Compile what is not compiled yet, or wait while another process does."""
    subprocess.run([sys.executable, "-c", _PROGRAM], cwd=TOP, env={**os.environ, **ENVIRONMENT}, check=True)


if __name__ == "__main__":
    compile_all()

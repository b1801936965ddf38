"""The C peer of P3, compiled with the gcc of this machine when it is needed."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import gcc_target
from jobs.kinds.thread import tables

SOURCE = Path(__file__).with_name("simulation.c")
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")


def compiled(stealing: bool) -> Any:
    """The library for one policy. Its file is gone when this returns; what is loaded stays."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "thread.so"
        subprocess.run(["gcc", *FLAGS, gcc_target(), f"-DSTEALING={int(stealing)}", SOURCE, "-o", target], check=True)
        library = ctypes.CDLL(str(target))
    library.run.restype = ctypes.c_uint64
    return library


def runner(library: Any, spec: Any) -> Callable[[], tuple[int, int]]:
    """A call simulates all replicas of the spec's only cell; it gives (threads, sum of digests)."""
    [[cores, _]] = spec["cells"]
    [row] = spec["offspring"]["thresholds"]
    numbers = _array(
        [
            spec["thread_count"],
            spec["max_depth"],
            spec["max_threads"],
            int(spec["join"] == "suspend"),
            spec["dispatch_ns"],
            spec["spawn_ns"],
            spec["join_ns"],
            spec["steal_ns"],
            spec["work"]["numbers"][0],
            cores,
        ]
    )
    held = numbers, _array(tables.logarithms()), _array(spec["offspring"]["values"]), _array(row)
    rows = spec["most_threads"] - spec["thread_count"] + 2

    def run() -> tuple[int, int]:
        threads = ctypes.c_int64()
        digest = library.run(
            ctypes.c_uint64(spec["seed"]),
            ctypes.c_int64(spec["replicas"]),
            *held,
            ctypes.c_int64(len(row)),
            ctypes.c_int64(rows),
            ctypes.byref(threads),
        )
        return threads.value, digest

    return run


def _array(numbers: Any) -> Any:
    return (ctypes.c_int64 * len(numbers))(*numbers)

"""A GPU without a GPU (`jobs.kinds.gpu.Device`): the sources compiled for this CPU, with shim.hpp in CUDA's place."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SHIM = Path(__file__).with_name("shim.hpp")
CACHE = Path(__file__).resolve().parents[2] / ".cluster" / "cache" / "host-device"
COMPILER = (shutil.which("g++") or shutil.which("clang++")) if sys.platform == "linux" else None
#: Why there is no such device here; empty where there is.
MISSING = "" if COMPILER else "needs g++ on Linux: sudo apt install g++"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-U_FORTIFY_SOURCE", "-Wall", "-Wno-unknown-pragmas")

_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')
_LAUNCHER = (
    'extern "C" void launch_{name}(unsigned blocks, unsigned threads, const uint64_t* raw)'
    " {{ shim::launch({name}, blocks, threads, raw); }}\n"
)


class HostArray:
    """An array in the device's memory: what may be done with it from outside is to cut and to get it."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __getitem__(self, cut: slice) -> HostArray:
        assert isinstance(cut, slice)
        return HostArray(self.values[cut])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def address(self) -> int:
        found: int = self.values.ctypes.data
        return found


class HostDevice:
    """Runs blocks one after the other; `shrink` makes launches smaller than a GPU's, which costs nothing here."""

    name, uuid, processors = "host", "GPU-00000000-0000-0000-0000-000000000000", 1

    def __init__(self, folder: Path | None = None, most_blocks: int = 3, most_threads: int = 64) -> None:
        self.folder = folder or CACHE
        self.folder.mkdir(parents=True, exist_ok=True)
        self.most_blocks, self.most_threads = most_blocks, most_threads
        self.launches = 0

    def compiled(self, source: str) -> Callable[..., None]:
        library = ctypes.CDLL(str(self._library(source)))

        def launch(name: str, blocks: int, threads: int, *arguments: Any) -> None:
            raw = [each.address if isinstance(each, HostArray) else int(each) for each in arguments]
            self.launches += 1
            blocks, threads = min(blocks, self.most_blocks), min(threads, self.most_threads)
            getattr(library, f"launch_{name}")(blocks, threads, (ctypes.c_uint64 * len(raw))(*raw))

        return launch

    def _library(self, source: str) -> Path:
        text = f'#include "{SHIM}"\n{source}\n'
        text += "".join(_LAUNCHER.format(name=name) for name in _KERNEL.findall(source))
        digest = hashlib.sha256(f"{text}{SHIM.read_text()}{FLAGS}".encode()).hexdigest()[:20]
        built = self.folder / f"{digest}.so"
        with (self.folder / f"{digest}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of a run need it at the same time
            if not built.exists():
                self._compile(text, built)
        return built

    def _compile(self, text: str, built: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            code, out = Path(scratch) / "kernels.cpp", Path(scratch) / "kernels.so"
            code.write_text(text)
            command = [str(COMPILER), *FLAGS, str(code), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{COMPILER} could not compile the kernels:\n{done.stderr}")
            out.replace(built)

    def put(self, values: Any) -> Any:
        return HostArray(np.array(values, order="C"))

    def zeros(self, length: int, kind: Any) -> Any:
        return HostArray(np.zeros(length, kind))

    def get(self, array: Any) -> Any:
        return array.values.copy()

"""CPU levels: sets of CPU instructions that kernels can use. A user can select a lower level than the CPU supports.

The levels v2 and avx2 are x86-64-v2 and x86-64-v3. The level avx512 is x86-64-v4 with VBMI2. Other architectures have
no levels.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


class UnsupportedLevel(Exception):
    """The CPU does not support the level that CPU_LEVEL requests."""


@dataclass(frozen=True)
class Level:
    #: Name of the level in the setting CPU_LEVEL.
    name: str
    #: Processor name that LLVM and gcc (-march) use for the level.
    processor: str
    #: LLVM names of the CPU features that the level adds to the previous levels.
    adds: tuple[str, ...]


_V2 = (
    "64bit",
    "cmov",
    "cx16",
    "cx8",
    "fxsr",
    "mmx",
    "popcnt",
    "sahf",
    "sse",
    "sse2",
    "sse3",
    "sse4.1",
    "sse4.2",
    "ssse3",
)
_AVX2 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vbmi2")
#: CPU levels, lowest level first.
LEVELS = (Level("v2", "x86-64-v2", _V2), Level("avx2", "x86-64-v3", _AVX2), Level("avx512", "x86-64-v4", _AVX512))
#: Feature names in /proc/cpuinfo that differ from LLVM's names.
_KERNELS_NAMES = {
    "64bit": "lm",
    "sahf": "lahf_lm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avx512vbmi2": "avx512_vbmi2",
}


def features(level: str) -> str:
    """Return all CPU features of a level in LLVM's syntax, separated by commas."""
    names = [each.name for each in LEVELS]
    return ",".join(f"+{name}" for each in LEVELS[: names.index(level) + 1] for name in each.adds)


def processor(level: str) -> str:
    """Return the processor name that compilers use for a level."""
    return next(each.processor for each in LEVELS if each.name == level)


@lru_cache
def of_host(cpuinfo: Path = CPUINFO) -> str:
    """Return the highest level that this machine's CPU supports.

    An architecture without levels is returned by its name, such as aarch64.
    """
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    found = platform.machine()
    for level in LEVELS:
        if not {_KERNELS_NAMES.get(name, name) for name in level.adds} <= flags:
            break
        found = level.name
    return found


def supported_levels(host: str | None = None) -> tuple[str, ...]:
    """Return the levels that this machine's CPU supports, lowest first. `host` replaces the machine's highest level."""
    names, host = tuple(level.name for level in LEVELS), host or of_host()
    return names[: names.index(host) + 1] if host in names else ()


def check(wanted: str, host: str | None = None) -> None:
    """Raise UnsupportedLevel if the CPU does not support a level. An empty level is always supported."""
    has = supported_levels(host)
    if wanted and wanted not in has:
        others = f"set it to {' or '.join(has)}, or leave it empty" if has else "leave it empty"
        raise UnsupportedLevel(
            f"CPU_LEVEL is {wanted}, which this CPU ({host or of_host()}) does not support: {others}"
        )

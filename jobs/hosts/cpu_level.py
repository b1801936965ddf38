"""Instructions that kernels use, in three levels, so that any of them can be had on a machine that has more.

A level is what a compiler may take for granted: v2 and avx2 are x86-64-v2 and x86-64-v3 of the processors' common
naming, avx512 is x86-64-v4 with VBMI2. Others than x86-64 have no levels.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


class Unusable(Exception):
    """The CPU lacks the level that CPU_LEVEL asks for."""


@dataclass(frozen=True)
class Level:
    #: As CPU_LEVEL says it.
    name: str
    #: As LLVM and gcc (-march) name it.
    processor: str
    #: What it has beyond the levels before it, in LLVM's names.
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
#: The lowest first.
LEVELS = (Level("v2", "x86-64-v2", _V2), Level("avx2", "x86-64-v3", _AVX2), Level("avx512", "x86-64-v4", _AVX512))
#: Names of the kernel's list where it has others than LLVM; those of no entry are not in its list.
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
    """Return all that a level has, as LLVM is told it."""
    names = [each.name for each in LEVELS]
    return ",".join(f"+{name}" for each in LEVELS[: names.index(level) + 1] for name in each.adds)


def processor(level: str) -> str:
    """Return the name by which compilers know a level."""
    return next(each.processor for each in LEVELS if each.name == level)


@lru_cache
def of_host(cpuinfo: Path = CPUINFO) -> str:
    """Return the highest level of this machine's CPU; that of none is the machine's architecture, such as aarch64."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    found = platform.machine()
    for level in LEVELS:
        if not {_KERNELS_NAMES.get(name, name) for name in level.adds} <= flags:
            break
        found = level.name
    return found


def usable(host: str | None = None) -> tuple[str, ...]:
    """Return the levels that this machine's CPU has, or one of level `host`, the lowest first."""
    names, host = tuple(level.name for level in LEVELS), host or of_host()
    return names[: names.index(host) + 1] if host in names else ()


def check(wanted: str, host: str | None = None) -> None:
    """Raise Unusable unless the CPU has this level; "" is whatever it has."""
    has = usable(host)
    if wanted and wanted not in has:
        others = f"set it to {' or '.join(has)}, or leave it empty" if has else "leave it empty"
        raise Unusable(f"CPU_LEVEL is {wanted}, which this CPU ({host or of_host()}) has not: {others}")

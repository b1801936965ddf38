"""NVRTC of its wheel, without CuPy and without a GPU: device code for an architecture, or what the compiler says."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path


class NotCompiled(Exception):
    """The compiler's own words."""


def library() -> Path | None:
    """The library that the wheel nvidia-cuda-nvrtc brings; None when it is not installed."""
    for name in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        for folder in found.submodule_search_locations or () if found else ():
            for path in sorted(Path(folder).glob("lib/libnvrtc.so.*")):
                return path
    return None


@lru_cache
def _load() -> ctypes.CDLL:
    path = library()
    if path is None:
        raise RuntimeError("nvidia-cuda-nvrtc-cu12 is not installed: make setup")
    # It opens its built-ins by name: with them loaded it need not find them.
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def compiled(source: str, architecture: str, *more: str) -> tuple[bytes, str]:
    """The cubin for an architecture such as sm_90, and what was said meanwhile. Raises NotCompiled."""
    nvrtc, program = _load(), ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", *(option.encode() for option in more)]
    try:
        failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        said = _text(nvrtc, program, "ProgramLog").decode().rstrip("\0")
        if failed:
            raise NotCompiled(said)
        return _text(nvrtc, program, "CUBIN"), said
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"NVRTC answers {code}")

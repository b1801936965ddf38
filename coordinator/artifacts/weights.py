"""Recognize the files that make an artifact a model: weights, and the file that names their source."""

from __future__ import annotations

#: Suffixes of files with weights that cannot contain code.
WEIGHTS = (".gguf", ".safetensors")
#: File of a model that names its source.
ABOUT = ".cluster-model.json"


def has(path: str) -> bool:
    """Return True if the path is a file with weights."""
    return path.lower().endswith(WEIGHTS)


def tells(path: str) -> bool:
    """Return True if an artifact with this path is, or may be, a model."""
    return path == ABOUT or has(path)

"""Paths by which an artifact is a model: files with weights, and the note of where they come from."""

from __future__ import annotations

#: Endings of files with weights that are no code.
WEIGHTS = (".gguf", ".safetensors")
#: The file of a model that says where it comes from.
ABOUT = ".cluster-model.json"


def has(path: str) -> bool:
    """Return True for the path of a file with weights."""
    return path.lower().endswith(WEIGHTS)


def tells(path: str) -> bool:
    """Return True for a path by which its artifact is a model, or may be one."""
    return path == ABOUT or has(path)

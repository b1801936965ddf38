"""Recognize the files that make an artifact a model: weight files, and the file that names their source."""

from __future__ import annotations

#: Suffixes of weight files that cannot contain code.
WEIGHTS = (".gguf", ".safetensors")
#: Path of the file that names a model's source.
ABOUT = ".cluster-model.json"


def is_weight_file(path: str) -> bool:
    """Return True if the path is a weight file."""
    return path.lower().endswith(WEIGHTS)


def marks_model(path: str) -> bool:
    """Return True if a file with this path can make its artifact a model."""
    return path == ABOUT or is_weight_file(path)

"""Texts in the folders of engines: what a replica is given of them, since it has no such folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

SERVER, BATCH, PACKAGES = "server.py", "batch.py", "requirements.txt"


@lru_cache
def text(engine: str, name: str) -> str:
    """Return a file of an engine's folder."""
    return (Path(__file__).parent / engine / name).read_text()

"""A small separate file system for tests that fill a disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(at: Path, mib: int) -> Iterator[Path]:
    """Mount a file system of this many MiB of memory at a new folder; skip the test if that is impossible."""
    at.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(at)]
    if shutil.which("mount") is None:
        _cannot_mount("there is no mount")
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        _cannot_mount(done.stderr.strip())
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def _cannot_mount(why: str) -> None:
    if os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(f"a small disk must be mounted here: {why}")
    pytest.skip(f"a small disk cannot be mounted: {why}")


def used_mib(at: Path) -> int:
    """Return how much of it is used."""
    return shutil.disk_usage(at).used >> 20

"""Lanes of CPU workers, found among the processes of a machine."""

from __future__ import annotations

import contextlib

import psutil


def lanes(worker: int) -> list[psutil.Process]:
    """Return the lanes of a worker: the children of its fork server, or those that the worker has spawned."""
    found: list[psutil.Process] = []
    for child in psutil.Process(worker).children():
        with contextlib.suppress(psutil.Error):  # the process has exited
            command = " ".join(child.cmdline())
            found += child.children() if "multiprocessing.forkserver" in command else []
            found += [child] if "multiprocessing.spawn" in command else []
    return found

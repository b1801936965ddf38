"""Replicas of engines, started like a runner starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from jobs.kinds.service.launch import arguments
from runner.replicas.probing import Probe, endpoint
from tests import fetch


@contextmanager
def running(
    words: Sequence[str], env: Mapping[str, str], folder: Path, python: str = sys.executable
) -> Iterator[tuple[httpx.Client, str]]:
    """Start a replica like a runner, and yield a client with its key."""
    at = endpoint("127.0.0.1")
    filled = {"port": str(at.port), "address": at.address, "python": python}
    own = {"CLUSTER_PORT": filled["port"], "CLUSTER_ADDRESS": at.address, "CLUSTER_KEY": at.key}
    ready, argv = threading.Event(), arguments({"command": list(words)}, filled)
    with (
        subprocess.Popen(argv, cwd=folder, env={"PATH": os.defpath, **env, **own}) as process,
        fetch.client(
            base_url=f"http://127.0.0.1:{at.port}", headers={"Authorization": f"Bearer {at.key}"}, timeout=60
        ) as client,
    ):
        probe = Probe(at, "/health", 120.0, lambda state, _: ready.set() if state == "ready" else None)
        probe.start()
        try:
            assert ready.wait(120), "it is not ready within two minutes"
            yield client, at.key
        finally:
            probe.stop()
            process.terminate()

"""A local cluster as people start it, from a copy of this checkout, and what its processes take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from deploy.local import processes
from tests import kernels, packages
from tests.ports import free_port

START_SECONDS = 300
#: Seconds for which jobs that nobody deletes are kept, so that Redis holds as many after a minute as after days.
RESULT_SECONDS = 60
#: Keys with a fixed number of entries at most, which take an hour to fill.
BOUNDED = ("ct:events", "ct:spans", "ct:span", "ct:history", "ct:history:now")
#: Words of a command line -> what the process is; the first that fits.
_NAMES = (
    ("forkserver", "lane"),
    ("resource_tracker", "tracker of lanes"),
    ("supervisord", "supervisord"),
    ("redis-server", "redis"),
    ("deploy.local.processes", "guard"),
    ("deploy.local run", "starter"),
    ("-m coordinator", "coordinator"),
    ("-m cpu_worker", "cpu worker"),
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Figures of one process at one moment."""

    name: str
    pid: int
    #: Resident memory in bytes.
    memory: int
    handles: int


class LocalCluster:
    """The cluster in a folder; `url` answers once `running` yields it."""

    def __init__(self, folder: Path, starter: subprocess.Popen[bytes], port: int) -> None:
        self.folder, self.starter, self.url = folder, starter, f"http://127.0.0.1:{port}"
        self._redis: redis.Redis | None = None

    def ready(self) -> bool:
        """Return True when it is up. RuntimeError when it has ended."""
        if self.starter.poll() is not None:
            raise RuntimeError(f"the cluster did not start:\n{self.said()}")
        return "The cluster is up" in self.said()

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def redis(self) -> redis.Redis:
        """Return a client that may do everything."""
        if self._redis is None:
            settings = (self.folder / ".cluster" / "redis.conf").read_text()
            port = re.search(r"^port (\d+)", settings, re.MULTILINE)
            password = re.search(r"^user operator on >(\w+)", settings, re.MULTILINE)
            assert port and password
            self._redis = redis.Redis(port=int(port[1]), username="operator", password=password[1])
        return self._redis

    def redis_memory(self) -> int:
        """Bytes that Redis uses, without the keys that fill up to a bound."""
        bounded = sum(self.redis().memory_usage(key, samples=0) or 0 for key in BOUNDED)
        return int(self.redis().info("memory")["used_memory"]) - bounded

    def samples(self) -> list[Sample]:
        """Look at every process of the cluster."""
        found = []
        for process in [psutil.Process(self.starter.pid), *processes.find_marked(f"@{self.folder / '.cluster'}")]:
            try:
                line = " ".join(process.cmdline())
                name = next((name for words, name in _NAMES if words in line), line[:40])
                memory, handles = process.memory_info().rss, process.num_fds()
            except psutil.Error:
                continue
            found.append(Sample(name=name, pid=process.pid, memory=memory, handles=handles))
        return found


def _copy(folder: Path) -> None:
    for name in packages.ALL:
        shutil.copytree(packages.TOP / name, folder / name, ignore=packages.ignore_unfinished)


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[LocalCluster]:
    """Run a cluster of one coordinator and one worker in an empty folder."""
    _copy(folder)
    port = free_port()
    command = [sys.executable, "-m", "deploy.local", "run", "--no-samples", "--no-runner", "--port", str(port)]
    settings = {"RESULT_TTL": str(RESULT_SECONDS), "METRICS_PORT": "0", **kernels.ENVIRONMENT, **environment}
    with (folder / "said").open("wb") as said:
        starter = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **settings}, stdout=said, stderr=said, start_new_session=True
        )
    cluster = LocalCluster(folder, starter, port)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not cluster.ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster is not up after {START_SECONDS} s:\n{cluster.said()}")
            time.sleep(0.2)
        yield cluster
    finally:
        if cluster._redis is not None:
            cluster._redis.close()
        starter.terminate()
        starter.wait(90)
        processes.stop_marked(f"@{folder / '.cluster'}")

"""The cluster of a chaos campaign: real processes whose logs, clocks and network can fail."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.integration.live import TOP, Live, until
from tests.integration.proxy import Proxy
from tests.lanes import lanes
from tests.redis_servers import server_of

#: Token for API requests, which programs require.
TOKEN = "a-token-of-those-who-torment"
#: Number of slots of the runner.
SLOTS = 2
#: Environment variable of every process of a bench, which identifies the process even if its parent exits.
MARK = "CHAOS_BENCH"
#: Interval in seconds for measuring the size of Redis' log.
_SAMPLE_SECONDS = 0.02


def faketime() -> str | None:
    """Return the path of libfaketime, which changes a process's clock, or None if it is not installed."""
    return next((str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


def another_clock(offset: int) -> dict[str, str]:
    """Return the environment of a Python process whose clock is ahead by some seconds. Durations are not affected."""
    path = ":".join(map(str, (Path(__file__).parent / "clock", TOP / "tests" / "kinds", TOP)))
    return {
        "LD_PRELOAD": faketime() or "",
        "FAKETIME": f"{offset:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": path,
    }


class Bench(Live):
    """Two coordinators, a runner and workers with one lane each; worker-0 reaches Redis through the proxy."""

    def __init__(self, folder: Path, *, version: str, workers: int) -> None:
        self.mark = uuid.uuid4().hex
        server = server_of(version)
        assert server, f"there is no Redis {version} here"
        marked: dict[str, Any] = {
            MARK: self.mark,
            "CLUSTER_TOKEN": TOKEN,
            "ARTIFACT_URL": f"file://{folder / 'artifacts'}",
        }
        super().__init__(folder, workers=workers, lanes=1, coordinators=2, redis_server=server, **marked)
        self.data = folder / "data"
        self.data.mkdir()
        self.proxy = Proxy(self.redis_port)
        #: Seconds by which each worker's clock is ahead.
        self.offsets: dict[str, int] = {}
        #: Settings of workers without access to Redis, keyed by worker name.
        self._remotes: dict[str, dict[str, str]] = {}
        #: Length of each worker's log when the worker was started.
        self._logged: dict[str, int] = {}
        #: Times at which Redis was killed, with the seconds of its log that were removed.
        self.deaths: list[tuple[float, float]] = []
        #: Times, inodes and sizes of the file to which Redis has appended since its start.
        self.sampled_sizes: deque[tuple[float, int, int]] = deque(maxlen=2000)
        self._over = threading.Event()
        self.sampler = threading.Thread(target=self._sample, name="sampler", daemon=True)

    def start(self) -> Bench:
        self.sampler.start()
        self.proxy.start()
        super().start()
        self.start_runner()
        self.wait_ready(self.workers + 1)
        return self

    def stop(self) -> None:
        super().stop()
        self._over.set()
        if self.sampler.is_alive():
            self.sampler.join()
            self.proxy.stop()

    # -- processes --------------------------------------------------------------------------------------------------

    def start_redis(self) -> None:
        options = f"--port {self.redis_port} --bind 127.0.0.1 --appendonly yes --appendfsync everysec".split()
        # A process that ignores SIGXFSZ gets an error from the write, as with a full disk.
        self.sampled_sizes.clear()
        patient = ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", str(self.binary)]
        self.start_process("redis", [*patient, *options, *self.users(), "--save", "", "--dir", str(self.data)])
        until(lambda: self.redis().ping())

    def start_worker(
        self, number: int = 0, lanes: int | None = None, *, over_api: bool | None = None, **more: str
    ) -> None:
        name = f"worker-{number}"
        own = {"WORKER_ID": name, "WORKER_THREADS": str(lanes or self.lanes), "METRICS_PORT": "0"}
        if number == 0:
            own["REDIS_URL"] = self.redis_url("worker", self.proxy.port)
        if offset := self.offsets.get(name):
            own |= another_clock(offset)
        log = self.folder / f"{name}.log"
        self._logged[name] = log.stat().st_size if log.exists() else 0
        self.start_process(name, [sys.executable, "-m", "cpu_worker"], **own, **more)

    def start_runner(self, number: int = 0, slots: int | None = None, user: int | None = None, **more: str) -> None:
        name = f"runner-{number}"
        if offset := self.offsets.get(name):
            more |= another_clock(offset)
        log = self.folder / f"{name}.log"
        self._logged[name] = log.stat().st_size if log.exists() else 0
        super().start_runner(number, slots or SLOTS, user, **more)

    def ready(self, worker: str) -> bool:
        """Return True if the log of a worker says since its start that its lanes are warm. Redis may be down."""
        said = "ready" if worker.startswith("runner") else "kernels ready"
        return f'"message": "{said}"'.encode() in (self.folder / f"{worker}.log").read_bytes()[self._logged[worker] :]

    def remote(self, name: str) -> dict[str, str]:
        """Return the settings of a worker without access to Redis. The worker keeps its token when it is restarted."""
        if name not in self._remotes:
            self._remotes[name] = super().remote(name)
        return self._remotes[name]

    def start_again(self, name: str) -> None:
        """Start a killed process. Waits only for Redis."""
        part, _, number = name.partition("-")
        start: dict[str, Callable[[int], None]] = {
            "redis": lambda _: self.start_redis(),
            "worker": self.start_worker,
            "runner": self.start_runner,
            "coordinator": self.run_coordinator,
        }
        start[part](int(number or 0))

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    def lanes_of(self, worker: str) -> list[int]:
        """Return the PIDs of a worker's lanes, or of the guards of a runner's programs."""
        if not worker.startswith("runner"):
            return [lane.pid for lane in lanes(self.pid(worker))]
        found = []
        for child in psutil.Process(self.pid(worker)).children():
            with suppress(psutil.Error):  # the process has exited
                found += [child.pid] * ("runner.programs.guard" in " ".join(child.cmdline()))
        return found

    def all_processes(self) -> dict[int, psutil.Process]:
        """Return all running processes of this bench, even those whose parent has exited."""
        found = {}
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = process
            except psutil.Error:
                continue
        return found

    # -- Redis' log and disk ----------------------------------------------------------------------------------------

    def log_file(self) -> Path | None:
        """Return the file to which Redis appends: from Redis 7 on, the one with the highest number."""
        parts = [*self.data.glob("appendonly.aof"), *self.data.glob("appendonlydir/*.incr.aof")]
        return max(parts, key=lambda path: (len(path.name), path.name), default=None)

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            path = self.log_file()
            with suppress(FileNotFoundError):  # Redis has just replaced the file by a rewritten one
                if path:
                    state = path.stat()
                    self.sampled_sizes.append((time.monotonic(), state.st_ino, state.st_size))

    def cut_log(self, seconds: float) -> int:
        """Kill Redis, remove what it wrote in its last seconds, and return the number of removed bytes."""
        died = time.monotonic()  # before the kill, because a busy machine takes time to stop Redis
        self.kill("redis")
        path, sizes = self.log_file(), list(self.sampled_sizes)
        assert path, "Redis has no log"
        self.deaths.append((died, seconds))
        file, whole = path.stat().st_ino, path.stat().st_size
        before = [size for at, sampled, size in sizes if sampled == file and at <= died - seconds]
        least = min((size for _, sampled, size in sizes if sampled == file), default=whole)
        kept = min(whole, before[-1] if before else least)
        os.truncate(path, kept)
        return whole - kept

    def limit_files(self, more: int | None) -> None:
        """Limit the growth of Redis' files to some bytes, as a full disk does. None removes the limit."""
        path = self.log_file()
        size = resource.RLIM_INFINITY if more is None or path is None else path.stat().st_size + more
        resource.prlimit(self.pid("redis"), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

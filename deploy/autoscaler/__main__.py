"""Autoscaler that starts and stops worker containers. Run it with `python -m deploy.autoscaler`.

The leading coordinator chooses the number of workers between AUTOSCALE_MIN and AUTOSCALE_MAX.
deploy/docker/autoscale.py plans each round, as it does for ./deploy-cluster.sh autoscale. Workers outside the pool are
counted, but never started or stopped.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from deploy.autoscaler.pool import Containers, EngineError, Pool
from deploy.docker import autoscale
from deploy.docker.autoscale import Cluster, Worker

API = "http://coordinator:3000/api"
ROUND_SECONDS = 3
#: File that each round of the autoscaler touches, for the container's health check.
_HEARTBEAT = Path("/tmp/heartbeat")


class WorkerPool(Protocol):
    """Pool of worker containers. Its methods raise EngineError if they fail."""

    def containers(self) -> Containers:
        """Return the containers in the pool."""
        ...

    def start(self, container: str) -> None:
        """Start the container of a worker."""
        ...

    def stop(self, container: str) -> None:
        """Stop the container of a worker, and wait until it has exited."""
        ...


class Autoscaler:
    """Adjusts the number of running workers to the required number, in rounds."""

    def __init__(self, cluster: Cluster, pool: WorkerPool) -> None:
        self._cluster = cluster
        self._pool = pool
        #: IDs of the containers that were running during the last round.
        self._running: list[str] = []
        self._trouble = ""

    def run_round(self) -> None:
        """Run one round. An error is logged only once, and the next round tries again."""
        try:
            trouble = self._round()
        except EngineError as error:
            trouble = f"No worker was started or stopped: {error}"
        except LookupError:
            trouble = "No worker was started or stopped: no coordinator has calculated the number of needed workers yet"
        except (OSError, ValueError) as error:
            trouble = f"No worker was started or stopped: the API does not answer: {error}"
        if trouble != self._trouble:
            _log(trouble or "The autoscaler works again.")
        self._trouble = trouble

    def _round(self) -> str:
        """Run one round, and return a description of the remaining problem or ""."""
        seen = self._pool.containers()
        self._running = seen.running
        total, workers = autoscale.desired_cpu_workers(self._cluster.status()), self._cluster.workers()
        chosen = autoscale.plan(autoscale.count_needed(seen.running, total, workers), seen.running, workers)
        for name in chosen.drain:
            _log(f"{total} workers needed: draining {name}")
            self._cluster.drain(name, True)
        for name in chosen.resume:
            _log(f"{total} workers needed: resuming {name}")
            self._cluster.drain(name, False)
        for container in chosen.stop:
            _log(f"{total} workers needed: stopping container {container[:12]}, which has finished its leases")
            self._stop(container, workers)
        return self._start(total, chosen.containers - len(seen.running), seen.stopped)

    def _stop(self, container: str, workers: Iterable[Worker]) -> None:
        self._pool.stop(container)
        # A worker keeps its name when its container starts again, and would otherwise still be draining.
        for row in workers:
            if row["draining"] and row["id"].startswith(f"{container[:12]}-"):
                self._cluster.drain(row["id"], False)

    def _start(self, total: int, missing: int, stopped: Sequence[str]) -> str:
        for container in stopped[:missing]:
            _log(f"{total} workers needed: starting container {container[:12]}")
            self._pool.start(container)
        lacking = missing - len(stopped)
        why = f"The pool lacks {lacking} workers: increase AUTOSCALE_MAX, then run ./deploy-cluster.sh docker"
        return why * (lacking > 0)

    def resume_workers(self) -> None:
        """Resume draining workers when this process exits, because nothing would stop their containers."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            for line in autoscale.resume_workers(self._cluster, self._running):
                _log(line)


def _log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def main() -> int:
    """Adjust the number of workers until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    follower = Autoscaler(autoscale.Api(API), Pool())
    _log("Adjusting the number of workers to the number needed.")
    try:
        while True:
            follower.run_round()
            _HEARTBEAT.touch()
            time.sleep(ROUND_SECONDS)
    except KeyboardInterrupt:
        follower.resume_workers()
    return 0


if __name__ == "__main__":
    sys.exit(main())

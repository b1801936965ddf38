"""Autoscaler: follows the workers that are needed with the pool that Compose created. `python -m deploy.autoscaler`

The leading coordinator chooses the number, within AUTOSCALE_MIN and AUTOSCALE_MAX. What follows from it is chosen by
deploy/docker/autoscale.py, as for ./deploy-cluster.sh autoscale. Workers outside of the pool count and are left alone.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from deploy.autoscaler.pool import Containers, EngineAway, Pool
from deploy.docker import autoscale
from deploy.docker.autoscale import Cluster, Worker

API = "http://coordinator:3000/api"
ROUND_SECONDS = 3
#: Touched in each round, for the health check.
_HEARTBEAT = Path("/tmp/heartbeat")


class Hand(Protocol):
    """Starts and stops workers. EngineAway when it cannot."""

    def containers(self) -> Containers:
        """Return the workers of the pool."""
        ...

    def start(self, container: str) -> None:
        """Start a worker."""
        ...

    def stop(self, container: str) -> None:
        """Stop a worker and wait for its end."""
        ...


class Follower:
    """Brings the pool to the number of workers that is needed, a round at a time."""

    def __init__(self, cluster: Cluster, pool: Hand) -> None:
        self._cluster = cluster
        self._pool = pool
        #: Containers that ran when last seen.
        self._running: list[str] = []
        self._trouble = ""

    def attempt(self) -> None:
        """Do a round; what keeps it from its end is said once, and the next round goes on."""
        try:
            trouble = self._round()
        except EngineAway as error:
            trouble = f"nothing is changed: {error}"
        except LookupError:
            trouble = "nothing is changed: no coordinator has counted the workers that are needed yet"
        except (OSError, ValueError) as error:
            trouble = f"nothing is changed: the API does not answer: {error}"
        if trouble != self._trouble:
            _say(trouble or "it goes on")
        self._trouble = trouble

    def _round(self) -> str:
        """Return what is still wrong when all was done that can be."""
        seen = self._pool.containers()
        self._running = seen.running
        total, workers = autoscale.total_of(self._cluster.status()), self._cluster.workers()
        chosen = autoscale.plan(autoscale.count_needed(seen.running, total, workers), seen.running, workers)
        for name in chosen.drain:
            _say(f"{total} needed: {name} takes nothing new")
            self._cluster.drain(name, True)
        for name in chosen.resume:
            _say(f"{total} needed: {name} works again")
            self._cluster.drain(name, False)
        for container in chosen.stop:
            _say(f"{total} needed: {container[:12]} has ended its leases and stops")
            self._stop(container, workers)
        return self._start(total, chosen.containers - len(seen.running), seen.stopped)

    def _stop(self, container: str, workers: Iterable[Worker]) -> None:
        self._pool.stop(container)
        # Started again it has the same name, and would still drain.
        for row in workers:
            if row["draining"] and row["id"].startswith(f"{container[:12]}-"):
                self._cluster.drain(row["id"], False)

    def _start(self, total: int, missing: int, stopped: Sequence[str]) -> str:
        for container in stopped[:missing]:
            _say(f"{total} needed: {container[:12]} starts")
            self._pool.start(container)
        lacking = missing - len(stopped)
        return f"the pool lacks {lacking} workers: set AUTOSCALE_MAX, then ./deploy-cluster.sh docker" * (lacking > 0)

    def end(self) -> None:
        """Let workers that drain go on, since nobody would stop them."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            for line in autoscale.release(self._cluster, self._running):
                _say(line)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def main() -> int:
    """Follow until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    follower = Follower(autoscale.Api(API), Pool())
    _say("following the workers that are needed")
    try:
        while True:
            follower.attempt()
            _HEARTBEAT.touch()
            time.sleep(ROUND_SECONDS)
    except KeyboardInterrupt:
        follower.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())

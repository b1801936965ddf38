"""Tests a rolling update with workers of two versions of a kind, whose partials must never be combined."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from tests import fetch
from tests.integration.live import Live, until

#: Program that runs a service whose kind `faulty` has another version.
SERVICE = """
import sys
from jobs.kinds.faulty.definition import Faulty
Faulty.model_version = {version}
from {service}.__main__ import main
sys.exit(main())
"""
SECONDS = 120


def start(live: Live, service: str, name: str, version: int, **own: str) -> None:
    command = [sys.executable, "-c", SERVICE.format(service=service, version=version)]
    live.start_process(name, command, METRICS_PORT="0", **own)


def start_worker(live: Live, number: int, version: int) -> None:
    name = f"worker-{number}"
    start(live, "cpu_worker", name, version, NODE_ID=name, WORKER_THREADS="1")

    def ready() -> bool:
        nodes = live.get("/api/workers")["workers"]
        return any(node["id"] == name and node["live"] and node["state"] != "starting" for node in nodes)

    until(ready, SECONDS)


def waits_because(live: Live, job: str, reason: str) -> bool:
    return reason in (live.job(job)["waiting_because"] or "")


def test_partials_of_two_versions_never_merge_during_a_rolling_update(tmp_path: Path) -> None:
    live = Live(tmp_path, workers=0)
    try:
        live.start()
        start_worker(live, 1, version=1)
        start_worker(live, 2, version=2)  # on a loaded machine it takes longer than the job
        begun = live.submit("faulty", {"units": 900, "seconds_per_unit": 0.01})
        until(lambda: live.job(begun)["done"] > 20)
        live.kill("worker-1")
        small = live.submit("faulty", {"units": 2})
        lacking = "no live worker of its queue computes version 1 of faulty: the workers have version 2"
        for job in (begun, small):
            until(partial(waits_because, live, job, lacking))
        live.kill("coordinator-0")
        start(live, "coordinator", "coordinator-0", 2, COORDINATOR_PORT=str(live.ports[0]))
        until(lambda: fetch.get(f"{live.url()}/ready").status_code == 200, SECONDS)
        new = live.submit("faulty", {"units": 100, "seconds_per_unit": 0.01})
        assert live.result(new, SECONDS) == {"sum": 4950, "count": 100}
        assert live.job(begun)["done"] < 900, "the new worker leaves it alone"
        start_worker(live, 3, version=1)
        assert live.result(begun, SECONDS) == {"sum": sum(range(900)), "count": 900}
        assert live.result(small, SECONDS) == {"sum": 1, "count": 2}
        assert set(live.job(begun)["usage"]["workers"]) == {"worker-1", "worker-3"}
        assert set(live.job(new)["usage"]["workers"]) == {"worker-2"}
    finally:
        live.stop()

"""Composes and runs one CPU worker: `python -m cpu_worker`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from cpu_worker import exporter
from cpu_worker.lane import ChildLane
from cpu_worker.node import Node
from jobs import broker, leases, logs, settings
from jobs.models import Device
from jobs.serving import Beats, LaneDied, Server

log = logging.getLogger("cpu_worker")


def start_lanes(count: int) -> list[ChildLane]:
    """Children, warm. The first compiles alone, so that the others find its work in the cache."""
    first = ChildLane("0")
    log.info("kernels ready", extra={"seconds": first.warm_up()})
    rest = [ChildLane(str(number)) for number in range(1, count)]
    for lane in rest:
        lane.warm_up()
    return [first, *rest]


def facts(server: Server, node: Node, lanes: int) -> dict[str, str | int | float]:
    """What the worker says of itself each second."""
    busy = server.busy()
    state = "busy" if busy else "idle"
    if server.draining:
        state = "draining" if busy else "drained"
    job = server.slot.facts.job_id if server.slot else ""
    rates = {kind: round(rate, 3) for kind, rate in dict(server.rates).items()}
    return {
        "device": Device.CPU, "state": state, "lanes": lanes, "busy_lanes": busy, "job": job, "pid": os.getpid(),
        "rates": json.dumps(rates), **node.figures(),
    }  # fmt: skip


def sign_of_life(file: str) -> Callable[[], None]:
    """What a heartbeat leaves for a health check to look at."""
    return Path(file).touch if file else lambda: None


def wait_for_redis(url: str) -> leases.Client:
    client = broker.connect(url)
    while True:
        try:
            broker.place_bells(client)
            return client
        except leases.Unreachable as error:
            log.warning("waiting for redis at %s: %s", url.rpartition("@")[2], error)
            time.sleep(1)


def run(chosen: settings.Settings) -> int:
    worker = chosen.worker_name()
    client = wait_for_redis(chosen.redis_url)
    book, born = leases.Leases(client), f"{time.time_ns() // 1_000_000:013d}-{uuid.uuid4().hex[:8]}"
    node, lanes = Node(), chosen.lanes()
    starting = {"device": Device.CPU, "state": "starting", "lanes": lanes, "pid": os.getpid(), **node.figures()}
    book.heartbeat(worker, born, starting)
    try:
        children = start_lanes(lanes)
    except LaneDied as error:
        log.error("%s while its kernels were compiled; see the lines above", error)
        return 1
    server = Server(book, worker, Device.CPU, children)

    def name_taken() -> None:
        log.error("another worker runs under the name %s; give each its own NODE_ID", worker)
        os.kill(os.getpid(), signal.SIGTERM)

    own = leases.Leases(broker.connect(chosen.redis_url, retries=1))
    sign = sign_of_life(chosen.heartbeat_file)
    beats = Beats(own, server, born, lambda: facts(server, node, lanes), name_taken, sign)
    beats.start()
    stop_metrics = exporter.serve(chosen.bind, chosen.metrics_port)
    log.info("ready", extra={"lanes": lanes})
    try:
        bells = broker.connect(chosen.redis_url, retries=0, timeout=None)
        broker.listen(
            lambda: broker.BellWorker(server.listened, bells, server.serve, server.stop), lambda: server.stopping
        )
    finally:  # else the children, which ignore signals, would keep a broken worker from ending
        server.stop()
        server.settle_down()
        beats.end()
        stop_metrics()
        for child in children:
            child.close()
    log.info("stopped")
    return 0


def main() -> int:
    chosen = settings.load()
    logs.configure(chosen.log_level, service="cpu-worker", worker=chosen.worker_name())
    return run(chosen)


if __name__ == "__main__":
    sys.exit(main())

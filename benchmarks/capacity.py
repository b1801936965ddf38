"""How much a cluster takes: bytes of Redis a job, a worker and an event; memory and handles a listener.

python -m benchmarks.capacity     # two minutes; prints the table of docs/operations.md
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.__main__ import machine
from tests.integration.live import Live, running, until

JOBS, BATCH, LISTENERS = 10_000, 500, 500
STATISTICS = {"start_number": 1_000_000_000, "number_count": 1000}
#: Keys that hold no more than a fixed number of entries, whatever a cluster does.
BOUNDED = ("ct:events", "ct:spans", "ct:span", "ct:history", "ct:history:now")


def used(live: Live) -> int:
    """Bytes that Redis uses, without the keys that do not grow with the number of jobs."""
    client = live.redis()
    bounded = sum(client.memory_usage(key, samples=0) or 0 for key in BOUNDED)
    return int(client.info("memory")["used_memory"]) - bounded


def submit(live: Live, count: int, key: str = "") -> None:
    bodies = [{"type": "collatz", "parameters": STATISTICS} for _ in range(BATCH)]
    for number in range(0, count, BATCH):
        keyed = [body | {"idempotency_key": f"{key}-{number + place:08d}"} for place, body in enumerate(bodies)]
        assert live.post("/api/submit-batch", {"jobs": keyed if key else bodies}).status_code < 300


def jobs_in(live: Live, state: str) -> int:
    return int(live.get("/api/status")["jobs"].get(state, 0))


def job_rows(live: Live) -> Iterator[tuple[str, float]]:
    before = used(live)
    submit(live, JOBS)
    queued = used(live)
    yield "a queued job (collatz statistics)", (queued - before) / JOBS
    submit(live, JOBS, key="capacity")
    yield "the same with an idempotency key, which is kept for a day", (used(live) - queued) / JOBS
    live.start_worker()
    live.wait_ready(1)
    until(lambda: jobs_in(live, "done") == 2 * JOBS, 600, 1.0)
    time.sleep(2)
    yield "a finished job with its result, until RESULT_TTL has passed", (used(live) - before) / (2 * JOBS)


def worker_row(live: Live) -> tuple[str, float]:
    client = live.redis()
    names = [*client.scan_iter("ct:worker:*"), *client.scan_iter("rq:worker:*")]
    return "a worker with two lanes", float(sum(client.memory_usage(name) or 0 for name in names))


def event_row(live: Live) -> tuple[str, float]:
    client = live.redis()
    size = client.memory_usage("ct:events", samples=0) or 0
    return "an event, at most about 100,000", size / client.xlen("ct:events")


@contextlib.contextmanager
def listeners(port: int, count: int) -> Iterator[None]:
    """Connections that have begun to receive the stream of events, and read no further."""
    request = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(request)
            assert connection.recv(15).startswith(b"HTTP/1.1 200")
        yield


def listener_rows(live: Live) -> Iterator[tuple[str, float]]:
    coordinator = psutil.Process(live.processes["coordinator-0"].pid)
    memory, handles = coordinator.memory_info().rss, coordinator.num_fds()
    with listeners(live.ports[0], LISTENERS):
        time.sleep(2)
        yield "a listener to events: bytes of its coordinator", (coordinator.memory_info().rss - memory) / LISTENERS
        yield "a listener to events: open files of its coordinator", (coordinator.num_fds() - handles) / LISTENERS


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), workers=0) as live:
        empty = used(live)
        print(f"{machine()}, Redis {live.redis().info('server')['redis_version']}\n\n| what | takes |\n| --- | --- |")
        print(f"| an empty cluster | {empty:,} |")
        for what, figure in (*job_rows(live), worker_row(live), event_row(live), *listener_rows(live)):
            print(f"| {what} | {figure:,.0f} |", flush=True)
        for name, process in live.processes.items():
            whole = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            memory = sum(one.memory_info().rss for one in whole) / 1e6
            print(f"| resident memory of {name} and its children, MB | {memory:.0f} |")


if __name__ == "__main__":
    main()

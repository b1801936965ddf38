"""Tests the edge of a real coordinator: access control, and requests that are too large, too slow or aborted."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection

import httpx
import psutil
import pytest

from tests import fetch
from tests.integration.live import Live, running, until


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Start one coordinator with Redis and without workers."""
    with running(tmp_path_factory.mktemp("edge"), workers=0) as live:
        yield live


def test_a_page_of_somebody_else_neither_drives_nor_reads_the_cluster(coordinator: Live) -> None:
    with fetch.client(base_url=coordinator.url()) as http:
        simple = {"Origin": "http://evil.example", "Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}
        job = '{"type": "collatz", "parameters": {"start_number": 1, "number_count": 10}}'
        for content, headers in ((job, simple), (job, simple | {"Content-Type": "application/json"})):
            assert http.post("/api/submit", content=content, headers=headers).status_code in (403, 415)
        assert http.post("/api/workers/worker-0/drain", headers={"Origin": "http://evil.example"}).status_code == 403
        told = http.get("/api/status", headers={"Host": "evil.example"})
        assert told.status_code == 403 and "ALLOWED_HOSTS" in told.json()["detail"]
        assert http.get("/health", headers={"Host": "10.0.0.7"}).status_code == 200
        assert http.get("/api/jobs").json()["jobs"] == []
        assert http.post("/api/submit", content=job, headers={"Content-Type": "application/json"}).status_code == 202


# -- bombs ------------------------------------------------------------------------------------------------------------

JOB = '{"type":"collatz","parameters":{"start_number":"%s","number_count":1}}'


def filled(inside: str, size: int = 15 << 20) -> bytes:
    """Return a batch of repeated copies of `inside`."""
    return f'{{"jobs":[{",".join([inside] * (size // (len(inside) + 1)))}]}}'.encode()


def bombs() -> list[bytes]:
    """Valid JSON below 16 MiB with many digits, values, keys or texts, and with many invalid jobs."""
    keys = ",".join(f'"{number}":0' for number in range(1_300_000))
    some_keys = ",".join(f'"{number}":0' for number in range(140))
    return [
        filled("7" * 100_000),
        filled("7" * 4300),
        filled("[]"),
        filled("0"),
        filled('{"type":{}}'),
        f'{{"jobs":[{{{keys}}}]}}'.encode(),
        filled(JOB % ("9" * 90_000)),
        '{"jobs":["\N{GRINNING FACE}'.encode() + b"x" * (15 << 20) + b'"]}',
        f'{{"jobs":[{{"type":"collatz","parameters":{{"mode":[{",".join(["[]"] * 74_000)}]}}}}]}}'.encode(),
        f'{{"jobs":[{",".join([f"{{{some_keys}}}"] * 1000)}]}}'.encode(),
    ]


class Watch:
    """The longest time that /health took and the most memory, while the block runs.

    Time is the coordinator's own where that is less than the clock's: on a machine that is busy with other things, the
    clock tells of those.
    """

    def __init__(self, live: Live) -> None:
        self._url = live.url()
        self._process = psutil.Process(live.processes["coordinator-0"].pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds, self.by_clock, self.memory, self.asked = 0.0, 0.0, 0, 0

    def _worked(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as http:
            while not self._ended.wait(0.02):
                began, worked = time.monotonic(), self._worked()
                assert http.get("/health").status_code == 200
                self.seconds = max(self.seconds, min(time.monotonic() - began, self._worked() - worked))
                self.by_clock = max(self.by_clock, time.monotonic() - began)
                self.memory = max(self.memory, self._process.memory_info().rss)
                self.asked += 1

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_bombs_neither_stop_nor_fill_a_coordinator(coordinator: Live) -> None:
    def ask(method: str, path: str, body: bytes | None = None) -> int:
        # Not httpx: 70 of its clients read certificates for seconds, and the watch would wait for them.
        http = HTTPConnection("127.0.0.1", coordinator.ports[0], timeout=120)
        http.request(method, path, body, {"Content-Type": "application/json"})
        status = http.getresponse().status
        http.close()
        return status

    def post(body: bytes) -> int:
        return ask("POST", "/api/submit-batch", body)

    def star(_: int) -> int:
        return ask("GET", f"/api/history?names={'*' * 14}X")

    bodies = bombs()
    assert all(len(body) <= 16 << 20 for body in bodies)
    with ThreadPoolExecutor(70) as pool, Watch(coordinator) as watch:
        posted, read = pool.map(post, bodies * 2), pool.map(star, range(50))
        answers = [*posted, *read]
    print(
        f"/health {watch.seconds:.2f} s, by the clock {watch.by_clock:.2f}, of {watch.asked}; {watch.memory >> 20} MB"
    )
    assert set(answers[:20]) <= {200, 400, 413, 422} and set(answers[20:]) <= {200, 422}
    assert watch.asked >= 5, "the bombs ended before anybody looked"
    assert watch.memory <= 400 << 20
    assert watch.seconds <= 1 and watch.by_clock <= 15


# -- requests that do not end ------------------------------------------------------------------------------------------


def connected(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.ports[0]), timeout=40)


def heard(connection: socket.socket) -> bytes:
    """Return all bytes received until the connection is closed."""
    text = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            text += piece
    return text


def are_counted(coordinator: Live, route: str) -> bool:
    """Return True if the metrics count the 404 responses."""
    return f'route="{route}",status="404"' in coordinator.metrics()


def test_figures_name_routes_as_the_description_does(coordinator: Live) -> None:
    coordinator.post("/api/jobs/nosuch/cancel")
    fetch.get(coordinator.url() + "/api/jobs/nosuch")
    for route in ("/api/jobs/{job_id}/{verb}", "/api/jobs/{job_id}"):  # counted once they are answered
        until(partial(are_counted, coordinator, route))


def test_a_client_that_goes_away_in_mid_body_is_no_fault_of_ours(coordinator: Live) -> None:
    before = len(coordinator.log("coordinator-0"))
    with connected(coordinator) as half:
        half.sendall(b"POST /api/submit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        half.sendall(b"Content-Length: 1000\r\n\r\n{")
        time.sleep(0.3)
    log = until(lambda: '"status": 499' in (new := coordinator.log("coordinator-0")[before:]) and new)
    assert "Traceback" not in log and '"status": 500' not in log


@pytest.mark.parametrize("head", [b"X-A: " + b"a" * (32 << 20), b"X-A: a\r\n" * 20_000, b"X: " + b"a" * 70_000])
def test_a_head_is_bounded(coordinator: Live, head: bytes) -> None:
    process = psutil.Process(coordinator.processes["coordinator-0"].pid)
    before = process.cpu_times().user
    with connected(coordinator) as large, contextlib.suppress(ConnectionError):
        large.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        large.sendall(head)
        large.sendall(b"\r\n\r\n")
        said = heard(large)
        assert not said or said.startswith(b"HTTP/1.1 431 ")
    assert process.cpu_times().user - before < 1
    assert fetch.get(coordinator.url() + "/health", headers={"X-A": "a" * 60_000}).status_code == 200

"""Tests live events as a listener receives them: in order, once after any reconnection, and with invalid positions."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import fetch
from tests.integration.live import Live, until

#: Delay in seconds of the second replica's events while it lags.
LAG_SECONDS = 2.0


class LateReads:
    """TCP proxy to Redis that delays replies to XREAD by `seconds`."""

    def __init__(self, upstream: int) -> None:
        self.seconds = 0.0
        self._upstream = upstream
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name="late reads", daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._upstream))
                except OSError:
                    near.close()
                    continue
                reading = threading.Event()
                for ends in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._relay, args=(*ends, reading), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, outward: bool, reading: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if outward:
                    (reading.set if b"XREAD" in data else reading.clear)()
                elif reading.is_set():
                    time.sleep(self.seconds)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


class Listener:
    """Context manager that reads an event stream in its own thread."""

    def __init__(self, url: str, last: str = "") -> None:
        self.ids: list[str] = []
        self._url, self._headers = url, {"Last-Event-ID": last} if last else {}
        self._listening, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        assert self._listening.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True

    def _read(self) -> None:
        with contextlib.suppress(httpx.HTTPError), fetch.stream("GET", self._url, headers=self._headers) as stream:
            for line in stream.iter_lines():
                self._listening.set()
                if self._over:
                    return
                if line.startswith("id: "):
                    self.ids.append(line.removeprefix("id: "))

    def hears(self, place: str) -> None:
        until(lambda: place in self.ids)


def position(place: str) -> tuple[int, ...]:
    return tuple(map(int, place.split("-")))


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, LateReads]]:
    """Start two coordinators, the second of which gets events through the proxy, without workers."""
    live = Live(tmp_path_factory.mktemp("events"), workers=0, coordinators=2)
    live.start_redis()
    late = LateReads(live.redis_port)
    try:
        live.start_coordinator(0)
        live.environment["REDIS_URL"] = f"redis://127.0.0.1:{late.port}/0"
        live.start_coordinator(1)
        yield live, late
    finally:
        live.stop()
        late.close()


@pytest.fixture
def happens(replicas: tuple[Live, LateReads]) -> Callable[[str, str], str]:
    """Write an event of a job like the functions, and return its position."""
    client = replicas[0].redis()

    def write(job: str, what: str) -> str:
        state = "running" if what == "progress" else what
        fields = {"job": job, "kind": "faulty", "type": what, "state": state, "done": 5, "total": 100}
        place: bytes = client.xadd("ct:events", fields)
        return place.decode()

    return write


def test_an_event_that_waited_is_not_sent_after_a_later_one(
    replicas: tuple[Live, LateReads], happens: Callable[[str, str], str]
) -> None:
    live, _ = replicas
    url = live.url() + "/api/events"
    with Listener(url) as listener:
        time.sleep(0.3)
        waiting = happens("a" * 16, "progress")
        time.sleep(0.02)
        end = happens("b" * 16, "done")
        listener.hears(waiting)
        listener.hears(end)
    assert listener.ids == sorted(listener.ids, key=position)
    with Listener(url, last=listener.ids[-1]) as again:
        again.hears(happens("b" * 16, "failed"))
    assert not set(again.ids) & set(listener.ids), "a reconnection at the last id repeats nothing"


def test_a_replica_that_lags_does_not_repeat_what_another_has_sent(
    replicas: tuple[Live, LateReads], happens: Callable[[str, str], str]
) -> None:
    live, late = replicas
    late.seconds = LAG_SECONDS
    time.sleep(1.2)  # its XREAD of this moment was sent before
    with Listener(live.url(0) + "/api/events") as listener:
        time.sleep(0.3)
        sent = [happens("a" * 16, "paused"), happens("b" * 16, "done")]
        listener.hears(sent[-1])
    with Listener(live.url(1) + "/api/events", last=sent[-1]) as lagging:
        time.sleep(LAG_SECONDS)
        late.seconds = 0.0
        lagging.hears(happens("a" * 16, "running"))
    assert not set(lagging.ids) & set(sent)


@pytest.mark.parametrize("place", ["99999999999999999999-0", "1-99999999999999999999"])
def test_a_place_beyond_64_bits_breaks_no_stream(replicas: tuple[Live, LateReads], place: str) -> None:
    live, _ = replicas
    job = live.submit("faulty", {"units": 100})
    for path in ("/api/events", f"/api/jobs/{job}/events"):
        with fetch.stream("GET", live.url() + path, headers={"Last-Event-ID": place}) as answer:
            assert answer.status_code == 422
    assert "Traceback" not in live.log("coordinator-0")


def of_hours(live: Live) -> str:
    """Return a running job with as many events as after hours, or nothing if it finished too early."""
    job = live.submit("faulty", {"units": 300, "seconds_per_unit": 0.01})
    until(lambda: live.job(job)["done"] > 0)
    own = f"ct:job:{job}:ev"
    fields = {"job": job, "kind": "faulty", "type": "progress", "state": "running", "done": 20, "total": 300}

    def leave(pipe: Any) -> str:
        """Write events like COMMIT, and try again if the job writes at the same time."""
        [(last, event)] = pipe.xrevrange(own, count=1)
        moment, _, number = last.decode().partition("-")
        pipe.multi()
        if event[b"type"] == b"done":
            return ""
        for more in range(1, 1001):
            pipe.xadd(own, fields, id=f"{moment}-{int(number) + more}", maxlen=1000)
        return job

    left: str = live.redis().transaction(leave, own, value_from_callable=True)
    return left


def test_a_finished_job_keeps_a_few_events_of_a_thousand(tmp_path: Path) -> None:
    live = Live(tmp_path, lanes=1)
    try:
        live.start()
        job = until(lambda: of_hours(live))
        client, own = live.redis(), f"ct:job:{job}:ev"
        live.result(job)
        assert client.memory_usage(own, samples=0) < 20_000
        types = [row[b"type"] for _, row in client.xrange(own)]
        assert types[-1] == b"done" and b"running" in types
    finally:
        live.stop()

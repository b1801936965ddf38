"""Tests the Python client in several threads and in forked processes, with a small HTTP server."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from tests.unit.cluster_fake import complete
from threads_cluster import Cluster
from threads_protocol.answers import fleet

#: Python warns about every fork of a process with threads. The client must survive such a fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Handler(BaseHTTPRequestHandler):
    """Answers with the version of the cluster, or with an event stream whose events wait for `proceed`."""

    protocol_version = "HTTP/1.1"
    #: Client ports of the requests.
    ports: ClassVar[list[int]] = []
    #: Header Last-Event-ID of each stream.
    resumed: ClassVar[list[str | None]] = []
    proceed = threading.Event()

    def do_GET(self) -> None:
        self.ports.append(self.client_address[1])
        if self.path.partition("?")[0].endswith("/events"):
            self._stream()
            return
        version = self.path.rpartition("=")[2] if "=" in self.path else "1"
        body = json.dumps(complete(fleet.Status, version=version)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        last = self.headers["Last-Event-ID"]
        self.resumed.append(last)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if not last:
            self.wfile.write(b'id: 1\ndata: {"state": "queued"}\n\n')
            self.proceed.wait(20)
        self.wfile.write(b'id: 2\ndata: {"state": "done"}\n\n')
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Handler.ports.clear()
    Handler.resumed.clear()
    Handler.proceed.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Handler.proceed.set()
        server.shutdown()
        thread.join()


def test_closing_a_client_ends_the_thread_that_reads_events(url: str) -> None:
    cluster, has_read, earlier = Cluster(url, ""), threading.Event(), set(threading.enumerate())
    cluster.watcher.add("j", lambda state: has_read.set())
    cluster.watcher.enter()
    [thread] = [each for each in set(threading.enumerate()) - earlier if each.name == "cluster-watcher"]
    assert has_read.wait(20)
    cluster.watcher.leave()
    cluster.close()
    thread.join(10)  # The server keeps the stream open for longer
    assert not thread.is_alive()


def in_child(work: Callable[[], Any]) -> Any:
    """Return the result of a function in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def test_threads_share_a_cluster(url: str) -> None:
    with Cluster(url, "") as cluster, ThreadPoolExecutor(8) as threads:
        # Each query has its own URL, so that the cache of URLs overflows while other threads read it
        asked, ask = [str(number) for number in range(300)], cluster.connection.ask
        versions = threads.map(lambda text: ask("GET", "/api/status", patience=0, query=text)["version"], asked)
        assert list(versions) == asked


def test_more_threads_than_idle_connections_can_wait(url: str) -> None:
    started = threading.Barrier(121)

    def wait(cluster: Cluster) -> list[Any]:
        events = cluster.events("j1")
        first = next(events)
        started.wait(20)  # All streams are open at the same time
        return [first["state"], *(event["state"] for event in events)]

    with Cluster(url, "", timeout=20.0) as cluster, ThreadPoolExecutor(120) as threads:
        waiting = [threads.submit(wait, cluster) for _ in range(120)]
        started.wait(20)
        Handler.proceed.set()
        assert all(each.result() == ["queued", "done"] for each in waiting)


def test_a_forked_process_opens_its_own_connection(url: str) -> None:
    with Cluster(url, "") as cluster:
        assert cluster.version() == "1"
        assert in_child(cluster.version) == "1"
        assert cluster.version() == "1"
    parent, child, again = Handler.ports
    assert child != parent and again == parent


def test_a_fork_during_calls_of_other_threads_does_not_block(url: str) -> None:
    with Cluster(url, "") as cluster, ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(cluster.version) for _ in range(100)]
        assert [in_child(cluster.version) for _ in range(3)] == ["1"] * 3
        assert {call.result() for call in calls} == {"1"}


def test_a_stream_continues_in_a_forked_process_without_its_parent(url: str) -> None:
    with Cluster(url, "") as cluster:
        events = cluster.events("j1")
        assert next(events)["state"] == "queued"
        cluster.version()
        assert in_child(lambda: next(events)["state"]) == "done"
        Handler.proceed.set()
        assert next(events)["state"] == "done"
    assert Handler.resumed == [None, "1"]


def test_a_closed_cluster_stays_closed_in_a_forked_process(url: str) -> None:
    with Cluster(url, "") as cluster:
        cluster.version()

    def call() -> str:
        try:
            return cluster.version()
        except RuntimeError as error:
            return str(error)

    assert "closed" in in_child(call)

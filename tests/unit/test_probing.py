"""Tests how a runner checks a replica's health, and when it reports that the replica must be stopped."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from runner.replicas import probing
from runner.replicas.probing import Endpoint, Probe, endpoint
from tests.integration.live import until


class Server:
    """A fake replica whose health the test controls."""

    def __init__(self) -> None:
        self.status = 200
        self.keys: set[str] = set()
        outer = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.keys.add(self.headers["Authorization"])
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.at = Endpoint(address="127.0.0.1", port=self.server.server_address[1], key="k" * 16)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(probing, "READY_SECONDS", 0.02)
    monkeypatch.setattr(probing, "STARTING_SECONDS", 0.02)
    found = Server()
    yield found
    found.server.shutdown()
    found.server.server_close()


class Watched:
    """A probe and the states that it reported."""

    def __init__(self, at: Endpoint, start_seconds: float = 60.0) -> None:
        self.said: list[tuple[str, str]] = []
        self.probe = Probe(at, "/health", start_seconds, lambda state, why: self.said.append((state, why)))
        self.probe.start()

    @property
    def states(self) -> list[str]:
        return [state for state, _ in self.said]


def test_a_replica_becomes_ready_unhealthy_and_ready_again(server: Server) -> None:
    server.status = 503
    watched = Watched(server.at)
    until(lambda: watched.states == ["starting"])
    assert watched.said[0][1] == "/health returned HTTP 503"
    server.status = 204
    until(lambda: watched.states[-1] == "ready")
    server.status = 500
    until(lambda: watched.said[-1] == ("unhealthy", "/health returned HTTP 500"))
    server.status = 200
    until(lambda: watched.states[-1] == "ready")
    assert not watched.probe.fault and server.keys == {f"Bearer {'k' * 16}"}
    watched.probe.stop()
    watched.probe.join(30)
    assert watched.states == ["starting", "ready", "unhealthy", "ready", "stopping"], "each is said once"


def test_one_question_that_fails_changes_nothing(server: Server) -> None:
    probe = Probe(server.at, "/health", 60.0, lambda *_: None)
    assert probe.judge("") == ("ready", "")
    probe.replica_state = "ready"
    for _ in range(probing.FAILURES - 1):
        assert probe.judge("it is slow")[0] == "ready"
    assert probe.judge("it is slow") == ("unhealthy", "it is slow")


def test_what_is_not_ready_in_time_or_unhealthy_for_long_must_be_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Watched(endpoint("127.0.0.1"), start_seconds=0.1)
    until(lambda: "was not ready within start_timeout_seconds, 0.1" in late.probe.fault)
    assert "does not answer" in late.said[0][1]
    late.probe.stop()
    monkeypatch.setattr(probing, "UNHEALTHY_SECONDS", 0.1)
    sick = Watched(server.at)
    until(lambda: sick.states[-1:] == ["ready"])
    server.status = 500
    until(lambda: "was unhealthy for 0.1 s: /health returned HTTP 500" in sick.probe.fault)
    sick.probe.stop()


def test_time_for_which_its_runner_was_stopped_is_not_held_against_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(probing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    probe = Probe(server.at, "/health", 60.0, lambda *_: None)
    clock[0] += 500
    assert probe.judge("it is slow")[0] == "starting" and not probe.fault
    probe.replica_state = "ready"
    probe.judge("")
    for _ in range(probing.FAILURES):
        clock[0] += 500
        probe.judge("it is slow")
    assert not probe.fault
    for _ in range(20):
        clock[0] += 4
        probe.judge("it is slow")
    assert "was unhealthy for 60 s" in probe.fault


def test_a_state_that_could_not_be_told_is_told_again(server: Server) -> None:
    told: list[str] = []

    def report(state: str, _why: str) -> None:
        told.append(state)
        if len(told) < 3:
            raise ConnectionError("nobody answers")

    probe = Probe(server.at, "/health", 60.0, report)
    probe.start()
    until(lambda: len(told) >= 3)
    assert set(told) == {"ready"} and not probe.fault
    probe.stop()


def test_each_replica_has_a_port_and_a_key_of_its_own() -> None:
    several = [endpoint("127.0.0.1") for _ in range(5)]
    assert len({one.key for one in several}) == 5 and all(one.port >= 1024 for one in several)
    assert several[0].key not in repr(several[0])
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system says
        endpoint("203.0.113.7")

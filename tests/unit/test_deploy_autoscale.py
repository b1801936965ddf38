"""Tests the planning of ./deploy-cluster.sh autoscale; tests/bats/autoscale.bats tests its commands."""

from __future__ import annotations

import json
import random
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.docker import autoscale
from deploy.docker.autoscale import Worker, plan

IDS = [f"{number:012x}{'f' * 52}" for number in range(9)]


def worker(container: str, busy: int = 0, *, draining: bool = False, live: bool = True) -> dict[str, Any]:
    state = ("draining" if busy else "drained") if draining else ("busy" if busy else "idle")
    name = f"{container[:12]}-7"
    return {"id": name, "live": live, "draining": draining, "state": state, "busy_lanes": busy}


def names(*numbers: int) -> list[str]:
    return [f"{IDS[number][:12]}-7" for number in numbers]


def test_missing_workers_are_started() -> None:
    chosen = plan(4, IDS[:2], [worker(each) for each in IDS[:2]])
    assert (chosen.containers, chosen.drain, chosen.resume, chosen.stop) == (4, [], [], [])


def test_of_too_many_the_idle_are_drained_first_and_none_is_stopped() -> None:
    rows = [worker(IDS[0], 2), worker(IDS[1]), worker(IDS[2], 1)]
    chosen = plan(1, IDS[:3], rows)
    assert (chosen.drain, chosen.stop, chosen.containers) == (names(1, 2), [], 3)


def test_a_worker_stops_when_it_has_drained() -> None:
    rows = [worker(IDS[0], 2), worker(IDS[1], draining=True), worker(IDS[2], 1, draining=True)]
    chosen = plan(1, IDS[:3], rows)
    assert (chosen.drain, chosen.stop, chosen.containers) == ([], [IDS[1]], 3)


def test_a_draining_worker_works_again_before_one_is_started() -> None:
    rows = [worker(IDS[0]), worker(IDS[1], 1, draining=True), worker(IDS[2], draining=True)]
    assert plan(2, IDS[:3], rows).resume == names(1) and plan(2, IDS[:3], rows).stop == [IDS[2]]
    chosen = plan(4, IDS[:3], rows)
    assert (chosen.resume, chosen.stop, chosen.containers) == (names(1, 2), [], 4)


def test_a_worker_that_has_not_reported_counts_and_is_not_drained() -> None:
    rows = [worker(IDS[0], 1), worker(IDS[1], live=False), worker("0123456789ab")]
    assert plan(2, IDS[:2], rows).containers == 2
    assert plan(1, IDS[:2], rows).drain == [], "if the other one hangs, none would be left"
    reported = [worker(IDS[0], 1), worker(IDS[1])]
    assert plan(1, IDS[:3], reported).drain == names(1)


def test_a_worker_that_is_stopped_held_no_lease_whatever_was_needed_in_the_meantime() -> None:
    """Random needs and leases: only drained workers stop, and the number of containers follows the need."""
    draw = random.Random(7)
    containers, draining, busy = IDS[:3], set[str](), dict[str, int]()
    made = 3
    for _ in range(2000):
        need = draw.randint(1, 6)
        busy = {each: draw.randint(0, 1) for each in containers if each not in draining or busy.get(each)}
        rows = [worker(each, busy.get(each, 0), draining=each in draining) for each in containers]
        chosen = plan(need, containers, rows)
        assert all(not busy.get(each) and each in draining for each in chosen.stop)
        ids = {row["id"]: each for row, each in zip(rows, containers, strict=True)}
        draining = (draining | {ids[name] for name in chosen.drain}) - {ids[name] for name in chosen.resume}
        containers = [each for each in containers if each not in chosen.stop]
        assert len([each for each in containers if each not in draining]) <= need or not chosen.drain
        while len(containers) + len(chosen.stop) < chosen.containers:
            made += 1
            containers.append(f"{made:012x}{'f' * 52}")
        assert len([each for each in containers if each not in draining]) == need


class Fake:
    def __init__(self, status: Any) -> None:
        self._status = status

    def status(self) -> Any:
        if isinstance(self._status, Exception):
            raise self._status
        return self._status

    def workers(self) -> list[Worker]:
        return [worker(IDS[0], draining=True), worker(IDS[1])]

    def drain(self, worker: str, on: bool) -> None:
        print(f"called {worker} {on}")


def test_its_lines(capsys: Any) -> None:
    fake = Fake({"desired_workers": {"cpu": 3}})
    assert autoscale.main(["look", *IDS[:2]], fake) == 0
    assert capsys.readouterr().out.splitlines() == ["need 3", f"resume {names(0)[0]}", "scale 3"]
    assert autoscale.main(["step", *IDS[:2]], fake) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"called {names(0)[0]} False"
    assert autoscale.main(["release", *IDS[:2]], fake) == 0
    assert capsys.readouterr().out.splitlines() == [f"called {names(0)[0]} False", f"resume {names(0)[0]}"]


class Answers(socketserver.TCPServer):
    """Fake coordinator that answers each request with these bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answer = b""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def api(self) -> autoscale.Api:
        return autoscale.Api(f"http://127.0.0.1:{self.server_address[1]}")


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(65536)
        assert isinstance(self.server, Answers)
        self.request.sendall(self.server.answer)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with Answers() as running:
        yield running
        running.shutdown()


HEAD = b"HTTP/1.1 200 OK\r\n"
ROW = worker(IDS[0]) | {"device": "cpu"}
WRONG_FACTS: list[dict[str, Any]] = [
    {"id": 7},
    {"live": None},
    {"busy_lanes": "1"},
    {"draining": []},
    {"state": None},
]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        HEAD + b"Content-Length: 99\r\n\r\n{",
        HEAD + b"\r\n<html>",
        HEAD + b"\r\n[1]",
        HEAD + b"\r\n\xff\xfe",
        b"HTTP/1.1 401 Unauthorized\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\n\r\n{}",
        HEAD + b"\r\n" + json.dumps({"workers": {}}).encode(),
        *(HEAD + b"\r\n" + json.dumps({"workers": [ROW, ROW | wrong]}).encode() for wrong in WRONG_FACTS),
    ],
)
def test_whatever_a_coordinator_answers_it_is_an_error_that_a_round_expects(answers: Answers, answer: bytes) -> None:
    answers.answer = answer
    with pytest.raises((OSError, ValueError)):
        answers.api.workers()


def test_what_a_coordinator_answers_no_proxy_hears(answers: Answers) -> None:
    answers.answer = HEAD + b"\r\n" + json.dumps({"workers": [ROW, ROW | {"device": None}]}).encode()
    assert [row["device"] for row in answers.api.workers()] == ["cpu", None]


@pytest.mark.parametrize("desired", [None, {}, {"cpu": None}, [], "cpu", {"gpu": 1}])
def test_what_nobody_counted(desired: object) -> None:
    with pytest.raises(LookupError):
        autoscale.desired_cpu_workers({"desired_workers": desired})


@pytest.mark.parametrize("cpu", [-1, 10**9, 1.5, float("nan"), "3", [3]])
def test_what_is_no_number_of_workers(cpu: object) -> None:
    with pytest.raises(ValueError, match="not a valid number of workers"):
        autoscale.desired_cpu_workers({"desired_workers": {"cpu": cpu}})


def test_without_an_answer_it_says_why_and_nothing_follows(capsys: Any) -> None:
    for status, why in (({"desired_workers": {}}, "coordinator has calculated"), (OSError("refused"), "refused")):
        assert autoscale.main(["step", IDS[0]], Fake(status)) == 1
        said = capsys.readouterr()
        assert why in said.err and not said.out

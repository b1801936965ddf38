"""Tests the replicas of a group in their runner: each waits for the leading replica, for a limited time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.store.server.connection import CoordinatorAway
from runner import run as runs
from runner.replicas import serving
from runner.replicas.probing import Endpoint
from runner.replicas.serving import ServiceRun
from runner.run import LeaseLost

HERE = Endpoint(address="127.0.0.1", port=7, key="own-key")
LEADER = {
    "leads": False,
    "job_id": "v-a-1",
    "state": "ready",
    "address": "10.0.0.1",
    "port": 9,
    "key": "their-key",
    "host": "h",
}
AWAY = CoordinatorAway("away", 0.001)
STARTING = LEADER | {"state": "starting", "address": "", "port": 0, "key": ""}
THEIRS = {"CLUSTER_LEAD_ADDRESS": "10.0.0.1", "CLUSTER_LEAD_PORT": "9", "CLUSTER_LEAD_KEY": "their-key"}


class Waiting(ServiceRun):
    """A replica whose coordinator returns these responses one after another, or raises an error."""

    def __init__(self, *answers: Any, stop_after: int = 10**9, **spec: Any) -> None:
        self.answers, self.said, self.asked, self.stop_after = list(answers), list[Any](), 0, stop_after
        self.spec = {"start_timeout_seconds": 60, "group": True, **spec}
        self.__dict__["files"] = SimpleNamespace(lead=self.lead, replica=lambda **row: self.said.append(row))
        self.host: Any = SimpleNamespace(name="h", tunnels=None)

    def lead(self) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _memory(self) -> int:
        return 0

    def _devices(self) -> str:
        return "cpu"

    def _must_stop(self) -> bool:
        return self.asked >= self.stop_after

    def wait(self) -> dict[str, str]:
        return self._lead(HERE)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(runs, "RETRY_SECONDS", 0.001)


def test_the_replica_that_leads_is_told_of_itself_at_once() -> None:
    run = Waiting(STARTING | {"leads": True, "job_id": "v-a-2"})
    assert run.wait() == {
        "CLUSTER_LEAD_ADDRESS": "127.0.0.1",
        "CLUSTER_LEAD_PORT": "7",
        "CLUSTER_LEAD_KEY": "own-key",
    }
    assert (run.asked, run.said) == (1, [])


def test_another_one_waits_until_the_leader_is_ready_and_says_so() -> None:
    run = Waiting(STARTING, LEADER | {"state": "unhealthy"}, LEADER)
    assert run.wait() == THEIRS and run.asked == 3
    assert {(row["state"], row["why"]) for row in run.said} == {
        ("starting", "waiting for the leader v-a-1 to be ready"),
    }
    assert "their-key" not in str(run.said)


def test_one_that_waits_takes_over_when_the_leader_has_gone() -> None:
    assert Waiting(STARTING, STARTING, STARTING | {"leads": True}).wait()["CLUSTER_LEAD_KEY"] == "own-key"


def test_it_waits_while_no_coordinator_answers_and_ends_when_it_is_cancelled() -> None:
    assert Waiting(AWAY, AWAY, LEADER).wait() == THEIRS
    for answer in (STARTING, AWAY):
        with pytest.raises(LeaseLost):
            Waiting(answer, stop_after=5).wait()


def test_a_leader_that_answers_on_another_host_alone_is_said() -> None:
    elsewhere = LEADER | {"host": "other"}
    assert Waiting(elsewhere).wait() == THEIRS
    with pytest.raises(ValueError, match="reachable only on its own host other: set SERVICE_ADDRESS"):
        Waiting(elsewhere | {"address": "127.0.0.1"}).wait()
    assert Waiting(LEADER | {"address": "127.0.0.1"}).wait()["CLUSTER_LEAD_ADDRESS"] == "127.0.0.1"


def test_what_it_waits_for_may_stay_untold() -> None:
    run = Waiting(STARTING, LEADER)
    run.__dict__["files"] = SimpleNamespace(lead=run.lead)
    assert run.wait() == THEIRS


def test_a_leader_that_is_never_ready_is_waited_for_no_longer_than_a_start_may_take() -> None:
    with pytest.raises(ValueError, match="the leader v-a-1 was not ready within start_timeout_seconds"):
        Waiting(STARTING, start_timeout_seconds=0.05).wait()

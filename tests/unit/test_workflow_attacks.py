"""Random workflows on real Redis, whose leaders die before or after any call, and whose users cancel, retry and delete.

What comes of them is compared with what a reference says that knows graphs and outcomes alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coordinator.workflows.documents.documents import Documents
from coordinator.workflows.ended_jobs import EndedJobs
from coordinator.workflows.internal_errors import InternalErrors
from tests.unit.workflow_bench import Flows
from threads_protocol.states import TERMINAL

BAD = {"failed", "cancelled", "skipped"}
SEEDS = range(6)


@dataclass
class Node:
    """Action of a random graph."""

    name: str
    kind: str
    before: list[str]
    after_any: list[str]
    #: Action whose value it is given; empty: none.
    given: str = ""
    items: int = 0

    @property
    def keys(self) -> list[str]:
        """Keys of its jobs."""
        if self.kind == "foreach":
            return [f"{self.name}/{index}" for index in range(self.items)]
        return [self.name] if self.kind == "job" else []

    @property
    def text(self) -> str:
        """The action in YAML's flow style."""
        rest = {
            "job": f"action_type: command, command: [{self.name}{f', {self._given()}' if self.given else ''}]",
            "foreach": f"action_type: command, foreach: {list(range(self.items))}, command: [{self.name}, '${{item}}']",
            "approve": "action_type: approve",
            "delete": "action_type: artifact_delete, artifact: nix",
        }[self.kind]
        waits = f"dependencies: [{', '.join(self.before)}], after_any: [{', '.join(self.after_any)}]"
        return f"{self.name}, {rest}, {waits}"

    def _given(self) -> str:
        return f"'${{{self.given}.value}}'"


def graph(rng: random.Random) -> list[Node]:
    nodes: list[Node] = []
    for number in range(rng.randrange(2, 9)):
        names = [node.name for node in nodes]
        before = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 2])))
        after_any = [name for name in rng.sample(names, min(len(names), rng.choice([0, 0, 1]))) if name not in before]
        kind = rng.choice(["job", "job", "job", "foreach", "approve", "delete"])
        node = Node(f"a{number}", kind, before, after_any, items=rng.randrange(4))
        jobs = [each.name for each in nodes if each.kind == "job" and each.name in before]
        if kind == "job" and jobs and rng.random() < 0.6:
            node.given = rng.choice(jobs)
        nodes.append(node)
    return nodes


def reference(nodes: list[Node], outcome: Callable[[str], str]) -> dict[str, str]:
    """States at the end, by the definition alone."""
    states: dict[str, str] = {}
    for node in nodes:
        ends = {outcome(key) for key in node.keys}
        skipped = any(states[name] in BAD for name in node.before)
        states[node.name] = "skipped" if skipped else "failed" if "failed" in ends else "done"
    return states


class Killed(BaseException):
    """The leader is dead."""


class Fuse:
    """Lets the calls of a client fail for good before or after one of them."""

    def __init__(self, client: Any) -> None:
        self.left, self.after = -1, False
        execute, pipeline = client.execute_command, client.pipeline
        client.execute_command = self._fused(execute)

        def fused_pipeline(*arguments: Any, **more: Any) -> Any:
            pipe = pipeline(*arguments, **more)
            pipe.execute = self._fused(pipe.execute)
            return pipe

        client.pipeline = fused_pipeline

    def _fused(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def fused(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise Killed
            answer = call(*arguments, **more)
            if self.left == 0:
                raise Killed
            return answer

        return fused


@dataclass
class Attack:
    """One workflow, its leaders, its users and its workers."""

    flow: Flows
    rng: random.Random
    fuse: Fuse
    nodes: list[Node]
    workflow: str = ""
    #: By key: what its next job does when it runs.
    fate: dict[str, str] = field(default_factory=dict)
    #: Jobs that ended well, by id: their key. Every key once.
    ended: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        self.workflow = self.flow.submit(*(node.text for node in self.nodes))
        self.fate = {key: self.rng.choice(["done", "done", "failed"]) for node in self.nodes for key in node.keys}

    # -- who acts ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Let a leader look, which may die within; then another one knows nothing but what is stored."""
        self.fuse.left, self.fuse.after = self.rng.choice([-1, self.rng.randrange(1, 25)]), self.rng.random() < 0.5
        try:
            self.flow.engine.look(self.workflow)
        except Killed:
            engine = self.flow.engine
            engine.documents = Documents(engine.store.workflows)
            engine.ended_jobs, engine.faults = EndedJobs(engine.store.workflows), InternalErrors()
        finally:
            self.fuse.left = -1
        assert not self.flow.engine.faults.by_name, "a fault of the coordinator"

    def wake(self) -> None:
        while self.flow.store.fleet.wake().more:
            pass

    def work(self) -> bool:
        """Let one job that may run end; False where none may."""
        course = self.flow.store.workflows.course(self.workflow)
        assert course is not None
        fields = self.flow.store.workflows.job_fields(list(course.jobs.values()), ("state", "parameters"))
        states = {key: row[0] for key, row in zip(course.jobs, fields, strict=True)}
        ready = [key for key, state in states.items() if state == b"queued"]
        if not ready:
            return False
        key = self.rng.choice(ready)
        job = course.jobs[key]
        self.check(key, job, json.loads(dict(zip(course.jobs, fields, strict=True))[key][1] or b"{}"))
        if self.fate[key] == "failed":
            self.fail(job)
        else:
            self.flow.end(job, value=f"value of {key}")
            self.ended[job] = key
        return True

    def fail(self, job: str) -> None:
        lease = self.flow.lease_next(job)
        row = {"unit": 0, "exit": 3, "reason": "", "seconds": 0.1, "attempt": 1, "worker": "r", "error": "exit code 3"}
        assert self.flow.store.leases.fail_unit(job, lease.token, "no", most=0, wait_ms=0, row=json.dumps(row))

    def approve(self) -> bool:
        waiting = [name for name, state in self.flow.states(self.workflow).items() if state == "approval"]
        if waiting:
            answer = self.flow.steer(self.workflow, f"actions/{self.rng.choice(waiting)}/approve")
            assert answer.status_code in (200, 409), answer.text
        return bool(waiting)

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self, key: str, job: str, parameters: Any) -> None:
        """A job that runs is that of its action, has what it was given, and what it waits for has ended."""
        assert key not in self.ended.values(), f"{key} runs again, though it was done"
        node = next(one for one in self.nodes if one.name == key.partition("/")[0])
        states = self.flow.states(self.workflow)
        assert all(states[name] == "done" for name in node.before), (key, states)
        assert all(states[name] in TERMINAL for name in node.after_any), (key, states)
        given = [f"value of {node.given}"] if node.given else [key.partition("/")[2]] if node.kind == "foreach" else []
        assert parameters["command"] == [node.name, *given], parameters

    def until_it_ends(self) -> str:
        """Let everybody act in any order until the workflow has ended; return its state."""
        for _ in range(2000):
            self.rng.choice([self.look, self.look, self.wake, self.work, self.approve])()
            if (state := self.flow.row(self.workflow)["state"]) in ("done", "failed", "cancelled"):
                return str(state)
        raise AssertionError(f"it goes on for ever: {self.flow.row(self.workflow)}")

    def settle(self) -> dict[str, str]:
        """Let all that is known become known, and return the states of the actions."""
        self.wake()
        for _ in range(3):
            self.flow.engine.look(self.workflow)
        return self.flow.states(self.workflow)


@pytest.fixture
def attack(redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[int], Attack]]:
    flow = Flows(redis_url, tmp_path / "store")
    fuse = Fuse(flow.engine.store.client)

    def made(seed: int) -> Attack:
        rng = random.Random(seed)
        one = Attack(flow, rng, fuse, graph(rng))
        one.begin()
        return one

    yield made
    flow.close()


def test_the_end_is_that_of_the_reference_whoever_dies(attack: Callable[[int], Attack]) -> None:
    for seed in SEEDS:
        one = attack(seed)
        state = one.until_it_ends()
        expected = reference(one.nodes, one.fate.__getitem__)
        assert one.settle() == expected, seed
        assert state == ("failed" if "failed" in expected.values() else "done"), seed


def test_after_retries_all_is_done_once_whatever_was_deleted(attack: Callable[[int], Attack]) -> None:
    for seed in SEEDS:
        one = attack(seed + 1000)
        for _ in range(20):
            if one.until_it_ends() == "done":
                break
            one.settle()
            _delete_some(one)
            one.fate = {key: one.rng.choice(["done", "done", fate]) for key, fate in one.fate.items()}
            assert one.flow.steer(one.workflow, "retry").status_code == 200
        assert set(one.settle().values()) == {"done"}, seed


def test_a_cancel_at_any_moment_ends_it_and_a_retry_goes_on(attack: Callable[[int], Attack]) -> None:
    for seed in SEEDS:
        one = attack(seed + 2000)
        for _ in range(one.rng.randrange(30)):
            one.rng.choice([one.look, one.wake, one.work, one.approve])()
        assert one.flow.steer(one.workflow, "cancel").status_code in (200, 409)
        state = one.until_it_ends()
        states = one.settle()
        assert set(states.values()) <= TERMINAL and state in ("cancelled", "failed", "done"), seed
        assert all(states[key] == "done" for key in one.ended.values() if "/" not in key), "what is done stays"
        one.fate = dict.fromkeys(one.fate, "done")
        _delete_some(one)
        assert one.flow.steer(one.workflow, "retry").status_code in (200, 409)
        if state != "done":
            assert one.until_it_ends() == "done", (seed, one.flow.row(one.workflow))
        assert set(one.settle().values()) == {"done"}, seed


def _delete_some(one: Attack) -> None:
    """Delete some of the jobs that have ended, as their owner may."""
    course = one.flow.store.workflows.course(one.workflow)
    assert course is not None
    for job in course.jobs.values():
        if one.rng.random() < 0.25:
            status = one.flow.ask("DELETE", f"/api/jobs/{job}").status_code
            assert status in (204, 404, 409)
            if status == 204:
                one.ended.pop(job, None)  # what it gave may be needed again

"""Tests plans of workflows: the outcome does not depend on the order of jobs or on the leader's deaths."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.workflows import planning
from coordinator.workflows.documents.document import Action, Document
from coordinator.workflows.planning import (
    CarryOut,
    Expand,
    JobSeen,
    Known,
    Record,
    State,
    Submit,
    item_job_id,
    job_id,
    plan,
)
from threads_protocol.states import TERMINAL

BAD = {"failed", "cancelled", "skipped"}


def action(name: str, *before: str, kind: str = "collatz", late: bool = False, **more: Any) -> Action:
    return Action(id=name, type=kind, dependencies=before, late=late, **more)


def document(*actions: Action) -> Document:
    return Document(name="t", actions={one.id: one for one in actions})


def known(state: str = "running", records: dict[str, Record] | None = None, **jobs: str | None) -> Known:
    seen = {name: JobSeen(f"w-w-{name}-1", each) for name, each in jobs.items()}
    return Known(workflow="w", state=State(state), attempt=1, jobs=seen, records=records or {})


class World:
    """Jobs and records as in Redis; jobs end as `outcome` determines by their key."""

    def __init__(self, whole: Document, outcome: dict[str, str], rng: random.Random) -> None:
        self.whole, self.outcome, self.rng = whole, outcome, rng
        self.jobs: dict[str, tuple[str, Submit]] = {}
        self.records: dict[str, Record] = {}
        self.states: dict[str, str] = {}
        self.submitted: list[str] = []
        self.state = State.RUNNING
        #: Keys of the jobs in the order of their start.
        self.began: list[str] = []

    def known(self) -> Known:
        seen = {key: JobSeen(job, self.states[job]) for key, (job, _) in self.jobs.items()}
        return Known(workflow="w", state=self.state, attempt=1, jobs=seen, records=dict(self.records))

    def look(self) -> bool:
        """Plan and execute some of the steps, because the leader can die after any. Return True if none are left."""
        made = plan(self.whole, self.known())
        some = made.steps if self.rng.random() < 0.5 else made.steps[: self.rng.randrange(len(made.steps) + 1)]
        for step in some:
            self.carry_out(step)
        if not made.steps:
            self.state = made.state
        return not made.steps

    def carry_out(self, step: Any) -> None:
        if isinstance(step, Submit):
            assert step.key not in self.jobs and step.job_id not in self.submitted, "submitted twice"
            assert all(any(job == parent for job, _ in self.jobs.values()) for parent in (*step.after, *step.after_any))
            self.submitted.append(step.job_id)
            self.jobs[step.key] = (step.job_id, step)
            self.states[step.job_id] = "blocked"
            self.release()
        elif isinstance(step, Expand):
            self.records.setdefault(step.action.id, Record(state="expanded", items=tuple(step.action.foreach)))
        elif isinstance(step, CarryOut):
            self.records.setdefault(step.action.id, Record(state=self.outcome[step.action.id]))

    def release(self) -> None:
        """Do what Redis does: jobs whose parents permit it become queued or skipped."""
        changed = True
        while changed:
            changed = False
            for job, step in self.jobs.values():
                if self.states[job] != "blocked":
                    continue
                after = [self.states[parent] for parent in step.after]
                ended = [self.states[parent] in TERMINAL for parent in step.after_any]
                if BAD & set(after):
                    self.states[job], changed = "skipped", True
                elif all(each == "done" for each in after) and all(ended):
                    self.states[job], changed = "queued", True

    def end_one(self) -> bool:
        """Finish one startable job; return False if there is none."""
        ready = [(key, job) for key, (job, _) in self.jobs.items() if self.states[job] == "queued"]
        if not ready:
            return False
        key, job = self.rng.choice(ready)
        self.began.append(key)
        self.states[job] = self.outcome[key]
        self.release()
        return True


def expected(whole: Document, outcome: dict[str, str]) -> dict[str, str]:
    """Return the final states that follow from the definition alone."""
    states: dict[str, str] = {}
    for one in whole.actions.values():
        if any(states[name] in BAD for name in one.dependencies):
            states[one.id] = "skipped"
        elif one.foreach is not None:
            ends = {outcome[f"{one.id}/{index}"] for index in range(len(one.foreach))}
            states[one.id] = "failed" if "failed" in ends else "cancelled" if "cancelled" in ends else "done"
        else:
            states[one.id] = outcome[one.id]
    return states


@st.composite
def graphs(draw: Any) -> tuple[Document, dict[str, str]]:
    count = draw(st.integers(1, 12))
    actions, outcome = [], {}
    for number in range(count):
        others = [f"a{each}" for each in range(number)]
        before = draw(st.lists(st.sampled_from(others), unique=True, max_size=3)) if others else []
        after_any = draw(st.lists(st.sampled_from(others), unique=True, max_size=2)) if others else []
        kind = draw(st.sampled_from(["collatz"] * 4 + ["artifact_delete"]))
        foreach = [1] * draw(st.integers(0, 3)) if kind == "collatz" and draw(st.integers(0, 4)) == 0 else None
        late = foreach is not None or draw(st.booleans())
        one = action(f"a{number}", *before, kind=kind, late=late, foreach=foreach, after_any=tuple(after_any))
        actions.append(one)
        ends = st.sampled_from(["done", "done", "done", "failed"])
        outcome[one.id] = draw(ends)
        outcome |= {f"{one.id}/{index}": draw(ends) for index in range(len(foreach or ()))}
    return document(*actions), outcome


@settings(max_examples=300)
@given(graphs(), st.integers(0, 2**32))
def test_the_end_is_the_same_whatever_the_order_and_wherever_the_leader_dies(
    graph: tuple[Document, dict[str, str]], seed: int
) -> None:
    whole, outcome = graph
    world = World(whole, outcome, random.Random(seed))
    for _ in range(10_000):
        if world.state in planning.ENDED:
            break
        if world.rng.random() < 0.5:
            world.look()
        else:
            world.end_one()
    made = plan(whole, replace(world.known(), state=State.RUNNING))
    assert made.states == expected(whole, outcome) and not made.steps
    wanted = set(made.states.values())
    assert world.state == ("failed" if "failed" in wanted else "done")
    for place, key in enumerate(world.began):
        one = whole.actions[key.partition("/")[0]]
        for name in one.dependencies:
            own = [each for each in world.jobs if each.partition("/")[0] == name]
            assert set(own) <= set(world.began[:place]), "began before what it depends on"
    assert len(world.began) == len(set(world.began))


def test_more_parents_than_a_job_may_have_are_waited_for() -> None:
    parents = [action(f"p{number}") for number in range(1500)]
    whole = document(*parents, action("z", *(one.id for one in parents)))
    jobs: dict[str, Any] = {f"p{number}": "done" if number < 499 else "queued" for number in range(1500)}
    seen = known(**jobs)
    assert plan(whole, seen).steps == []
    seen = known(**jobs | {"p499": "done"})
    [step] = plan(whole, seen).steps
    assert isinstance(step, Submit) and len(step.after) == 1000


def test_ids_of_jobs_tell_items_from_actions() -> None:
    assert job_id("w", "a-1", 1) != item_job_id("w", "a", 1, 1)
    assert len(item_job_id("0" * 12, "a" * 32, 99_999, 9_999)) <= 64


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ({"a": "done", "b": "done"}, "done"),
        ({"a": "done", "b": "failed"}, "failed"),
        ({"a": "cancelled", "b": "done"}, "cancelled"),
        ({"a": "cancelled", "b": "failed"}, "failed"),
        ({"a": "failed", "b": "running"}, "running"),
        ({"a": None, "b": "done"}, "failed"),
    ],
)
def test_the_state_of_a_workflow_follows_from_its_actions(states: dict[str, Any], state: str) -> None:
    assert plan(document(action("a"), action("b")), known(**states)).state == state


def test_it_waits_while_only_people_can_go_on() -> None:
    whole = document(action("a", kind="approve"), action("b", "a"), action("c"))
    assert plan(whole, known(c="running")).state == "running"
    made = plan(whole, known(c="done"))
    assert made.state == "waiting" and made.states == {"a": "approval", "b": "waiting", "c": "done"}


def test_a_cancelled_workflow_cancels_its_jobs_and_begins_nothing() -> None:
    whole = document(action("a"), action("b", "a"), action("c", kind="approve"))
    made = plan(whole, known("cancelling", a="running"))
    assert [getattr(step, "job_id", None) for step in made.steps] == ["w-w-a-1"] and made.state == "cancelling"
    assert plan(whole, known("cancelling", a="cancelled")).state == "cancelled"


def test_what_comes_after_a_failure_names_it() -> None:
    whole = document(action("a"), action("b", "a", late=True), action("c", "b"))
    seen = known(a="failed")
    made = plan(whole, seen)
    assert planning.find_error("c", made, seen) == "a failed"

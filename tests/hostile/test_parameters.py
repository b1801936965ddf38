"""Tests that each kind accepts, plans and computes the parameters that its README promises, and rejects all others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from coordinator.access.principal import ANYONE
from coordinator.jobs import scheduler, submissions
from jobs import errors
from jobs.kinds import registry
from jobs.models import MAX_UNITS, Plan
from jobs.settings import Settings
from tests.hostile import collatz_parameters, counts, exploring, thread_parameters
from tests.hostile.verdicts import Verdict
from tests.integration.live import Live

ORACLES: dict[str, tuple[Callable[[dict[str, Any]], Verdict], st.SearchStrategy[Any]]] = {
    "collatz": (collatz_parameters.verdict, collatz_parameters.objects()),
    "thread": (thread_parameters.verdict, thread_parameters.objects()),
}
SMALL = {"collatz": collatz_parameters.SMALL, "thread": thread_parameters.small()}
#: Maximum CPU seconds for planning a job, and maximum length of an error message.
MOST_SECONDS, MOST_DETAIL = 0.5, 700
FLEET, CHOSEN = scheduler.Fleet(), Settings()


def submitted(kind: str, parameters: dict[str, Any]) -> Plan | errors.ClusterError:
    body = {"type": kind, "parameters": parameters}
    try:
        return submissions.accept(submissions.parse_submission(body), ANYONE, FLEET, CHOSEN).job.plan
    except errors.ClusterError as refusal:
        return refusal


def total_units(kind: str, parameters: dict[str, Any]) -> int:
    """Return the number of units of a valid job according to its kind's README."""
    if parameters.get("mode") == "trajectory" or parameters.get("trace") is not None:
        return 1
    if kind == "collatz":
        return int(parameters["number_count"])
    lists = [parameters.get("cores", 8), parameters.get("scheduler", "fifo")]
    cells = [len(each) if isinstance(each, list) else 1 for each in lists]
    return cells[0] * cells[1] * int(parameters.get("replicas", 1024))


def complaint(kind: str, parameters: dict[str, Any], verdict: Verdict, found: Plan | errors.ClusterError) -> str:
    """Return the difference from the promises, or ""."""
    if isinstance(found, errors.ClusterError):
        return refusal_complaint(verdict, found)
    if verdict.wrong:
        return f"accepted, though {sorted(verdict.wrong)} must be refused"
    if not 1 <= found.total <= MAX_UNITS or found.total != total_units(kind, parameters):
        return f"has {found.total} units, not {total_units(kind, parameters)}"
    if not (0 < found.cpu_seconds < float("inf") and 0 < found.max_lease_seconds < float("inf")):
        return f"is estimated at {found.cpu_seconds} s, a lease at {found.max_lease_seconds} s"
    again = submitted(kind, dict(json.loads(json.dumps(found.parameters))))
    if isinstance(again, errors.ClusterError) or again.spec != found.spec:
        return f"its recorded parameters {found.parameters} are not the same job: {again}"
    return ""


def refusal_complaint(verdict: Verdict, refusal: errors.ClusterError) -> str:
    field, detail = refusal.field or "", refusal.detail
    name = field.removeprefix("parameters").removeprefix(".")
    allowed = verdict.wrong | verdict.maybe
    if not 400 <= refusal.status < 500 or not field.startswith("parameters"):
        return f"refused with {refusal.status}, field {field!r}: {detail}"
    if not any(name == each or name.startswith(f"{each}.") for each in allowed):
        return f"refused for {name!r}, though only {sorted(allowed)} are wrong: {detail}"
    if not detail.startswith(f"{field}: ") or len(detail) > MOST_DETAIL + len(field):
        return f"the refusal does not name its field or is too long: {detail[:1000]!r}"
    return ""


@pytest.mark.parametrize("kind", sorted(ORACLES))
def test_parameters_are_accepted_as_promised(kind: str, plan: exploring.Plan) -> None:
    oracle, objects = ORACLES[kind]
    tally = counts.tally(f"parameters of {kind}")

    def check(parameters: dict[str, Any]) -> None:
        verdict = oracle(parameters)
        started = time.process_time()
        found = submitted(kind, parameters)
        spent = time.process_time() - started
        wrong = complaint(kind, parameters, verdict, found)
        if spent > MOST_SECONDS:
            wrong = wrong or f"took {spent:.2f} CPU seconds to plan; at most {MOST_SECONDS}"
        if wrong:
            tally.wrong(f"{kind} {parameters!r}: {wrong}")
        elif isinstance(found, errors.ClusterError):
            tally.refuse(found.status)
        else:
            tally.accept()
        assert not wrong, wrong

    for seed in plan.rounds(share=0.2):
        exploring.explore(check, objects, 2000 if plan.long else 400, seed)
    tally.check()
    assert tally.accepted > tally.inputs / 5 and tally.refused.total() > tally.inputs / 5, tally.line()


@pytest.mark.parametrize("law", ["geometric", "poisson"])
@pytest.mark.parametrize("mean", [5e-324, 1e-300, 2.0**-34, 1e-9, 0.123456789, 15.9])
def test_no_law_takes_long_to_plan(law: str, mean: float) -> None:
    parameters = {
        "spawn": {"distribution": law, "mean": mean, "shape": "linear"},
        "max_depth": 64,
        "thread_count": 1,
        "work": {"distribution": "pareto", "mean_us": 1 + mean, "alpha": 1.05, "max_ratio": 1e4},
    }
    started = time.process_time()
    submitted("thread", parameters)
    assert time.process_time() - started < MOST_SECONDS


# -- small ones are computed ----------------------------------------------------------------------------------------


def drawn(strategy: st.SearchStrategy[Any], number: int, seed: int) -> list[Any]:
    found: list[Any] = []
    exploring.explore(found.append, strategy, number, seed)
    return found


def reference_result(kind: str, parameters: dict[str, Any]) -> Any:
    definition = registry.definition(kind)
    spec = definition.plan(definition.parameters.model_validate(parameters)).spec
    total = total_units(kind, parameters)
    return json.loads(json.dumps(definition.result(spec, registry.reference(kind).run(spec, 0, total))))


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_small_jobs_are_computed_as_the_reference_does(kind: str, cluster: Live, plan: exploring.Plan) -> None:
    tally = counts.tally(f"small jobs of {kind}")
    for seed in plan.rounds(share=0.08):
        for parameters, answer in _computed(cluster, kind, drawn(SMALL[kind], 200 if plan.long else 60, seed)):
            if answer.get("result") == reference_result(kind, parameters):
                tally.accept()
            else:
                tally.wrong(f"{kind} {parameters!r} came out as {json.dumps(answer)[:500]}")
    tally.check()


def _computed(cluster: Live, kind: str, all: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each job with the cluster's result."""
    with httpx.Client(base_url=cluster.url(), timeout=90) as client:
        jobs = [{"type": kind, "parameters": parameters} for parameters in all]
        answers = client.post("/api/submit-batch", json={"jobs": jobs}).json()["answers"]
        assert all_submitted(answers), [answer for answer in answers if "job_id" not in answer]
        asked = {"job_ids": [answer["job_id"] for answer in answers], "wait_seconds": 30}
        for _ in range(6):
            found = client.post("/api/results", json=asked).json()["answers"]
            if all_ended(found):
                break
        yield from zip(all, found, strict=True)


def all_submitted(answers: list[dict[str, Any]]) -> bool:
    return all("job_id" in answer for answer in answers)


def all_ended(answers: list[dict[str, Any]]) -> bool:
    return all(answer["state"] in ("done", "failed", "cancelled") for answer in answers)

"""The API walked by its own description: schemathesis makes requests, follows job ids from answer to request, and holds
every answer against what the description says of it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import SearchStrategy
from schemathesis.specs.openapi import checks

from tests.hostile import counts, exploring, wire
from tests.hostile.watching import Watch
from tests.integration.live import Live

#: Server-sent events end with the job or never: `test_requests.py` reads their heads.
STREAMS = ".*/events$"
#: Calls of workers, which need a token.
WORKERS = "/api/worker/"
CONFORMANCE = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
)
#: Submissions to start from; what is drawn from the description alone is hardly ever valid.
SUBMISSIONS: list[dict[str, Any]] = [
    {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}},
    {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1000, "columns": 10, "density": True}},
    {"type": "collatz", "parameters": {"mode": "trajectory", "n": 27}, "priority": "high", "idempotency_key": "27"},
    {"type": "collatz", "parameters": {"start_number": 1, "number_count": 10**15}, "priority": "low"},
    {"type": "thread", "parameters": {"thread_count": 3, "replicas": 2, "max_depth": 2}, "device": "cpu"},
    {"type": "thread", "parameters": {"replicas": 10**7, "trace": None}, "device": "gpu"},
]


def described(cluster: Live, valid: bool) -> Any:
    """The description with what it leaves to people: a job that was submitted is the one of the other routes. `valid`:
    submissions are those above.
    """
    found = cluster.get("/api/openapi.json")
    submit = found["paths"]["/api/submit"]["post"]
    if valid:
        submit["requestBody"]["content"]["application/json"]["schema"] = {"enum": SUBMISSIONS}
    links = {}
    for path, verbs in found["paths"].items():
        for verb, route in verbs.items():
            if "{job_id}" in path:
                links[f"{verb} {path}"] = {
                    "operationId": route["operationId"],
                    "parameters": {"path.job_id": "$response.body#/job_id"},
                }
    submit["responses"]["202"]["links"] = links
    schema = schemathesis.openapi.from_dict(found).exclude(path_regex=STREAMS)
    schema.config.update(base_url=cluster.url())
    return schema


def unhurried(case: Any) -> None:
    """Asks for no wait where a request may ask for one."""
    for asked in (case.query, case.body):
        if isinstance(asked, dict) and _valid_wait(asked.get("wait_seconds")):
            asked["wait_seconds"] = 0


def _valid_wait(value: Any) -> bool:
    try:
        return 0 < float(value) <= 30
    except (TypeError, ValueError):
        return False


def judged(tally: counts.Counts, case: Any, response: Any) -> None:
    """Counts an answer that is neither a fault nor other than described."""
    answer = wire.Answer(
        response.status_code,
        {name.lower(): values[0] for name, values in response.headers.items()},
        response.content,
        response.elapsed,
    )
    wrong = wire.complaint(answer)
    try:
        case.validate_response(response, checks=CONFORMANCE)
    except Exception as error:
        wrong = wrong or str(error)[:1500]
    if wrong:
        tally.wrong(f"{case.operation.label} {case.path_parameters} {case.query} {str(case.body)[:500]}: {wrong}")
    elif answer.status < 300:
        tally.accept()
    else:
        tally.refuse(answer.status)


def chosen(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        stateful_step_count=15,
    )


def test_walks_through_the_api_find_it_as_described(cluster: Live, watch: Watch, plan: exploring.Plan) -> None:
    tally = counts.tally("walks by the description")
    schema = described(cluster, valid=True)

    class Walk(schema.as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: Any) -> None:
            unhurried(case)

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            judged(tally, case, response)

    for seed in plan.rounds(share=0.1):
        hypothesis.seed(seed)(Walk)
        # What a cluster answers depends on how far its jobs are: a walk that became another one ends, and counts.
        with contextlib.suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(Walk, settings=chosen(25))
    _cancel_all(cluster)
    tally.check()


def test_every_route_answers_as_described(cluster: Live, watch: Watch, plan: exploring.Plan) -> None:
    tally = counts.tally("routes by the description")
    for seed in plan.rounds(share=0.1):
        for found in described(cluster, valid=False).get_all_operations():
            operation = found.ok()
            if operation.path.startswith(WORKERS):
                continue
            for mode in _modes(operation):
                _ask(tally, operation.as_strategy(generation_mode=mode), 15 if plan.long else 8, seed)
    _cancel_all(cluster)
    tally.check()


def test_calls_of_a_worker_that_lies_are_answered_as_described(
    cluster: Live, watch: Watch, plan: exploring.Plan
) -> None:
    """One with a token, which says what it likes; the worker at Redis goes on."""
    tally = counts.tally("calls of a lying worker")
    token = cluster.remote("liar")["WORKER_TOKEN"]
    cluster.submit("collatz", {"start_number": 1, "number_count": 10**15}, priority="low")
    for seed in plan.rounds(share=0.1):
        for found in described(cluster, valid=False).get_all_operations():
            operation = found.ok()
            for mode in _modes(operation) if operation.path.startswith(WORKERS) else ():
                cases = operation.as_strategy(generation_mode=mode)
                _ask(tally, cases, 15 if plan.long else 5, seed, Authorization=f"Bearer {token}")
    _cancel_all(cluster)
    tally.check()


def _modes(operation: Any) -> list[schemathesis.GenerationMode]:
    """Modes that contradict the description only where there is more than a path; paths are in `test_requests.py`."""
    modes = schemathesis.GenerationMode
    return list(modes) if len(operation.query) or len(operation.body) else [modes.POSITIVE]


def _ask(tally: counts.Counts, cases: SearchStrategy[Any], examples: int, seed: int, **headers: str) -> None:
    def one(case: Any) -> None:
        unhurried(case)
        judged(tally, case, case.call(headers=headers))

    hypothesis.seed(seed)(chosen(examples)(hypothesis.given(cases)(one)))()


def _cancel_all(cluster: Live) -> None:
    cluster.post("/api/workers/worker-0/drain", {"on": False})
    for state in ("queued", "running", "paused"):
        for job in cluster.get(f"/api/jobs?limit=500&state={state}")["jobs"]:
            cluster.post(f"/api/jobs/{job['job_id']}/cancel")

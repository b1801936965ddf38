"""The jobs of a campaign and their expected results, which this process computes undisturbed and in one piece."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from jobs.kinds import registry
from jobs.models import Device
from jobs.worker import execution

#: Jobs that are divided among lanes and keep one lane busy for 0.5 to 1.5 seconds.
SPLIT: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("collatz", {"start_number": 1, "number_count": 400_000_000}),
    ("collatz", {"start_number": 10**12 + 7, "number_count": 150_000_000}),
    ("collatz", {"start_number": 10**9, "number_count": 120_000_000, "columns": 16}),
    ("collatz", {"mode": "verify", "start_number": 2**40 + 5, "number_count": 20_000_000_000}),
    ("collatz", {"mode": "records", "start_number": 10**9, "number_count": 700_000_000}),
    ("thread", {"replicas": 1200, "seed": 11}),
    ("thread", {"replicas": 250, "seed": 5, "cores": [1, 4, 8]}),
    ("faulty", {"units": 300, "seconds_per_unit": 0.005}),
    ("faulty", {"units": 1200, "seconds_per_unit": 0.002}),
)
#: Small jobs, several of which one lane computes completely.
SMALL: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("collatz", {"start_number": 27, "number_count": 1}),
    ("collatz", {"start_number": 1000, "number_count": 100_000}),
    ("collatz", {"mode": "verify", "start_number": 1, "number_count": 1_000_000}),
    ("collatz", {"mode": "records", "start_number": 1, "number_count": 65_536}),
    ("collatz", {"mode": "trajectory", "n": 837_799}),
    ("thread", {"replicas": 8, "seed": 3}),
    ("thread", {"replicas": 16, "seed": 9, "cores": [1, 2]}),
    ("faulty", {"units": 20, "cpu_seconds": 0.001}),
)
#: Programs for a runner, whose units take some hundredths of a second. Each returns its number, some after a failed
#: attempt.
_GIVES = "echo $CLUSTER_UNIT > $CLUSTER_RESULT"
PROGRAMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("command", {"command": f"sleep 0.05; {_GIVES}", "count": 40}),
    ("command", {"command": f"echo unit $CLUSTER_UNIT; {_GIVES}", "count": 60}),
    ("command", {"command": f"sleep 2 & {_GIVES}", "count": 10}),
    (
        "command",
        {
            "command": f"sleep 0.02; test $((CLUSTER_UNIT % 5 + CLUSTER_ATTEMPT)) -gt 1 && {_GIVES}",
            "count": 40,
            "retries": {"max": 3, "initial_delay_seconds": 0.1},
        },
    ),
)
#: Control requests for some jobs, sent one after another with random delays.
STEERING = (("pause", "resume"), ("cancel", "retry"), ("pause", "cancel", "retry"))


@dataclass(frozen=True, kw_only=True)
class Job:
    """A submission; `key` is its idempotency key."""

    key: str
    kind: str
    parameters: Mapping[str, Any]
    priority: str
    #: Time of the submission in seconds after the start of the round.
    at: float
    #: Control requests as (seconds after the previous request, verb).
    steering: tuple[tuple[float, str], ...] = ()

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        steered = "".join(f", {verb} {after:.2f} s later" for after, verb in self.steering)
        return f"{self.at:5.2f} s  {self.key}: {self.kind} {told}, {self.priority}{steered}"

    def body(self) -> dict[str, Any]:
        return {
            "type": self.kind,
            "parameters": dict(self.parameters),
            "priority": self.priority,
            "idempotency_key": self.key,
        }


def draw_jobs(
    draw: Random, name: str, seconds: float, split: int = 7, small: int = 24, programs: int = 2
) -> tuple[Job, ...]:
    """Return a mix of all kinds over some seconds, including jobs whose units need little CPU time."""
    picked = draw.sample(SPLIT, split) + draw.sample(PROGRAMS, programs) + [draw.choice(SMALL) for _ in range(small)]
    return tuple(
        Job(
            key=f"chaos-{name}-{number}",
            kind=kind,
            parameters=parameters,
            at=round(draw.uniform(0.0, seconds), 2),
            priority=draw.choice(("high", "normal", "normal", "low")),
            steering=_steering(draw, number < split + programs),
        )
        for number, (kind, parameters) in enumerate(picked)
    )


def _steering(draw: Random, split: bool) -> tuple[tuple[float, str], ...]:
    if draw.random() > (0.4 if split else 0.1):
        return ()
    return tuple((round(draw.uniform(0.05, 1.5), 2), verb) for verb in draw.choice(STEERING))


def undisturbed(kind: str, parameters: Mapping[str, Any]) -> Any:
    """Return the result that the API must return, bit for bit."""
    return _undisturbed(kind, json.dumps(parameters))


@cache
def _undisturbed(kind: str, parameters: str) -> Any:
    given = json.loads(parameters)
    if kind == "command":
        return {"units": given["count"], "values": list(range(given["count"]))}
    if kind == "faulty":  # this process does not load the kinds of the tests
        return {"sum": sum(range(given["units"])), "count": given["units"]}
    definition = registry.definition(kind)
    plan = definition.plan(definition.parameters.model_validate(given))
    spec = json.loads(json.dumps(plan.spec))
    return json.loads(execution.compute_small_job(kind, Device.CPU, spec, plan.total).result)

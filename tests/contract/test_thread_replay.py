"""Check 12: kernel, reference and an independent simulation in SimPy are equal, to the nanosecond."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jobs.kinds.thread import reference_replica
from tests.contract.thread_bench import POLICIES, law, planned, poisson, replicas
from tests.contract.thread_replay import Machine

CONFIGURATIONS = 60


def model(dice: random.Random, scheduler: str) -> dict[str, Any]:
    """Return a random small model."""
    roots = dice.randint(1, 12)
    join = dice.choice(["none", "suspend", "block"] if scheduler in ("fifo", "lifo") else ["none", "suspend"])
    shape = {
        "seed": dice.getrandbits(53),
        "scheduler": scheduler,
        "join": join,
        "thread_count": roots,
        "max_depth": dice.randint(0, 5),
        "cores": dice.choice([1, 2, 3, 4, 8, 17]),
        "replicas": 2,
        "spawn": dice.choice(
            [
                law("fixed", children=1),
                law("binomial", children=2, probability=0.6),
                law("geometric", mean=1.1),
                law("poisson", mean=1.4, shape="linear"),
                law("pmf", probabilities=[0.4, 0.3, 0, 0.3]),
            ]
        ),
        "work": dice.choice(
            [
                law("fixed", mean_us=3),
                law("uniform", min_us=1, max_us=9),
                law("exponential", mean_us=5),
            ]
        ),
        "dispatch_cost_us": dice.choice([0, 0.5, 1]),
        "spawn_cost_us": dice.choice([0, 0.1]),
        "steal_cost_us": dice.choice([0.25, 1]),
        "join_cost_us": 0 if join == "none" else dice.choice([0, 0.3]),
        "arrival": dice.choice([{"process": "batch"}, poisson(dice.choice([50, 500]), dice.randrange(roots))]),
    }
    return shape | ({"quantum_us": dice.choice([1, 2.5])} if scheduler == "round_robin" else {})


@pytest.mark.parametrize("scheduler", POLICIES)
def test_12_simpy_replays_every_policy(scheduler: str) -> None:
    """Makespan, threads, waits, sojourns, steals, switches, refusals and the outcome of 60 random configurations."""
    dice = random.Random(scheduler)
    outcomes = set()
    for _ in range(CONFIGURATIONS):
        shape = model(dice, scheduler)
        plan = planned(**shape)
        if dice.random() < 0.25:
            plan = planned(**shape, max_threads=max(shape["thread_count"], plan.spec["expected_threads"]))
        for replica, counted in enumerate(replicas(plan)):
            replayed = Machine(plan.spec, 0, replica).found
            outcomes.add(replayed["outcome"])
            # A replica that deadlocks is in no sum.
            row = reference_replica.Replica(plan.spec, 0, replica).row() if replayed["outcome"] == 1 else counted
            assert replayed == {name: row[name] for name in replayed}, shape
    assert outcomes == ({0, 1, 2} if scheduler in ("fifo", "lifo") else {0, 2})

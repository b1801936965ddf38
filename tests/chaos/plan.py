"""The plan of a campaign: jobs, faults and their times, which depend only on the seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.chaos import work
from tests.chaos.work import Job
from tests.redis_servers import VERSIONS

#: Kinds of faults by family, and the parts that each kind can strike.
WORKERS, COORDINATORS = ("worker-0", "worker-1", "worker-2"), ("coordinator-0", "coordinator-1")
#: Runners execute programs. They connect to the coordinators but not to Redis.
RUNNERS = ("runner-0",)
PROCESSES = (*WORKERS, *COORDINATORS, *RUNNERS, "redis")
FAMILIES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "kill": {
        "kill": PROCESSES,
        "terminate": PROCESSES,
        "stop": PROCESSES,
        "kill-child": (*WORKERS, *RUNNERS),
        "stop-child": WORKERS,
        "cut-log": ("redis",),
    },
    "network": dict.fromkeys(("stall", "cut", "delay", "half-open", "lost-replies", "repeat"), ("network",)),
    "exhaust": {
        **dict.fromkeys(("disk-full", "memory-full", "forget-functions", "cut-clients", "delete-wakeups"), ("redis",)),
        "wrong-clock": WORKERS,
    },
}
#: Seconds of a round within which faults start; jobs start slightly earlier.
WINDOW_SECONDS = 12.0
FAULTS_A_ROUND = 5
#: Minimum and maximum duration of a fault in seconds.
_LASTS = {"stop": (0.2, 6.0), "stop-child": (0.2, 6.0), "half-open": (0.2, 4.0), "repeat": (3.0, 6.0)}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that is injected `at` seconds into the round and healed `seconds` later."""

    kind: str
    part: str
    at: float
    seconds: float
    #: Strength from 0 to 1, such as the lost part of the log, the delay or the clock, depending on the kind.
    amount: float

    def __str__(self) -> str:
        return f"{self.at:5.2f} s  {self.kind} {self.part} for {self.seconds:.2f} s, amount {self.amount:.2f}"


@dataclass(frozen=True, kw_only=True)
class Round:
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cluster of a seed and its rounds."""

    seed: int
    families: tuple[str, ...]
    #: Version of Redis.
    version: str
    workers: int
    rounds: tuple[Round, ...]

    def lines(self, jobs: bool = True) -> Iterator[str]:
        yield f"seed {self.seed} ({', '.join(self.families)}): Redis {self.version}, {self.workers} workers"
        for number, one in enumerate(self.rounds):
            yield f"round {number}: {len(one.jobs)} jobs"
            yield from (f"  {job}" for job in one.jobs if jobs)
            yield from (f"  {fault}" for fault in one.faults)


def make(seed: int, families: Sequence[str] = (), rounds: int = 1) -> Plan:
    """Return the plan of a seed. A larger number of rounds does not change the first rounds."""
    chosen = tuple(families) or tuple(FAMILIES)
    version, workers = VERSIONS[seed % 2], 2 + seed // 2 % 2
    played = tuple(
        _round(Random(f"round {seed} {','.join(chosen)} {number}"), chosen, workers, f"{seed}-{number}")
        for number in range(rounds)
    )
    return Plan(seed=seed, families=chosen, version=version, workers=workers, rounds=played)


def _round(draw: Random, families: Sequence[str], workers: int, name: str) -> Round:
    faults = sorted(_faults(draw, families, workers), key=lambda fault: fault.at)
    return Round(jobs=work.draw_jobs(draw, name, WINDOW_SECONDS), faults=tuple(faults))


def _faults(draw: Random, families: Sequence[str], workers: int) -> Iterator[Fault]:
    """Yield faults of different kinds as long as unused kinds remain, so that few rounds cover all kinds."""
    there = [(kind, parts) for family in families for kind, parts in FAMILIES[family].items()]
    for kind, parts in draw.sample(there, min(FAULTS_A_ROUND, len(there))):
        present = [part for part in parts if not part.startswith("worker") or int(part[-1]) < workers]
        yield Fault(
            kind=kind,
            part=draw.choice(present),
            at=round(draw.uniform(1.0, WINDOW_SECONDS), 2),
            seconds=round(draw.uniform(*_LASTS.get(kind, (0.2, 3.0))), 2),
            amount=round(draw.random(), 2),
        )

"""The plan of a campaign: jobs, faults and their moments, all drawn from the seed and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.chaos import work
from tests.chaos.work import Job
from tests.redis_servers import VERSIONS

#: Kinds of fault by family, and the parts that each may strike.
WORKERS, COORDINATORS = ("worker-0", "worker-1", "worker-2"), ("coordinator-0", "coordinator-1")
#: Runs programs; it reaches the coordinators and no Redis.
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
#: Faults begin within this many seconds of a round, jobs a little earlier.
WINDOW_SECONDS = 12.0
FAULTS_A_ROUND = 5
#: How many seconds a fault lasts, at least and at most.
_LASTS = {"stop": (0.2, 6.0), "stop-child": (0.2, 6.0), "half-open": (0.2, 4.0), "repeat": (3.0, 6.0)}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: it strikes `at` seconds into the round and is healed `seconds` later."""

    kind: str
    part: str
    at: float
    seconds: float
    #: In 0..1: how much of the log is lost, how long a delay is, which clock; the kind knows.
    amount: float

    def __str__(self) -> str:
        return f"{self.at:5.2f} s  {self.kind} {self.part} for {self.seconds:.2f} s, amount {self.amount:.2f}"


@dataclass(frozen=True, kw_only=True)
class Round:
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A seed's cluster and its rounds."""

    seed: int
    families: tuple[str, ...]
    #: Of Redis.
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
    """The plan of a seed. More rounds leave the first ones as they are."""
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
    """Kinds without repetition as long as there are any left, so that few rounds show all."""
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

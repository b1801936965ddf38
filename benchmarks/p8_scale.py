"""P8: a cluster of 1,000 devices, of which only the computing is left out, and 100,000 queued jobs.

Redis, the coordinator and the functions are real. Workers are asyncio clients in one process with nice 10. Rounds of
leases get shorter, so that each level has twice the calls of the one before, until the API's 99th percentile passes
the goal or the generator needs a core.

With QUICK=1 in the environment all is small, and the figures say nothing.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from benchmarks import placement
from benchmarks.load.generators import Generator, coordinated, generating
from benchmarks.measure import Row
from benchmarks.stages import Stages
from jobs.models import QUANTUM_SECONDS
from jobs.store.server.connection import Client
from tests.integration.live import Live, until

GOAL_MS, GOAL_MICROSECONDS = 100.0, 100.0
#: Length of a real lease.
REAL_SECONDS = 1.0
WARM_SECONDS = 6.0
#: Seconds after which nothing more is begun: what runs then ends within half a minute.
BUDGET_SECONDS = 660.0
#: Seconds between two requests of each route.
PROBE_SECONDS = 0.2
_BATCH = 1000
#: A level is not counted where the generator had less than this part of a core left.
_BUSY = 0.95
JOB = {"type": "collatz", "parameters": {"mode": "verify", "start_number": 1, "number_count": 2**40}}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much there is of everything."""

    workers: int = 1000
    jobs: int = 100_000
    listeners: int = 1000
    #: Lengths of leases in seconds, one level each.
    lengths: tuple[float, ...] = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
    level_seconds: float = 20.0
    #: Rounds in which a decision is timed, and calls in each.
    rounds: int = 9
    calls: int = 1000


FULL = Size()
QUICK = Size(workers=50, jobs=2000, listeners=50, lengths=(1.0, 0.25), level_seconds=3.0, rounds=3, calls=200)


def quantile(times: Sequence[float], part: float) -> float:
    """Return the quantile of at least one figure."""
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def queue_jobs(live: Live, count: int, stages: Stages | None = None) -> float:
    """Submit jobs in batches; return how many a second."""
    began = time.perf_counter()
    for at in range(0, count, _BATCH):
        answer = live.post("/api/submit-batch", {"jobs": [JOB] * min(_BATCH, count - at)})
        assert answer.status_code < 300, answer.text
        if stages and at % (10 * _BATCH) == 0:
            stages.say(f"{at + _BATCH} of {count} jobs queued")
    return count / (time.perf_counter() - began)


# -- levels -----------------------------------------------------------------------------------------------------------


@dataclass
class Level:
    """Figures measured during one level."""

    seconds: float = 0.0
    #: Milliseconds of requests, by route; from the moment that each was due.
    times: dict[str, list[float]] = field(default_factory=dict)
    #: Done a second, by what: functions, commits, jobs.
    rates: dict[str, float] = field(default_factory=dict)
    #: Cores that each process used.
    cores: dict[str, float] = field(default_factory=dict)
    #: What requests that failed were answered.
    failed: list[str] = field(default_factory=list)
    #: Greatest lateness of a wake-up in the generator, in seconds.
    late: float = 0.0

    def p(self, part: float) -> float:
        """Return a quantile of the milliseconds of all requests."""
        return quantile([one for times in self.times.values() for one in times], part)

    def line(self) -> str:
        """Return the level on one line."""
        routes = ", ".join(f"{name} {quantile(times, 0.99):.0f}" for name, times in self.times.items())
        done = ", ".join(f"{rate:,.0f} {name}" for name, rate in self.rates.items() if name not in ("cpu", "late"))
        cores = ", ".join(f"{name} {share:.2f}" for name, share in self.cores.items())
        times = f"p50 {self.p(0.5):.1f} p99 {self.p(0.99):.1f} ms ({routes})"
        return f"{times}; a second: {done}; cores: {cores}; late {self.late:.2f} s; {len(self.failed)} failed"


def routes(job: str) -> dict[str, tuple[str, str, Any]]:
    """Return the requests of a probe, by name."""
    return {
        "submit": ("POST", "/api/submit", JOB),
        "job": ("GET", f"/api/jobs/{job}", None),
        "jobs": ("GET", "/api/jobs?limit=50", None),
        "status": ("GET", "/api/status", None),
    }


def probe(live: Live, request: tuple[str, str, Any], seconds: float, times: list[float], failed: list[str]) -> None:
    """Make a request each PROBE_SECONDS; append the milliseconds of each, from when it was due, and what failed."""
    method, path, body = request
    with httpx.Client(base_url=live.url(), timeout=60) as client:
        client.get("/health")
        began = due = time.perf_counter()
        while due - began < seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            answer = client.request(method, path, json=body)
            if not answer.is_success:
                failed.append(answer.text)
            times.append((time.perf_counter() - due) * 1000)
            due += PROBE_SECONDS


def measure(
    live: Live, requests: dict[str, tuple[str, str, Any]], generator: Generator | None, seconds: float
) -> Level:
    """Probe the API, and count what everybody did meanwhile."""
    level = Level(times={name: [] for name in requests})
    processes = {name: psutil.Process(live.processes[name].pid) for name in ("redis", "coordinator-0")}
    before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    first = dict(generator.last) if generator else {}
    began = time.perf_counter()
    if generator:
        generator.late = 0.0
    probes = [
        threading.Thread(target=probe, args=(live, request, seconds, level.times[name], level.failed), daemon=True)
        for name, request in requests.items()
    ]
    for thread in probes:
        thread.start()
    for thread in probes:
        thread.join()
    level.seconds = time.perf_counter() - began
    level.cores = {
        name: (sum(process.cpu_times()[:2]) - before[name]) / level.seconds for name, process in processes.items()
    }
    if generator:
        level.rates = {what: (count - first.get(what, 0)) / level.seconds for what, count in generator.last.items()}
        level.cores["generator"] = level.rates["cpu"]
        level.late = generator.late
    assert all(level.times.values()), "a probe failed"
    return level


def levels(live: Live, size: Size, stages: Stages) -> list[Level]:
    """Return what was measured at each length of leases, at least of real ones, up to the first that overloads."""
    [job] = live.get("/api/jobs?limit=1")["jobs"]
    measured: list[Level] = []
    url, warm = live.redis_url("worker"), WARM_SECONDS if size.level_seconds >= WARM_SECONDS else 0.0
    with generating("simulated_workers", url, size.workers, size.lengths[0]) as generator:
        until(lambda: live.get("/api/status")["workers"]["ready"] >= 0.95 * size.workers, 120, 0.5)
        stages.say(f"{size.workers} workers are ready")
        until(lambda: generator.last.get("commits", 0) >= size.workers, 120, 0.1)
        for length in size.lengths:
            if measured and stages.left() < warm + size.level_seconds:
                stages.say(f"leases of {length} s and shorter are left out: no time is left")
                break
            generator.say(length)
            time.sleep(warm)
            level = measure(live, routes(job["job_id"]), generator, size.level_seconds)
            stages.say(f"leases of {length} s: {level.line()}")
            measured.append(level)
            slow = level.failed or level.p(0.99) > GOAL_MS
            if level.cores["generator"] > _BUSY or (slow and length <= REAL_SECONDS):
                break
    return measured


# -- rows -------------------------------------------------------------------------------------------------------------


def row(name: str, ours: float, goal: float, unit: str) -> Row:
    """Return a row of a time that should be below a goal; noise that made it none counts as a little."""
    ours = max(ours, goal / 1000)
    return Row(id=f"P8@{name}", ours=ours, peer=goal, unit=unit, peer_name="the goal", less_is_better=True)


def placement_rows(size: Size, tenants: int, stages: Stages) -> Iterator[Row]:
    """Yield what a decision and a lease cost Redis. Times are medians over rounds of a round's quantiles."""
    name = f"-{tenants}-tenants" if tenants > 1 else ""
    with placement.redis_on_socket() as client:
        state = placement.Devices(client, devices=size.workers, waiting=size.jobs, tenants=tenants, say=stages.say)
        stages.say(f"{size.workers} devices hold a job each, {size.jobs} jobs wait")
        rounds = [placement.microseconds(state, size.calls) for _ in range(size.rounds)]
        unit = f"us, {size.workers} devices, {size.jobs} jobs wait"
        yield from _decision_rows(f"placement{name}", rounds, unit, stages)
        yield _capacity_row(f"leases-of-a-core{name}", client, state, size, stages)


def _decision_rows(
    name: str, rounds: Sequence[tuple[list[float], list[float]]], unit: str, stages: Stages
) -> Iterator[Row]:
    for percent in (50, 99):
        took = [quantile(ours, percent / 100) - quantile(empty, percent / 100) for ours, empty in rounds]
        stages.say(f"{name}: p{percent} of rounds {' '.join(f'{one:.0f}' for one in sorted(took))} us")
        yield row(f"{name}-p{percent}", statistics.median(took), GOAL_MICROSECONDS, unit)


def _capacity_row(name: str, client: Client, state: placement.Devices, size: Size, stages: Stages) -> Row:
    """Return the leases of a second each that fill one core of Redis, by the CPU time of their functions.

    Each lane has one lease and one beat a second, and a slot of five seconds.
    """
    steps = {"commit and lease": state.go_on, "beats": state.beat, "slot": state.decide_and_begin}
    cost = {what: placement.redis_microseconds(client, step, size.calls) for what, step in steps.items()}
    cost["slot"] /= QUANTUM_SECONDS
    used = client.info("memory")["used_memory"] / 1e6
    said = ", ".join(f"{what} {one:.0f}" for what, one in cost.items())
    stages.say(f"{name}: us of CPU for each lane and second: {said}; Redis uses {used:.0f} MB")
    rate = 1e6 / sum(cost.values())
    return Row(
        id=f"P8@{name}",
        ours=rate,
        peer=size.workers,
        unit=f"leases/s of Redis' CPU: {said} us",
        peer_name="a lease a second of each device",
    )


def level_rows(measured: Sequence[Level], workers: int, jobs: int) -> Iterator[Row]:
    """Yield the API's time at the level of real leases, and the highest rate of leases within the goal."""
    usual = min(measured, key=lambda level: abs(level.rates["commits"] - workers))
    yield row("api-p99", usual.p(0.99), GOAL_MS, f"ms, {_said(usual)}, {jobs} jobs wait")
    within = [level for level in measured if level.p(0.99) <= GOAL_MS and not level.failed]
    if within:
        best = max(within, key=lambda level: level.rates["commits"])
        rate = best.rates["commits"]
        yield Row(
            id="P8@leases",
            ours=rate,
            peer=workers,
            unit=f"leases/s, {_said(best)}",
            peer_name="a lease a second of each device",
        )


def _said(level: Level) -> str:
    cores = ", ".join(f"{name.removesuffix('-0')} {share:.2f}" for name, share in level.cores.items())
    return f"{level.rates['commits']:.0f} leases/s, cores: {cores}"


def listener_rows(live: Live, size: Size, stages: Stages) -> Iterator[Row]:
    """Yield the time of a submit while listeners hear of each."""
    submit = {"submit": routes("")["submit"]}
    alone = measure(live, submit, None, size.level_seconds / 2)
    stages.say(f"submits alone: {alone.line()}")
    with generating("listeners", live.ports[0], size.listeners) as generator:
        level = measure(live, submit, generator, size.level_seconds)
    stages.say(f"submits with {size.listeners} listeners: {level.line()}")
    cores = ", ".join(f"{name.removesuffix('-0')} {share:.2f}" for name, share in level.cores.items())
    for percent in (50, 99):
        unit = f"ms, {size.listeners} listeners, cores: {cores}"
        yield row(f"listeners-submit-p{percent}", level.p(percent / 100), GOAL_MS, unit)


def worker_rows(live: Live, size: Size, stages: Stages) -> Iterator[Row]:
    """Yield what the API and the leases do while all workers work."""
    yield from level_rows(levels(live, size, stages), size.workers, size.jobs)


def cluster_rows(size: Size, stages: Stages) -> None:
    """Measure a whole cluster: queue the jobs, then listeners, then workers."""
    with coordinated() as live:
        rate = queue_jobs(live, size.jobs, stages)
        stages.say(f"{size.jobs} jobs queued at {rate:.0f} a second; {_memory(live)}")
        stages.run("listeners", lambda: listener_rows(live, size, stages))
        stages.run("workers", lambda: worker_rows(live, size, stages))
        stages.say(_memory(live))


def _memory(live: Live) -> str:
    return f"Redis uses {live.redis().info('memory')['used_memory'] / 1e6:.0f} MB"


def run() -> list[Row]:
    """Return all rows. Incomplete, with those that there are, where something failed or no time was left."""
    size = QUICK if os.environ.get("QUICK") else FULL
    with Stages("P8", BUDGET_SECONDS) as stages:
        stages.say(
            f"ends within {BUDGET_SECONDS / 60 + 1:.0f} minutes; Ctrl-C ends it at once and leaves nothing behind"
        )
        stages.run("decisions", lambda: placement_rows(size, 1, stages))
        stages.run("decisions with ten tenants", lambda: placement_rows(size, 10, stages))
        stages.run("a cluster", lambda: cluster_rows(size, stages))
        return stages.rows()

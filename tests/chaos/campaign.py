"""Plays a plan: rounds of jobs under faults, each of which is judged after all faults have been healed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.chaos import faults, listener, verdict
from tests.chaos.bench import Bench
from tests.chaos.customer import Customer, GaveUp, lost_with_the_log
from tests.chaos.listener import Listener
from tests.chaos.plan import Fault, Plan, Round
from tests.chaos.verdict import Findings

#: Seconds after the last fault was healed, after which an unfinished job counts as stuck.
DEADLINE_SECONDS = 150.0
#: Seconds within which all leases, holds and wakeups must be gone and every worker must be ready.
REST_SECONDS = 120.0


@dataclass
class Tally:
    """Counts and findings of a campaign."""

    seeds: int = 0
    jobs: int = 0
    repeated: int = 0
    submitted_again: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)

    def lines(self) -> Iterator[str]:
        for kind, count in sorted(self.struck.items()):
            yield f"  {kind:16} {count:5}"
        for why, count in self.skipped.items():
            yield f"  skipped: {why} ({count})"
        counts = {
            "seeds": self.seeds,
            "faults": sum(self.struck.values()),
            "calls repeated": self.repeated,
            "jobs": self.jobs,
            "lost with the log and submitted again": self.submitted_again,
            **{heading: len(sentences) for heading, sentences in self.findings.told.items()},
        }
        width = max(map(len, counts))
        yield from (f"{name:{width}} {count:7}" for name, count in counts.items())


class Game:
    """Plays the rounds of one plan on one bench."""

    def __init__(self, bench: Bench, plan: Plan, tally: Tally) -> None:
        self.bench, self.plan, self.tally = bench, plan, tally
        self.findings = Findings()
        self.urls = [bench.url(number) for number in range(len(bench.ports))]
        self.customer = Customer(self.urls, plan.seed, bench.headers())
        #: A lock per part, because only one fault at a time can strike a part.
        self.parts = {fault.part: threading.Lock() for one in plan.rounds for fault in one.faults}

    def play(self, number: int) -> None:
        one = self.plan.rounds[number]
        self.began = time.monotonic()
        self.since = last_event(self.bench.redis())
        listeners = [
            Listener(self.urls, self.since, 2 * self.plan.seed + which, self.bench.headers()) for which in (0, 1)
        ]
        threads = [threading.Thread(target=self._strike, args=(fault,), daemon=True) for fault in one.faults]
        threads.append(threading.Thread(target=self._serve, args=(one,), daemon=True))
        for thread in (*listeners, *threads):
            thread.start()
        try:
            self._watch(threads)
            self._say("faults healed")
            self._judge()
            last = last_event(self.bench.redis())
            for listening in listeners:
                listening.catch_up(last)
        finally:
            for thread in threads:
                thread.join()
            for listening in listeners:
                listening.end()
        self._judge_events(listeners, last)
        self.tally.jobs += len(one.jobs)

    def _say(self, text: str) -> None:
        print(f"    {time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def _found(self, heading: str, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._say(f"{heading}: {sentence}")
        self.findings.add(heading, sentences)

    def _serve(self, one: Round) -> None:
        try:
            self.customer.serve(one.jobs)
        except GaveUp as error:
            self._found("stuck", [str(error)])

    def _strike(self, fault: Fault) -> None:
        """Inject a fault at its time, or when its part is healthy again, and heal it."""
        time.sleep(max(0.0, self.began + fault.at - time.monotonic()))
        with self.parts[fault.part]:
            try:
                with faults.STRIKES[fault.kind](self.bench, fault):
                    time.sleep(fault.seconds)
                self.tally.struck[fault.kind] += 1
            except faults.CannotStrike as error:
                self.tally.skipped[str(error)] += 1
            except Exception as error:  # A part misbehaved, for example by not stopping on request.
                self._found("stuck", [f"{fault}: {type(error).__name__}: {error}"])

    def _watch(self, threads: list[threading.Thread]) -> None:
        """Check the invariants that must always hold, until all threads have ended."""
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
                with contextlib.suppress(redis.RedisError):
                    self._found("left over", verdict.breaches(verdict.look(self.bench.redis())))

    # -- after a round ------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        lost = lost_with_the_log(self.bench.deaths)
        before = sum(len(order.ids) for order in self.customer.orders)
        try:
            self._found("stuck", self.customer.settle(DEADLINE_SECONDS, lost))
            self._say("jobs ended")
            self.customer.collect()
        except GaveUp as error:
            self._found("stuck", [str(error)])
        self.tally.submitted_again += sum(len(order.ids) for order in self.customer.orders) - before
        self._found("wrong results", verdict.wrong_results(self.customer.orders))
        self._found("left over", self._left_over())
        self._say("judged")

    def _left_over(self) -> list[str]:
        """List what is left in Redis and which processes are left after REST_SECONDS."""
        jobs = {known for order in self.customer.orders for known in order.ids}
        deadline = time.monotonic() + REST_SECONDS
        while True:
            told = verdict.left_over(verdict.look(self.bench.redis()), jobs, self.bench.workers + 1)
            told += verdict.strays(self.bench) + verdict.programs(jobs)
            if not told or time.monotonic() > deadline:
                return told
            time.sleep(0.5)

    def _judge_events(self, listeners: Sequence[Listener], last: str) -> None:
        """Check the events of all listeners. Events after `last`, such as the loss of a worker, are optional."""
        written = events_after(self.bench.redis(), self.since)
        cut = any(at > self.began for at, _ in self.bench.deaths)
        for one in listeners:
            awaited = {event: what for event, what in written.items() if not_after(event, last) or event in one.ids}
            told = listener.problems(one.ids, awaited, cut, one.anew)
            self._found("events", [f"{text} ({one.connections} connections)" for text in told])


def last_event(client: Any) -> str:
    return str(client.xrevrange("ct:events", count=1)[0][0].decode())


def not_after(event: str, last: str) -> bool:
    return listener.position(event) <= listener.position(last)


def events_after(client: Any, since: str) -> dict[str, str]:
    """Return the types of job and worker events after a position, keyed by event ID."""
    return {where.decode(): fields[b"type"].decode() for where, fields in client.xrange("ct:events", f"({since}", "+")}


def run(plan: Plan, tally: Tally) -> Findings:
    """Play a plan on a separate cluster and add its findings to the tally. The logs are kept if there are findings."""
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{plan.seed}-"))
    found = _played(folder, plan, tally)
    tally.seeds += 1
    for heading, sentences in found.told.items():
        tally.findings.add(heading, [f"seed {plan.seed}: {sentence}" for sentence in sentences])
    if list(found):
        print(f"logs: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return found


def _played(folder: Path, plan: Plan, tally: Tally) -> Findings:
    bench = Bench(folder, version=plan.version, workers=plan.workers)
    game = Game(bench, plan, tally)
    try:
        bench.start()
        for number in range(len(plan.rounds)):
            game.play(number)
    finally:
        bench.stop()
        game.customer.close()
        tally.repeated += bench.proxy.repeated
    game.findings.add("left over", [f"process {one} outlived its cluster" for one in bench.all_processes()])
    game.findings.add("tracebacks", verdict.tracebacks(folder))
    return game.findings

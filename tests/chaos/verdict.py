"""Judges a round by results, Redis keys, processes and logs. Every finding is a sentence below a heading."""

from __future__ import annotations

import contextlib
import json
import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import redis

from tests.chaos import work
from tests.chaos.bench import SLOTS, Bench
from tests.chaos.customer import Order
from tests.contract import lease_invariants
from tests.contract.lease_model import DUMP, JobView, Snapshot

HEADINGS = ("wrong results", "stuck", "left over", "events", "tracebacks")

#: Keys of an idle cluster in addition to the jobs' keys; docs/lease-protocol.md describes them all.
MAY_STAY = re.compile(
    r"ct:(jobs|in:(done|failed|cancelled)|expiry|workers(:(cpu|runner))?|worker:(worker|runner)-\d|nodes|events|idem:.*|mark:.*|load"
    r"|seq|sweep:.*|audit(log|head)|leader|libraries|release|rewritten|span|spans|history(:now)?|alerts|desired|pace|units|outcomes|submitted|ended|waits"
    r"|durations|usages|usage:.*|token:.*|tokens|tokenset|tokenhash.*|shapes"
    r"|artifacts?:.*|holders:.*|files:.*|filesums|filestore|loose|unowned|grace|workflowfigures|tunnel:.*)"
    r"|rq:(queues|workers(:.*)?|worker:.*|job:wakeup)"
    r"|test:clock"
)
#: Keys of a finished job.
JOB_MAY_STAY = re.compile(r"ct:job:([^:]+)(:result|:ev|:files|:failures|:kept)?")
#: Clock for the invariants of the lease model. The clock of this Redis never steps back.
_CLOCK: Any = SimpleNamespace(stepped_back=0)
#: Patterns of tracebacks in logs that are not faults, with the reasons.
EXPLAINED: dict[str, str] = {}


@dataclass
class Findings:
    """Findings as sentences, keyed by heading."""

    told: dict[str, list[str]] = field(default_factory=lambda: {heading: [] for heading in HEADINGS})

    def add(self, heading: str, sentences: Iterable[str]) -> None:
        self.told[heading] += sentences

    def __iter__(self) -> Iterator[str]:
        return (f"{heading}: {sentence}" for heading, sentences in self.told.items() for sentence in sentences)


def wrong_results(orders: Sequence[Order]) -> list[str]:
    """List results that differ in any bit from those of an undisturbed run."""
    return [
        f"{order.job.key} ({order.job_id}): {short(order.result)} instead of {short(expected)}"
        for order in orders
        if order.state == "done"
        and canonical(order.result) != canonical(expected := work.undisturbed(order.job.kind, order.job.parameters))
    ]


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) < 200 else f"{text[:200]}... ({len(text)} characters)"


def look(client: redis.Redis) -> Snapshot:
    """Return a snapshot of Redis at one moment of Redis' clock. Streams are included without their entries."""
    seconds, micros = client.time()
    dumped: bytes = client.eval(DUMP, 0, f"{seconds + 86400}000-0")
    keys = json.loads(dumped.decode(errors="replace"))  # RQ packs the arguments of a wakeup job
    return Snapshot({**keys, "test:clock": str(seconds * 1000 + micros // 1000)})


def left_over(seen: Snapshot, jobs: set[str], workers: int) -> list[str]:
    """List violations after every job has ended. `jobs` contains the IDs that clients know."""
    told = breaches(seen)
    for check in (partial(_at_rest, seen), partial(_all_workers, seen, workers)):
        told += _said(check)
    told += [f"job {job} was made for nobody" for job in seen.jobs if job not in jobs]
    return told + [f"key {name} is left" for name in seen.keys if not _may_stay(name, seen)]


def _said(check: Callable[[], None]) -> list[str]:
    """Return the message of a failed assertion and its location, or nothing."""
    try:
        check()
    except AssertionError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{where.name}: {error or where.line} ({where.line})"]
    return []


def _at_rest(seen: Snapshot) -> None:
    """Check that nothing is pending, held or waiting for a wakeup."""
    lease_invariants.at_rest(seen)


def _all_workers(seen: Snapshot, workers: int) -> None:
    live = seen.zset("ct:workers")
    assert len(live) == workers, f"{sorted(live)} are alive, not {workers} workers"


def _may_stay(name: str, seen: Snapshot) -> bool:
    job = JOB_MAY_STAY.fullmatch(name)
    if (acc := re.fullmatch(r"ct:job:([^:]+):acc", name)) and acc[1] in seen.jobs:
        return seen.jobs[acc[1]].fields.get("kind") == "command"  # the API reads unit records from it
    return job[1] in seen.jobs if job else bool(MAY_STAY.fullmatch(name) or name.startswith("rq:job:"))


def breaches(seen: Snapshot) -> list[str]:
    """List violations of the invariants that must hold at any moment."""
    checks: list[Callable[[], None]] = [
        lambda: lease_invariants.indexes_agree(seen),
        lambda: lease_invariants.load_is_the_sum(seen),
        *(partial(_holds, seen, view) for view in seen.jobs.values()),
    ]
    return [sentence for check in checks for sentence in _said(check)]


def _holds(seen: Snapshot, view: JobView) -> None:
    lease_invariants.leases_agree(view)
    lease_invariants.done_has_a_result_and_nothing_else(view)
    lease_invariants.all_done_means_finishing(view)
    lease_invariants.somebody_looks_at_every_job(_CLOCK, seen, view)
    lease_invariants.holders_are_counted(seen, view)
    _covers(view)


def _covers(view: JobView) -> None:
    """Check that leased, free, retried and dead units are disjoint, and with the done ones all issued units."""
    pieces, at = sorted(view.pieces()), 0
    for lo, hi in pieces:
        assert at <= lo < hi, ("1", view.job_id, pieces)
        at = hi
    assert view.number("done") + sum(hi - lo for lo, hi in pieces) == view.number("cursor"), ("2", view.job_id)


def strays(bench: Bench) -> list[str]:
    """List processes of the bench without a running parent, and workers with a wrong number of lanes."""
    there, kept = bench.all_processes(), set[int]()
    for process in bench.processes.values():
        kept.add(process.pid)
        with contextlib.suppress(psutil.Error):  # the process or one of its children has exited
            kept |= {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
    lanes = {name: len(bench.lanes_of(name)) for name in bench.processes if name.startswith(("worker", "runner"))}
    late = [f"{name} is not ready" for name in lanes if not bench.ready(name)]
    told = [f"process {pid} is left: {_command(process)}" for pid, process in there.items() if pid not in kept]
    wanted = {name: SLOTS if name.startswith("runner") else bench.lanes for name in lanes}
    return told + late + [f"{name} has {count} lanes" for name, count in lanes.items() if count != wanted[name]]


def programs(jobs: set[str]) -> list[str]:
    """List processes left by programs of these jobs. Their environment contains the job's ID."""
    told = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("CLUSTER_JOB_ID") in jobs and process.status() != psutil.STATUS_ZOMBIE:
                told.append(f"process {process.pid} of a program is left: {_command(process)}")
    return told


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())[:200]
    return "gone by now"


def tracebacks(folder: Path) -> list[str]:
    """List unexplained tracebacks in all logs: the last line of each kind without its numbers, and the count."""
    seen: dict[str, int] = defaultdict(int)
    for path in sorted(folder.glob("*.log")):
        for text in _raised(path.read_text(errors="replace")):
            if not any(re.search(pattern, text) for pattern in EXPLAINED):
                last = re.sub(r"[0-9a-f]{16,}|\d+", "N", text.strip().splitlines()[-1])
                seen[f"{path.name}: {last[:160]}"] += 1
    return [f"{text} ({count} times)" for text, count in seen.items()]


def _raised(log: str) -> Iterator[str]:
    """Yield the text of each traceback, from JSON lines or from plain text."""
    plain: list[str] = []
    for line in log.splitlines():
        if line.startswith("{"):
            with_exception = json.loads(line).get("exception") if '"exception"' in line else None
            if with_exception:
                yield with_exception
        elif plain or line.startswith("Traceback (most recent") or "REDIS BUG REPORT" in line:
            plain.append(line)
            if not line.startswith((" ", "Traceback")):
                yield "\n".join(plain)
                plain.clear()

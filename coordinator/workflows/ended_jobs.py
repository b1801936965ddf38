"""Jobs of workflows that are done: what they left is read in pipelines, and kept within a bound of bytes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coordinator.workflows.documents.references import Unfilled
from jobs.store.workflows import DoneHead, DoneJob, Workflows

#: Bytes that one reference reads at most: in memory they become many times as many.
MAX_READ = 8 << 20
#: Units of a program whose values and artifacts one action may be given.
MAX_UNITS = 10_000
#: Bytes that are kept of what was read last, and those that a job takes beside its texts.
MAX_BYTES, _JOB_BYTES = 32 << 20, 500
#: Jobs that are read in one round trip, and seconds of reading after which others have their turn.
TOGETHER, BATCH_SECONDS = 500, 0.25
#: Turns after which a reading is interrupted no more: others may have pushed out what it had read.
_TURNS = 20


class Unread(Exception):
    """There is more to read than one turn may; what was read is kept for the next."""


class Source(NamedTuple):
    """Job of an action, or of one item of a foreach."""

    key: str
    job: str
    #: Values and artifacts of its units are wanted, too.
    with_units: bool


class EndedJobs:
    """Reads jobs that are done, of which nothing changes any more. One thread's."""

    def __init__(self, store: Workflows, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self.kept_jobs: OrderedDict[tuple[str, Source], DoneJob] = OrderedDict()
        self.kept_bytes = 0
        self._turns: dict[str, int] = {}

    def read_jobs(self, workflow: str, sources: Sequence[Source]) -> list[DoneJob]:
        """Return these jobs of a workflow, each as it was left.

        Raises Unfilled for one that is gone or broken, and beyond MAX_READ and MAX_UNITS; Unread: call again later.
        """
        until = self._clock() + BATCH_SECONDS
        found: list[DoneJob] = []
        left = MAX_READ
        for first in range(0, len(sources), TOGETHER):
            some = sources[first : first + TOGETHER]
            if first and self._clock() > until and not self._is_kept(workflow, some):
                self._interrupt(workflow)
            several = self._some(workflow, some, left)
            left -= sum(job.bytes for job in several)
            found += several
        self._turns.pop(workflow, None)
        return found

    def _is_kept(self, workflow: str, some: Sequence[Source]) -> bool:
        return all((workflow, one) in self.kept_jobs for one in some)

    def _interrupt(self, workflow: str) -> None:
        turns = self._turns[workflow] = self._turns.get(workflow, 0) + 1
        if len(self._turns) > 1000:  # of workflows that were cancelled meanwhile
            self._turns.clear()
        if turns <= _TURNS:
            raise Unread

    def _some(self, workflow: str, some: Sequence[Source], most: int) -> list[DoneJob]:
        """Return jobs that have at most `most` bytes together."""
        known = {one: kept for one in some if (kept := self._find(workflow, one))}
        missing = [one for one in some if one not in known]
        heads = self._heads(missing, most - sum(job.bytes for job in known.values()))
        wanted = [(one.job, head.units if one.with_units else 0) for one, head in zip(missing, heads, strict=True)]
        for one, job in zip(missing, self._store.done_jobs(wanted), strict=True):
            known[one] = job
            self._keep(workflow, one, job)
        return [known[one] for one in some]

    def _heads(self, sources: Sequence[Source], most: int) -> list[DoneHead]:
        """Return what tells how much is to be read. Unfilled where it is too much."""
        heads: list[DoneHead] = []
        size = 0
        for one, head in zip(sources, self._store.done_heads([one.job for one in sources]), strict=True):
            if head is None:
                raise Unfilled(f"{one.key}: there is no job {one.job}, or what is stored of it cannot be read")
            if one.with_units and head.units > MAX_UNITS:
                raise Unfilled(f"{one.key} has {head.units} units; references reach those of at most {MAX_UNITS}")
            size += head.bytes(with_units=one.with_units)
            if size > most:
                raise Unfilled(_too_much(one, size + MAX_READ - most))
            heads.append(head)
        return heads

    def _find(self, workflow: str, one: Source) -> DoneJob | None:
        kept = self.kept_jobs.get((workflow, one))
        if kept:
            self.kept_jobs.move_to_end((workflow, one))
        return kept

    def _keep(self, workflow: str, one: Source, job: DoneJob) -> None:
        self.kept_jobs[workflow, one] = job
        self.kept_bytes += job.bytes + _JOB_BYTES
        while self.kept_bytes > MAX_BYTES:
            _, old = self.kept_jobs.popitem(last=False)
            self.kept_bytes -= old.bytes + _JOB_BYTES


def _too_much(one: Source, size: int) -> str:
    action, _, item = one.key.partition("/")
    what = f"the results of its first {int(item) + 1} items have" if item else "what its job left has"
    which = f"one item, ${{{action}.results.0}}" if item else "a job with fewer units"
    return (
        f"{action}: {what} {size} bytes; a reference reads at most {MAX_READ}: refer to {which}, or let jobs leave "
        "files and refer to their artifacts"
    )

"""Cache of finished jobs' results, which limits its size in bytes and reads jobs in pipelines."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coordinator.workflows.documents.references import Unfilled
from jobs.store.workflows import JobOutput, OutputSizes, Workflows

#: Maximum size in bytes of the results that one reference reads. Parsed values need several times as much memory.
MAX_READ = 8 << 20
#: Maximum number of a program's units whose values and artifacts one reference reads.
MAX_UNITS = 10_000
#: Maximum size of the cache in bytes.
#: Overhead in bytes that is counted for each cached job.
MAX_BYTES, _JOB_BYTES = 32 << 20, 500
#: Number of jobs read per round trip.
#: Seconds of reading after which other workflows get their turn.
BATCH_SIZE, BATCH_SECONDS = 500, 0.25
#: Number of interruptions after which a read runs to its end. Other workflows may have evicted the jobs read before.
_TURNS = 20


class ReadInterrupted(Exception):
    """Error raised if reading takes longer than one time slice. The jobs read so far are cached; call again to
    continue.
    """


class Source(NamedTuple):
    """The job of an action, or of one item of a foreach."""

    key: str
    job: str
    #: Whether the values and artifacts of the job's units are needed.
    with_units: bool


class EndedJobs:
    """Reads finished jobs and caches their results. For use by one thread."""

    def __init__(self, store: Workflows, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self.kept_jobs: OrderedDict[tuple[str, Source], JobOutput] = OrderedDict()
        self.kept_bytes = 0
        self._turns: dict[str, int] = {}

    def read_jobs(self, workflow: str, sources: Sequence[Source]) -> list[JobOutput]:
        """Return these jobs of a workflow with their results.

        Raises Unfilled if a job is missing or unreadable, or if MAX_READ or MAX_UNITS is exceeded. Raises
        ReadInterrupted if the caller must call again to continue.
        """
        until = self._clock() + BATCH_SECONDS
        found: list[JobOutput] = []
        left = MAX_READ
        for first in range(0, len(sources), BATCH_SIZE):
            some = sources[first : first + BATCH_SIZE]
            if first and self._clock() > until and not self._is_kept(workflow, some):
                self._interrupt(workflow)
            several = self._read_batch(workflow, some, left)
            left -= sum(job.bytes for job in several)
            found += several
        self._turns.pop(workflow, None)
        return found

    def _is_kept(self, workflow: str, some: Sequence[Source]) -> bool:
        return all((workflow, one) in self.kept_jobs for one in some)

    def _interrupt(self, workflow: str) -> None:
        turns = self._turns[workflow] = self._turns.get(workflow, 0) + 1
        if len(self._turns) > 1000:  # remove entries of workflows that were cancelled during a read
            self._turns.clear()
        if turns <= _TURNS:
            raise ReadInterrupted

    def _read_batch(self, workflow: str, some: Sequence[Source], most: int) -> list[JobOutput]:
        """Return a batch of jobs. Raises Unfilled if the total size of the jobs exceeds `most` bytes."""
        known = {one: kept for one in some if (kept := self._find(workflow, one))}
        missing = [one for one in some if one not in known]
        heads = self._heads(missing, most - sum(job.bytes for job in known.values()))
        wanted = [(one.job, head.units if one.with_units else 0) for one, head in zip(missing, heads, strict=True)]
        for one, job in zip(missing, self._store.done_jobs(wanted), strict=True):
            known[one] = job
            self._keep(workflow, one, job)
        return [known[one] for one in some]

    def _heads(self, sources: Sequence[Source], most: int) -> list[OutputSizes]:
        """Return the sizes of jobs. Raises Unfilled if the jobs exceed a limit."""
        heads: list[OutputSizes] = []
        size = 0
        for one, head in zip(sources, self._store.done_heads([one.job for one in sources]), strict=True):
            if head is None:
                raise Unfilled(f"{one.key}: job {one.job} does not exist, or its stored data is corrupt")
            if one.with_units and head.units > MAX_UNITS:
                raise Unfilled(f"{one.key} has {head.units} units; a reference can read up to {MAX_UNITS}")
            size += head.bytes(with_units=one.with_units)
            if size > most:
                raise Unfilled(_describe_excess(one, size + MAX_READ - most))
            heads.append(head)
        return heads

    def _find(self, workflow: str, one: Source) -> JobOutput | None:
        kept = self.kept_jobs.get((workflow, one))
        if kept:
            self.kept_jobs.move_to_end((workflow, one))
        return kept

    def _keep(self, workflow: str, one: Source, job: JobOutput) -> None:
        self.kept_jobs[workflow, one] = job
        self.kept_bytes += job.bytes + _JOB_BYTES
        while self.kept_bytes > MAX_BYTES:
            _, old = self.kept_jobs.popitem(last=False)
            self.kept_bytes -= old.bytes + _JOB_BYTES


def _describe_excess(one: Source, size: int) -> str:
    action, _, item = one.key.partition("/")
    what = f"the results of its first {int(item) + 1} items have" if item else "the results of its job have"
    which = f"one item, ${{{action}.results.0}}" if item else "a job with fewer units"
    return (
        f"{action}: {what} {size} bytes; a reference can read {MAX_READ}: refer to {which}, or let jobs write "
        "files and refer to their artifacts"
    )

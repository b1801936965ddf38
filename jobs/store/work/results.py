"""Results of jobs. Partial results are merged step by step, and the job's result is derived from the merged one."""

from __future__ import annotations

from jobs.partial_reader import GatheredPartials, sha1
from jobs.store import keys, repairs
from jobs.store.server.connection import ResponseError, wrong_type
from jobs.store.server.functions import Part

#: Maximum size in bytes of the partial results that one call reads, if many calls share the memory.
SOME_BYTES = 8 << 20


class Results(Part):
    """Reads and merges partial results in Redis, and finishes jobs."""

    def gather(self, job: str, limit: int = 256) -> GatheredPartials:
        """Return the merged partial result and up to `limit` others, read in one transaction."""
        parts_read = ("LRANGE", keys.job_parts(job), "0", str(limit - 1))
        try:
            (done, spec), accumulator, parts = self._functions.read(
                ("HMGET", keys.job(job), "done", "spec"), ("GET", keys.job_accumulator(job)), parts_read
            )
            return GatheredPartials(accumulator=accumulator, parts=tuple(parts), done=int(done or 0), spec=spec)
        except (ResponseError, ValueError) as error:
            if not isinstance(error, ValueError) and not wrong_type(error):
                raise
            repairs.quarantine(self._functions, job, str(error))
            return GatheredPartials(accumulator=None, parts=(), done=0, spec=None)

    def gather_some(self, job: str, limit: int, start: int, most_bytes: int) -> tuple[GatheredPartials, bool]:
        """Return up to `limit` partial results from index `start` on. If `start` is 0, also return the merged one.

        At most `most_bytes`, but at least one partial, are returned. The second value is True if more follow.
        """
        done, spec, accumulator, more, *parts = self._functions.run("gather", job, start, limit, most_bytes)
        try:
            return GatheredPartials(accumulator=accumulator, parts=tuple(parts), done=int(done), spec=spec), bool(more)
        except ValueError as error:
            repairs.quarantine(self._functions, job, str(error))
            return GatheredPartials(accumulator=None, parts=(), done=0, spec=None), False

    def is_seen(self, job: str, digest: str, limit: int = 256) -> bool:
        """Return True if the job's stored partial results have this digest."""
        sums, start, more = list[str](), 0, True
        while more:
            some, more = self.gather_some(job, limit - start, start, SOME_BYTES)
            sums += [sha1(text) for text in ((some.accumulator or b"",) if start == 0 else ()) + some.parts]
            start += len(some.parts)
        return sha1("".join(sums).encode()) == digest

    def fold(self, job: str, gathered: GatheredPartials, accumulator: bytes) -> bool:
        """Replace partial results with the merged one in `accumulator`. Return False if the stored ones have
        changed.
        """
        return self.fold_seen(job, gathered.digest, len(gathered.parts), accumulator)

    def fold_seen(self, job: str, digest: str, parts: int, accumulator: bytes) -> bool:
        """Replace the first `parts` partial results with the merged one. Return False if the stored digest differs."""
        return bool(self._functions.run("fold", job, digest, parts, accumulator))

    def finish(self, job: str, gathered: GatheredPartials, result: bytes, marks: str = "[]") -> bool:
        """Store a job's result and its marks. Return False if the stored partial results have changed.

        `marks` is in the format of `jobs.marks.serialize_marks`. Raises Unacknowledged if replicas lack the result. It
        must be derived again only if the master dies.
        """
        return self.finish_seen(job, gathered.digest, result, marks)

    def finish_seen(self, job: str, digest: str, result: bytes, marks: str = "[]") -> bool:
        """Store a job's result and its marks. Return False if the stored partial results have another digest."""
        return bool(self._functions.run_acknowledged("finish", job, digest, result, marks, repeatable=False))

    def abort(self, job: str, error: str) -> bool:
        """Fail a job whose result cannot be derived from its partial results."""
        return bool(self._functions.run("abort", job, error[:2000]))

    def count_derive_crash(self, job: str, token: str, error: str) -> bool:
        """Count the death of a lane while it derived a job's result. Return True if the job has failed because of this.

        Each token counts only once.
        """
        return bool(self._functions.run("count_derive_crash", job, token, error[:2000]))

"""Results: partials are gathered, folded into an accumulator, and at the end become the job's result."""

from __future__ import annotations

from jobs.gathered import Gathered, sha1
from jobs.store import keys, repairs
from jobs.store.server.connection import ResponseError, wrong_type
from jobs.store.server.functions import Part

#: Bytes of parts that are read at once where memory is shared by all calls.
SOME_BYTES = 8 << 20


class Results(Part):
    """Gathers, folds and finishes."""

    def gather(self, job: str, limit: int = 256) -> Gathered:
        """Return the accumulator and up to `limit` parts, read at one moment."""
        parts_read = ("LRANGE", keys.job_parts(job), "0", str(limit - 1))
        try:
            (done, spec), accumulator, parts = self._functions.read(
                ("HMGET", keys.job(job), "done", "spec"), ("GET", keys.job_accumulator(job)), parts_read
            )
            return Gathered(accumulator=accumulator, parts=tuple(parts), done=int(done or 0), spec=spec)
        except (ResponseError, ValueError) as error:
            if not isinstance(error, ValueError) and not wrong_type(error):
                raise
            repairs.quarantine(self._functions, job, str(error))
            return Gathered(accumulator=None, parts=(), done=0, spec=None)

    def gather_some(self, job: str, limit: int, start: int, most_bytes: int) -> tuple[Gathered, bool]:
        """Return the accumulator, unless `start` is over 0, and parts from that one on, up to `limit`.

        Of more than `most_bytes` only as many as fit, at least one; True: others follow.
        """
        done, spec, accumulator, more, *parts = self._functions.run("gather", job, start, limit, most_bytes)
        try:
            return Gathered(accumulator=accumulator, parts=tuple(parts), done=int(done), spec=spec), bool(more)
        except ValueError as error:
            repairs.quarantine(self._functions, job, str(error))
            return Gathered(accumulator=None, parts=(), done=0, spec=None), False

    def is_seen(self, job: str, digest: str, limit: int = 256) -> bool:
        """Return True while what `gather` would return has this digest."""
        sums, start, more = list[str](), 0, True
        while more:
            some, more = self.gather_some(job, limit - start, start, SOME_BYTES)
            sums += [sha1(text) for text in ((some.accumulator or b"",) if start == 0 else ()) + some.parts]
            start += len(some.parts)
        return sha1("".join(sums).encode()) == digest

    def fold(self, job: str, gathered: Gathered, accumulator: bytes) -> bool:
        """Put `accumulator` in the place of all that was gathered; False when that is no longer what is stored."""
        return self.fold_seen(job, gathered.digest, len(gathered.parts), accumulator)

    def fold_seen(self, job: str, digest: str, parts: int, accumulator: bytes) -> bool:
        """Do the same for what was gathered with this digest and as many parts."""
        return bool(self._functions.run("fold", job, digest, parts, accumulator))

    def finish(self, job: str, gathered: Gathered, result: bytes, marks: str = "[]") -> bool:
        """Store the result of what was gathered and, in the same moment, its marks as `jobs.marks.left_by` writes them.

        Raises Unacknowledged when replicas lack it; nobody else needs to derive it then, unless the master dies.
        """
        return self.finish_seen(job, gathered.digest, result, marks)

    def finish_seen(self, job: str, digest: str, result: bytes, marks: str = "[]") -> bool:
        """Do the same for what was gathered with this digest."""
        return bool(self._functions.kept("finish", job, digest, result, marks, repeatable=False))

    def abort(self, job: str, error: str) -> bool:
        """Fail a finishing job whose result cannot be derived."""
        return bool(self._functions.run("abort", job, error[:2000]))

    def stumble(self, job: str, token: str, error: str) -> bool:
        """Count the death of a lane over the job's result, once a token; True: it was one death too many."""
        return bool(self._functions.run("stumble", job, token, error[:2000]))

"""Reads of jobs for people: rows, states, places in queues, results. One round trip each.

A key of another type counts as missing, and is noted in `skipped`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from jobs.models import DEFAULT_TENANT, JobState
from jobs.store import keys, skipped
from jobs.store.connection import ResponseError, wrong_type
from jobs.store.scripts import Part

#: A job's hash.
Fields: TypeAlias = Mapping[bytes, bytes]
#: state, kind and error of a job; None for what it lacks.
Head: TypeAlias = Sequence[bytes | None]

#: Numbers of submissions are integers up to here.
_LAST = str(2**53)


class JobReads(Part):
    """Reads what is stored of jobs; changes nothing."""

    def hashes(self, ids: Sequence[str]) -> list[tuple[str, Fields]]:
        """Return id and fields of each job that exists, in their order."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hgetall(keys.job(job_id))
        return [(job_id, fields) for job_id, fields in zip(ids, skipped.replies(pipe), strict=True) if fields]

    def exists(self, job_id: str) -> bool:
        """Return True when something is stored under the job's id."""
        return bool(self._client.exists(keys.job(job_id)))

    def tenants(self, ids: Sequence[str]) -> list[str | None]:
        """Return whose each job is; None for one that does not exist or cannot be read."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hmget(keys.job(job_id), "state", "tenant")
        return [
            (row[1] or DEFAULT_TENANT.encode()).decode(errors="replace") if row and row[0] else None
            for row in skipped.replies(pipe)
        ]

    def queue_ranks(self, waiting: Sequence[tuple[str, str]]) -> list[int | None]:
        """Return how many jobs are before each (queue, job) in its queue; None for one that is not in it."""
        pipe = self._pipe()
        for queue, job_id in waiting:
            pipe.zrank(keys.pending(queue), job_id)
        return skipped.replies(pipe)

    def newest(self, state: str | None, before: int | None, most: int) -> list[tuple[bytes, int]]:
        """Return (id, number of its submission) of at most `most` jobs, newest first; of those below `before` alone."""
        index = keys.in_state(state) if state else keys.JOBS
        top = _LAST if before is None else f"({before}"
        pipe = self._pipe().zrevrangebyscore(index, top, 0, start=0, num=most, withscores=True)
        [page] = skipped.replies(pipe)
        return [(job_id, int(number)) for job_id, number in page or ()]

    def states(self, ids: Sequence[str]) -> list[str | None]:
        """Return the state of each job; None for one that does not exist."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hget(keys.job(job_id), "state")
        return [state.decode(errors="replace") if state else None for state in skipped.replies(pipe)]

    def counts(self) -> dict[str, int]:
        """Count the jobs that are kept, by state."""
        pipe = self._pipe()
        for state in JobState:
            pipe.zcard(keys.in_state(state))
        return {state.value: count or 0 for state, count in zip(JobState, skipped.replies(pipe), strict=True)}

    def submission_times(self, ids: Sequence[str]) -> dict[str, float]:
        """Return seconds since 1970 of each job's submission, of those that can be read."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hget(keys.job(job_id), "created")
        stored = zip(ids, skipped.replies(pipe), strict=True)
        return dict(skipped.readable("job", stored, lambda job_id, ms: (job_id, int(ms or 0) / 1000)))

    # -- results ----------------------------------------------------------------------------------------------------

    def stored_result(self, job_id: str) -> tuple[list[bytes | None], bytes | None] | None:
        """Return (kind, total, done, state) and the result, read at one moment; None for a key of another type."""
        head = ("HMGET", keys.job(job_id), "kind", "total", "done", "state")
        try:
            row, result = self._scripts.read(head, ("GET", keys.job_result(job_id)))
        except ResponseError as error:
            if wrong_type(error):
                return None
            raise
        return row, result

    def result_beginnings(self, ids: Sequence[str], most: int) -> tuple[list[Head], list[bytes]]:
        """Return head and result of each job; of a result over `most` bytes, its first `most` + 1."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.hmget(keys.job(job_id), "state", "kind", "error").getrange(keys.job_result(job_id), 0, most)
        replies = skipped.replies(pipe)
        return [head or (None, None, None) for head in replies[::2]], [text or b"" for text in replies[1::2]]

    def result_lengths(self, ids: Sequence[str]) -> list[int]:
        """Return the bytes of each job's result; 0 while there is none."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.strlen(keys.job_result(job_id))
        return cast(list[int], pipe.execute())

    def result_texts(self, ids: Sequence[str]) -> list[bytes]:
        """Return each job's result as it is stored; empty while there is none."""
        pipe = self._pipe()
        for job_id in ids:
            pipe.get(keys.job_result(job_id))
        return [text or b"" for text in pipe.execute()]

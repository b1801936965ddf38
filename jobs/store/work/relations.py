"""Reads of a job's dependencies and of the jobs that depend on it. Keys of the wrong type count as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.models import QueuePosition
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part

#: Maximum number of a blocked job's dependencies that are checked.
#: At most `_NAMED` of the unfinished dependencies are returned.
_LOOKED_AT, _NAMED = 64, 3
#: Maximum number of dependent jobs that are returned. The same limit applies to skipped jobs.
MOST = 1000


@dataclass(frozen=True, kw_only=True)
class JobRelations:
    """Jobs on which a job depends, and jobs that depend on it."""

    #: Dependencies that have not ended in the way that the job requires.
    needs: frozenset[str]
    #: Blocked jobs that depend on this job.
    children: Sequence[str]
    children_count: int
    skips: Sequence[str]
    skips_count: int
    #: State of each related job that exists.
    states: Mapping[str, str]


class Relations(Part):
    """Reads dependencies between jobs from Redis."""

    def waits(self, blocked: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, QueuePosition]:
        """Return the number of unfinished dependencies of each blocked job, and the first ones."""
        pipe = self._pipe()
        for job_id, parents in blocked:
            pipe.hlen(keys.job_needs(job_id))
            pipe.hmget(keys.job_needs(job_id), list(parents)[:_LOOKED_AT])
        replies = unreadable_entries.replies(pipe)
        first = {
            job_id: [parent for parent, need in zip(parents, needs or (), strict=False) if need][:_NAMED]
            for (job_id, parents), needs in zip(blocked, replies[1::2], strict=True)
        }
        states = self._states([parent for several in first.values() for parent in several])
        return {
            job_id: QueuePosition(
                waits_for=count or 0,
                parents=len(parents),
                first=tuple((parent, states.get(parent, "gone")) for parent in first[job_id]),
            )
            for (job_id, parents), count in zip(blocked, replies[::2], strict=True)
        }

    def of(self, job_id: str, parents: Sequence[str]) -> JobRelations:
        """Return the dependencies of a job and the jobs that depend on it. `parents` are the job's dependencies."""
        pipe = self._pipe().hkeys(keys.job_needs(job_id))
        pipe.zrange(keys.job_children(job_id), 0, MOST - 1).zcard(keys.job_children(job_id))
        pipe.srandmember(keys.job_skips(job_id), MOST).scard(keys.job_skips(job_id))
        needs, children, count, skips, skips_count = unreadable_entries.replies(pipe)
        after, because = _texts(children), sorted(_texts(skips))
        return JobRelations(
            needs=frozenset(_texts(needs)),
            children=after,
            children_count=count or 0,
            skips=because,
            skips_count=skips_count or 0,
            states=self._states([*parents, *after, *because]),
        )

    def _states(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the states of several jobs. Jobs that do not exist are omitted."""
        several = list(dict.fromkeys(ids))
        pipe = self._pipe()
        for job_id in several:
            pipe.hget(keys.job(job_id), "state")
        states = unreadable_entries.replies(pipe) if several else []
        return {job_id: state.decode(errors="replace") for job_id, state in zip(several, states, strict=True) if state}


def _texts(several: Sequence[bytes] | None) -> list[str]:
    return [one.decode(errors="replace") for one in several or ()]

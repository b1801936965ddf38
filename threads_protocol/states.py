"""States of jobs."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    #: The job waits for the jobs that it depends on.
    BLOCKED = "blocked"
    #: The job is stored, and no lease has been granted.
    QUEUED = "queued"
    #: At least one lease has been granted.
    RUNNING = "running"
    #: Every unit is committed, and a worker is computing the result.
    FINISHING = "finishing"
    #: The result is stored.
    DONE = "done"
    #: A user stopped the job. Resume continues it.
    PAUSED = "paused"
    #: A user cancelled the job, and lanes are still releasing their leases.
    CANCELLING = "cancelling"
    #: The job was cancelled and holds no lease. Retry continues it from the committed units.
    CANCELLED = "cancelled"
    #: Some units could not be computed by any lane. Retry computes them again.
    FAILED = "failed"
    #: A job that this job depends on failed or was cancelled. Retrying that job restores this one.
    SKIPPED = "skipped"


#: States that only deleting or retrying a job can change.
TERMINAL = frozenset({JobState.DONE, JobState.CANCELLED, JobState.FAILED, JobState.SKIPPED})
#: States in which a job can have open leases or an unfinished result.
ACTIVE = (JobState.RUNNING, JobState.FINISHING, JobState.CANCELLING)

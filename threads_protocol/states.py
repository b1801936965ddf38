"""States of a job."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    #: The job waits for jobs on which it depends.
    BLOCKED = "blocked"
    #: The job is stored, but no lease of it has been granted.
    QUEUED = "queued"
    #: At least one lease of the job has been granted.
    RUNNING = "running"
    #: All units of the job are committed, and a worker is computing the result.
    FINISHING = "finishing"
    #: The result of the job is stored.
    DONE = "done"
    #: A user paused the job. Resuming it continues the work.
    PAUSED = "paused"
    #: A user cancelled the job, but some lanes are still working on it.
    CANCELLING = "cancelling"
    #: The job was cancelled and has no leases. Retrying it continues from the committed units.
    CANCELLED = "cancelled"
    #: Some units of the job could not be computed. Retrying the job computes them again.
    FAILED = "failed"
    #: Another job on which this job depends failed or was cancelled. Retrying that job restores this job.
    SKIPPED = "skipped"


#: Final states. Only retrying or deleting a job changes them.
TERMINAL = frozenset({JobState.DONE, JobState.CANCELLED, JobState.FAILED, JobState.SKIPPED})
#: States in which a job can have leases or an unfinished result.
ACTIVE = (JobState.RUNNING, JobState.FINISHING, JobState.CANCELLING)

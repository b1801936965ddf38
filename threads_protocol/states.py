"""States of jobs."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    #: Waits until the jobs after which it comes have ended.
    BLOCKED = "blocked"
    #: Written; no lease granted yet.
    QUEUED = "queued"
    #: At least one lease was granted.
    RUNNING = "running"
    #: Every unit is committed; the result is being derived.
    FINISHING = "finishing"
    #: The result is stored.
    DONE = "done"
    #: Stopped by a user; goes on with resume.
    PAUSED = "paused"
    #: Cancelled by a user; lanes are still letting go.
    CANCELLING = "cancelling"
    #: Cancelled; nothing runs. Retry goes on where it stopped.
    CANCELLED = "cancelled"
    #: Units that no lane could compute are left. Retry tries them again.
    FAILED = "failed"
    #: A job after which it comes failed or was cancelled. Retry of that one brings it back.
    SKIPPED = "skipped"


#: States that only delete and retry can leave.
TERMINAL = frozenset({JobState.DONE, JobState.CANCELLED, JobState.FAILED, JobState.SKIPPED})
#: States in which units may be computed or a result derived, or leases end.
ACTIVE = (JobState.RUNNING, JobState.FINISHING, JobState.CANCELLING)

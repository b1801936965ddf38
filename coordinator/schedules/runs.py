"""Runs of schedules: find due schedules, decide whether to skip a run, and submit its job or workflow."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from coordinator.jobs.delegated_submission import JobRequest, Maker, OnBehalf
from coordinator.schedules.times import Times
from coordinator.workflows import submitting
from coordinator.workflows.planning import ENDED
from jobs import errors
from jobs.settings import Settings
from jobs.store.schedules import Schedule, Schedules
from jobs.store.server import connection
from jobs.store.workflows import Workflows
from threads_protocol.states import TERMINAL

log = logging.getLogger(__name__)

#: Delay in seconds up to which a run counts as on time rather than missed.
ON_TIME = 60
#: Milliseconds after which the claim of a manual run expires if no result was recorded.
_MANUAL_CLAIM_MS = 30_000
#: Maximum number of schedules run per round.
#: Maximum number of schedules checked per round after Redis' clock stepped back.
AT_ONCE, _CHECKED_AT_ONCE = 50, 200

#: Function that returns the states of jobs, with None for each deleted job.
States = Callable[[Sequence[str]], Sequence[str | None]]


def times(schedule: Schedule) -> Times:
    """Return the times at which a schedule runs."""
    return Times(every=schedule.every, anchor=schedule.created, cron=schedule.cron, timezone=schedule.timezone)


def target(schedule: Schedule) -> str:
    """Return whether a schedule submits a "job" or a "workflow"."""
    return "workflow" if schedule.workflow else "job"


def _run_id(schedule: Schedule, moment: str) -> str:
    """Return the job ID of a run. It depends only on schedule and time, so a run is never submitted twice."""
    return f"s-{schedule.schedule_id}-{moment}"


class Runs:
    """Submits due runs, and runs that a user starts manually."""

    def __init__(
        self, store: Schedules, workflows: Workflows, settings: Settings, on_behalf: OnBehalf, states: States
    ) -> None:
        self._store = store
        self._workflows = workflows
        self._settings = settings
        self._on_behalf = on_behalf
        self._states = states
        #: Number of schedules at the head of the queue that are still due because their run failed.
        self._stayed = 0
        #: Redis' time in the last round.
        self._latest: int | None = None
        #: Schedules whose next run must be checked against the corrected clock.
        self._doubted: list[str] = []

    def run_once(self) -> float | None:
        """Run schedules that are due; return 0 if more may be due. A schedule that fails does not delay the others."""
        return 0.0 if self.run_due() == AT_ONCE else None

    def run_due(self) -> int:
        """Run some of the schedules that are due, and return the number of schedules that were checked."""
        now, due = self._store.due(AT_ONCE, self._stayed)
        stayed = sum(not self._try_run(schedule, now) for schedule in due)
        # Failed schedules are still due and precede all others, so the next round skips them.
        self._stayed = self._stayed + stayed if len(due) == AT_ONCE else 0
        self._correct(now)
        return len(due)

    def rest(self) -> None:
        """Record that another process is the leader, so that the next round checks all schedules for clock errors."""
        self._latest = None

    def _try_run(self, schedule: Schedule, now: int) -> bool:
        """Run a schedule; return False if it failed and is still due."""
        try:
            self.run_schedule(schedule, now)
        except errors.Unavailable as error:
            log.warning("a run of a schedule waits: %s", error, extra={"schedule": schedule.schedule_id})
        except connection.Unreachable:
            raise
        except Exception:
            log.exception("a run of a schedule failed", extra={"schedule": schedule.schedule_id})
        else:
            return True
        return False

    def _correct(self, now: int) -> None:
        """Correct next runs that were set too late while Redis' clock was ahead. Each call checks some schedules.

        A check of all schedules starts in the first round, and whenever the clock has stepped back.
        """
        if self._latest is None or now < self._latest:
            self._doubted = self._store.coming()
        self._latest = now
        some, self._doubted = self._doubted[:_CHECKED_AT_ONCE], self._doubted[_CHECKED_AT_ONCE:]
        for schedule in self._store.times(some):
            if schedule.next <= now or schedule.firing or schedule.paused:
                continue
            try:
                following = times(schedule).after(now)
            except Exception as error:
                log.warning(
                    "cannot compute the next run of a schedule: %r", error, extra={"schedule": schedule.schedule_id}
                )
                continue
            if following is not None and following < schedule.next:
                log.warning(
                    "Redis' clock was ahead; correcting the next run of a schedule",
                    extra={"schedule": schedule.schedule_id},
                )
                self._store.claim(schedule, 0, following, 0)

    def run_now(self, schedule: Schedule) -> str:
        """Submit a schedule's job or workflow immediately and return its ID.

        Calls within the same second are one run. Raises Conflict while another manual run is being submitted, or while
        the last run is active and runs must not overlap. Raises the errors of a submission.
        """
        run = _run_id(schedule, f"{self._store.now_ms() // 1000}n")
        how = self._store.claim_by_hand(schedule.schedule_id, run, _MANUAL_CLAIM_MS)
        if how == "busy":
            raise errors.Conflict("another run of the schedule is being submitted; try again in a moment", field="name")
        try:
            self._check_overlap(schedule)
            made = self._submit_manual_run(schedule, run)
        except errors.ClusterError:
            self._store.note_by_hand(schedule.schedule_id, run, "")
            raise
        # After other errors, such as a lost response, the claim stays until it expires, because the run may exist.
        self._store.note_by_hand(schedule.schedule_id, run, made)
        return made

    def _check_overlap(self, schedule: Schedule) -> None:
        """Raise Conflict if the last run is still active and runs must not overlap."""
        # Read the schedule again to see claims and results from before this run's claim.
        known = self._store.one(schedule.tenant, schedule.name) or schedule
        if known.overlap:
            return
        if known.firing:
            raise errors.Conflict("a scheduled run is being submitted; try again in a moment", field="name")
        if busy := self._active_run(known):
            detail = f"{target(known)} {busy} of the last run is still active; cancel it, or wait until it ends"
            raise errors.Conflict(detail, field="name")

    def _submit_manual_run(self, schedule: Schedule, run: str) -> str:
        answer = self.submit_run(schedule, run)
        if isinstance(answer, errors.ClusterError):
            raise answer
        return answer

    def run_schedule(self, schedule: Schedule, now: int) -> None:
        firing = schedule.firing or self._claim(schedule, now)
        if not firing:
            return
        name = _run_id(schedule, str(firing))
        # Read the schedule again to see manual runs from before this run's claim.
        known = self._store.one(schedule.tenant, schedule.name)
        if known is None or known.schedule_id != schedule.schedule_id:
            return  # the schedule was deleted or replaced
        schedule = known
        # Ignore a claim that expires later than a valid claim can: the clock that wrote it was ahead.
        if not schedule.overlap and now * 1000 < schedule.by_hand_until <= (now + 1) * 1000 + _MANUAL_CLAIM_MS:
            return  # the scheduled run stays due until the manual run is recorded
        busy = "" if schedule.overlap else self._active_run(schedule)
        if busy and busy != name:
            said = f"skipped: {target(schedule)} {busy} of the previous run is still active"
            self._store.note(schedule.schedule_id, firing, "skipped", "", said)
            return
        answer = self.submit_run(schedule, name)
        if isinstance(answer, errors.Unavailable):
            raise answer  # the scheduled run stays due
        if isinstance(answer, errors.ClusterError):
            log.warning("a run of a schedule was rejected: %s", answer, extra={"schedule": schedule.schedule_id})
            self._store.note(schedule.schedule_id, firing, "failed", "", f"refused: {answer.detail}"[:500])
        else:
            self._store.note(schedule.schedule_id, firing, "submitted", answer, "submitted")

    def _claim(self, schedule: Schedule, now: int) -> int:
        """Move a schedule to its next time. Return the time of the run to submit, or 0 for none."""
        count, last, following = times(schedule).passed(schedule.next, now)
        wanted = schedule.catch_up == "last" or now - last <= ON_TIME
        firing, missed = (last, count - 1) if wanted else (0, count)
        if not self._store.claim(schedule, firing, following or 0, missed):
            return 0
        if missed:
            log.warning("a schedule missed runs", extra={"schedule": schedule.schedule_id, "missed": missed})
        return firing

    def _active_run(self, schedule: Schedule) -> str:
        """Return the ID of the last run's job or workflow if it has not ended, otherwise an empty string."""
        if not schedule.last_job:
            return ""
        if schedule.workflow:
            [stored] = self._workflows.read([schedule.last_job])
            return schedule.last_job if stored and stored.state not in ENDED else ""
        [state] = self._states([schedule.last_job])
        return schedule.last_job if state is not None and state not in TERMINAL else ""

    def submit_run(self, schedule: Schedule, name: str) -> str | errors.ClusterError:
        """Submit a run unless it was submitted before; return its job or workflow ID, or the error that rejected it."""
        maker = Maker(tenant=schedule.tenant, token=schedule.token, runs_programs=schedule.runs_programs)
        if schedule.workflow:
            try:
                text, key = schedule.workflow.encode(), f"schedule@{schedule.tenant}:{name}"
                return submitting.submit(self._workflows, self._settings, text, maker.principal, key=key)
            except errors.ClusterError as error:
                return error
        wanted = JobRequest(job_id=name, body=json.loads(schedule.job), maker=maker)
        [answer] = self._on_behalf.submit([wanted])
        return answer

"""Runs of schedules: which are due, which are left out, and what they submit."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from coordinator.jobs.on_behalf import JobRequest, Maker, OnBehalf
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

#: Seconds by which a run may be late and is not a missed one.
ON_TIME = 60
#: Milliseconds after which a run by hand that nobody has noted is none.
_BY_HAND_MS = 30_000
#: Schedules that are run at once, and those of which is looked at once whether they were set by a wrong clock.
AT_ONCE, _DOUBTED = 50, 200

#: Returns the states of jobs; None for those that are gone.
States = Callable[[Sequence[str]], Sequence[str | None]]


def times(schedule: Schedule) -> Times:
    """Return the times of a schedule."""
    return Times(every=schedule.every, anchor=schedule.created, cron=schedule.cron, timezone=schedule.timezone)


def target(schedule: Schedule) -> str:
    """Return what a schedule submits: job or workflow."""
    return "workflow" if schedule.workflow else "job"


def _name(schedule: Schedule, moment: str) -> str:
    """Return the name of a run, the id of its job. It follows from schedule and time: nothing is submitted twice."""
    return f"s-{schedule.schedule_id}-{moment}"


class Runs:
    """Runs what is due, and what is asked for."""

    def __init__(
        self, store: Schedules, workflows: Workflows, settings: Settings, on_behalf: OnBehalf, states: States
    ) -> None:
        self._store = store
        self._workflows = workflows
        self._settings = settings
        self._on_behalf = on_behalf
        self._states = states
        #: Due schedules, the first ones, that were tried and stayed due.
        self._stayed = 0
        #: Redis' time when it was last looked at, and schedules at which is still to be looked.
        self._latest: int | None = None
        self._doubted: list[str] = []

    def run_once(self) -> float | None:
        """Run schedules that are due; return 0 if more may be due. A schedule that fails does not delay the others."""
        return 0.0 if self.run_due() == AT_ONCE else None

    def run_due(self) -> int:
        """Run some of the schedules that are due, and return the number of schedules that were checked."""
        now, due = self._store.due(AT_ONCE, self._stayed)
        stayed = sum(not self._try_run(schedule, now) for schedule in due)
        # Those that failed are due still, before all others.
        self._stayed = self._stayed + stayed if len(due) == AT_ONCE else 0
        self._correct(now)
        return len(due)

    def rest(self) -> None:
        """Note that another process leads: it may leave what a clock has done for this one to correct."""
        self._latest = None

    def _try_run(self, schedule: Schedule, now: int) -> bool:
        """Run a schedule; False: it failed, and stays due."""
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
        """Move schedules back whose next run is later than it should be, since Redis' clock was ahead: some a call.

        All are looked at once this has begun, and whenever the clock has stepped back.
        """
        if self._latest is None or now < self._latest:
            self._doubted = self._store.coming()
        self._latest = now
        some, self._doubted = self._doubted[:_DOUBTED], self._doubted[_DOUBTED:]
        for schedule in self._store.times(some):
            if schedule.next <= now or schedule.firing or schedule.paused:
                continue
            try:
                following = times(schedule).after(now)
            except Exception as error:
                log.warning("a schedule has no times: %r", error, extra={"schedule": schedule.schedule_id})
                continue
            if following is not None and following < schedule.next:
                log.warning("a clock was ahead; a schedule is moved back", extra={"schedule": schedule.schedule_id})
                self._store.claim(schedule, 0, following, 0)

    def run_now(self, schedule: Schedule) -> str:
        """Submit what a schedule submits at once, and return the id of that job or workflow.

        Calls within one second are one run. Conflict while the last one goes on, unless its runs may overlap, and while
        another call submits one; else as a submission of the tenant.
        """
        run = _name(schedule, f"{self._store.now_ms() // 1000}n")
        how = self._store.claim_by_hand(schedule.schedule_id, run, _BY_HAND_MS)
        if how == "busy":
            raise errors.Conflict("another run of it is being submitted; look at it in a moment", field="name")
        try:
            self._check_alone(schedule)
            made = self._by_hand(schedule, run)
        except errors.ClusterError:
            self._store.note_by_hand(schedule.schedule_id, run, "")
            raise
        # Where an answer was lost, it may have been submitted: the claim lapses by itself.
        self._store.note_by_hand(schedule.schedule_id, run, made)
        return made

    def _check_alone(self, schedule: Schedule) -> None:
        """Raise Conflict where a run may not begin beside the last one."""
        # Anew: what was claimed or noted before this run was claimed must count.
        known = self._store.one(schedule.tenant, schedule.name) or schedule
        if known.overlap:
            return
        if known.firing:
            raise errors.Conflict("its run of this moment is being submitted; look at it in a moment", field="name")
        if busy := self._going_on(known):
            detail = f"{target(known)} {busy} of the last run has not ended; cancel it, or wait for it"
            raise errors.Conflict(detail, field="name")

    def _by_hand(self, schedule: Schedule, run: str) -> str:
        answer = self.submit_run(schedule, run)
        if isinstance(answer, errors.ClusterError):
            raise answer
        return answer

    def run_schedule(self, schedule: Schedule, now: int) -> None:
        firing = schedule.firing or self._claim(schedule, now)
        if not firing:
            return
        name = _name(schedule, str(firing))
        # Anew: a run by hand may have been claimed or noted before this one was claimed.
        known = self._store.one(schedule.tenant, schedule.name)
        if known is None or known.schedule_id != schedule.schedule_id:
            return  # it was deleted, or is another one by now
        schedule = known
        # A claim that lasts longer than any is of a clock that was ahead.
        if not schedule.overlap and now * 1000 < schedule.by_hand_until <= (now + 1) * 1000 + _BY_HAND_MS:
            return  # it stays due until that is noted
        busy = "" if schedule.overlap else self._going_on(schedule)
        if busy and busy != name:
            said = f"left out: {target(schedule)} {busy} of the run before has not ended"
            self._store.note(schedule.schedule_id, firing, "skipped", "", said)
            return
        answer = self.submit_run(schedule, name)
        if isinstance(answer, errors.Unavailable):
            raise answer  # it stays due
        if isinstance(answer, errors.ClusterError):
            log.warning("what a schedule submits was refused: %s", answer, extra={"schedule": schedule.schedule_id})
            self._store.note(schedule.schedule_id, firing, "failed", "", f"refused: {answer.detail}"[:500])
        else:
            self._store.note(schedule.schedule_id, firing, "submitted", answer, "submitted")

    def _claim(self, schedule: Schedule, now: int) -> int:
        """Move a schedule on and return the run that is to be made; 0: none, or somebody else moved it on."""
        count, last, following = times(schedule).passed(schedule.next, now)
        wanted = schedule.catch_up == "last" or now - last <= ON_TIME
        firing, missed = (last, count - 1) if wanted else (0, count)
        if not self._store.claim(schedule, firing, following or 0, missed):
            return 0
        if missed:
            log.warning("runs of a schedule were missed", extra={"schedule": schedule.schedule_id, "missed": missed})
        return firing

    def _going_on(self, schedule: Schedule) -> str:
        """Return the job or workflow of the last run while it has not ended, else an empty text."""
        if not schedule.last_job:
            return ""
        if schedule.workflow:
            [stored] = self._workflows.read([schedule.last_job])
            return schedule.last_job if stored and stored.state not in ENDED else ""
        [state] = self._states([schedule.last_job])
        return schedule.last_job if state is not None and state not in TERMINAL else ""

    def submit_run(self, schedule: Schedule, name: str) -> str | errors.ClusterError:
        """Submit it as this run, unless it is there already; return the id or the refusal."""
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

"""Submit jobs of workflows, schedules and services on behalf of their tenant.

The jobs continue if the token that created the workflow or schedule is revoked, because they belong to the tenant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator import tracing
from coordinator.access.principal import Principal, Scope
from coordinator.artifacts.trees import Trees
from coordinator.jobs import scheduler, submissions
from coordinator.jobs.caches.fleet_cache import FleetCache
from coordinator.jobs.references import References
from coordinator.secrets.vault import Vault
from coordinator.tracing import Tracing
from jobs import errors
from jobs.settings import Settings
from jobs.store.work.jobs import Jobs, NewJob


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Owner of a workflow, schedule or service, with whose permissions its jobs are submitted."""

    tenant: str
    #: ID of the owner's token; empty if there was none.
    token: str
    #: Whether the owner's token had the scope run.
    runs_programs: bool
    #: Whether the leader submits replicas of the owner's service.
    leads: bool = False

    @classmethod
    def of(cls, principal: Principal) -> Maker:
        """Return this principal as the owner of the objects that it creates."""
        return cls(
            tenant=principal.tenant,
            token=principal.token,
            runs_programs=bool(principal.token) and principal.has(Scope.RUN),
        )

    @property
    def principal(self) -> Principal:
        """Return the principal that submits the owner's jobs."""
        scopes = {Scope.READ, Scope.SUBMIT} | ({Scope.RUN} if self.runs_programs else set())
        return Principal(tenant=self.tenant, token=self.token, scopes=frozenset(scopes))


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A job to submit. If the job ID already exists, nothing is submitted."""

    job_id: str
    #: Body as in POST /api/submit.
    body: Mapping[str, Any]
    maker: Maker
    #: Jobs that must be done before this job starts.
    after: tuple[str, ...] = ()
    #: Jobs that must have ended, with any result, before this job starts.
    after_any: tuple[str, ...] = ()
    #: Workflow of the job.
    workflow: str = ""
    #: Action of the job in its workflow.
    action: str = ""
    #: Attempt of the workflow. The job is written only in this attempt.
    attempt: int = 0
    #: Trace context of the submission as `traceparent` and `tracestate`; empty for none.
    traceparent: str = ""
    tracestate: str = ""


class OnBehalf:
    """Submits jobs on behalf of the owners of workflows, schedules and services."""

    def __init__(self, store: Jobs, settings: Settings, fleet: FleetCache, trees: Trees, vault: Vault) -> None:
        self._store = store
        self._settings = settings
        self._fleet = fleet
        self._trees = trees
        self._vault = vault
        self._tracing = Tracing.from_settings(settings)

    def submit(self, wanted: Sequence[JobRequest]) -> list[str | errors.ClusterError]:
        """Submit jobs in order, and return for each its ID or the error that rejected it.

        If the tenant is at its cap, a job is queued until there is capacity. OverLimit and Unavailable are temporary;
        all other errors are permanent.
        """
        fleet = self._fleet.get() if wanted else scheduler.Fleet()
        by_maker: dict[Maker, References] = {}
        accepted = [self._validate(one, fleet, by_maker) for one in wanted]
        good = [one for one in accepted if isinstance(one, NewJob)]
        written = self._store.submit(good, self._settings.max_queued) if good else []
        answers = iter([submissions.refusal(*pair) or pair[0].job_id for pair in zip(good, written, strict=True)])
        return [one if isinstance(one, errors.ClusterError) else next(answers) for one in accepted]

    def _validate(
        self, wanted: JobRequest, fleet: scheduler.Fleet, by_maker: dict[Maker, References]
    ) -> NewJob | errors.ClusterError:
        principal = wanted.maker.principal
        if wanted.maker not in by_maker:
            by_maker[wanted.maker] = References(principal, self._trees, self._vault, leads=wanted.maker.leads)
        try:
            asked = submissions.parse_submission(dict(wanted.body))
            job = submissions.accept(asked, principal, fleet, self._settings, by_maker[wanted.maker]).job
        except errors.ClusterError as error:
            return error
        job = replace(
            job,
            job_id=wanted.job_id,
            hold=True,
            after=wanted.after,
            after_any=wanted.after_any,
            workflow=wanted.workflow,
            action=wanted.action,
            attempt=wanted.attempt,
        )
        trace = tracing.parse_headers([wanted.traceparent], [wanted.tracestate])
        return job if trace is None else self._tracing.add_context(job, trace)

"""Leader task that keeps the desired number of replicas of each service running."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from coordinator.events.event import Event
from coordinator.jobs.delegated_submission import JobRequest, Maker, OnBehalf
from coordinator.services import planning, scaling
from coordinator.services.missing_workers import Absences
from coordinator.services.planning import Cancel, End, Forget, Recover, Retire, Start, Step, Submit
from jobs import errors
from jobs.models import Actor
from jobs.store import Store, services
from jobs.store.server import connection
from jobs.store.services import Replica, Service

log = logging.getLogger(__name__)

#: Maximum length of a stored failure reason in characters.
_MAX_SAID = 500


def has_ended(events: Sequence[Event]) -> bool:
    """Return True if a replica has ended."""
    return any(event.ends and event.job.startswith("v-") for event in events)


class Reconciler:
    """Executes the plans of all services in one store. A new leader can repeat each step safely."""

    def __init__(self, store: Store, on_behalf: OnBehalf) -> None:
        self._store = store
        self._on_behalf = on_behalf
        self._absences = Absences()

    def run_once(self) -> None:
        """Reconcile every service. An error in one service does not stop the others. Raises Unreachable."""
        found = self._store.services.all()
        if not found:
            return
        replicas = self._store.services.replicas([one.service_id for one in found])
        now = round(self._store.clock.now() * 1000)
        leaving = self._leaving(replicas.values(), now)
        for service in found:
            try:
                self._keep(self._scaled(service, now), replicas[service.service_id], now, leaving)
            except connection.Unreachable:
                raise
            except Exception:
                log.exception("reconciling a service failed", extra={"service": service.service_id})

    def _leaving(self, replicas: Iterable[Sequence[Replica]], now: int) -> frozenset[str]:
        """Return the workers that are draining, dead or cut off. Replicas on these workers are replaced."""
        workers = sorted({each.report.worker for several in replicas for each in several if each.report})
        store = self._store.services
        return store.leaving(workers) | self._absences.missed(store.gone(workers, now))

    def _keep(self, service: Service, replicas: Sequence[Replica], now: int, leaving: frozenset[str]) -> None:
        drain = drain_ms(service)
        for step in planning.plan(service, replicas, now, drain_ms=drain, leaving=leaving):
            self._take(service, step, now)

    def _scaled(self, service: Service, now: int) -> Service:
        """Autoscale a service, and return it with the number of replicas that it needs now."""
        change = scaling.change(service, now)
        if change and self._store.services.rescale(
            service.service_id, service.replicas, change.replicas, change.needed_at
        ):
            if change.replicas != service.replicas:
                log.info(
                    "scaled from %d to %d replicas",
                    service.replicas,
                    change.replicas,
                    extra={"service": service.service_id},
                )
            service = replace(service, replicas=change.replicas, needed_at=change.needed_at)
        return replace(service, replicas=scaling.wanted(service, now))

    def _take(self, service: Service, step: Step, now: int) -> None:
        store, actor = self._store.services, Actor(service.tenant, service.token)
        if isinstance(step, Start):
            if store.place(service.service_id, step.number, service.generation):
                self._submit(service, services.new_replica(service, step.number, now), now)
        elif isinstance(step, Submit):
            self._submit(service, step.replica, now)
        elif isinstance(step, Retire):
            store.retire(service.service_id, step.replica.number)
        elif isinstance(step, Cancel):
            self._store.jobs.cancel(step.replica.job_id, actor)
        elif isinstance(step, End):
            self._end(service, step, now)
        elif isinstance(step, Recover):
            store.note(service.service_id, failures=0, said="")
        else:
            assert isinstance(step, Forget)
            store.forget(service.service_id)

    def _submit(self, service: Service, replica: Replica, now: int) -> None:
        maker = Maker(tenant=service.tenant, token=service.token, runs_programs=True, leads=True)
        wanted = JobRequest(job_id=replica.job_id, body=json.loads(service.job), maker=maker)
        [answer] = self._on_behalf.submit([wanted])
        if not isinstance(answer, errors.ClusterError):
            return
        log.warning("submission of a replica was rejected: %s", answer, extra={"service": service.service_id})
        self._note_death(service, replica, now, f"rejected: {answer.detail}")

    def _end(self, service: Service, step: End, now: int) -> None:
        if step.died:
            self._note_death(service, step.replica, now, self._why(step.replica.job_id))
            return
        self._store.services.end(service.service_id, step.replica)
        self._store.jobs.delete(step.replica.job_id, Actor(service.tenant, service.token))

    def _note_death(self, service: Service, replica: Replica, now: int, why: str) -> None:
        """Record a failure, which delays the next start, and delete the job of the previous failure."""
        failures = service.failures + 1
        retry_at = now + planning.wait_ms(failures)
        log.warning("replica failed: %s", why, extra={"service": service.service_id, "job_id": replica.job_id})
        if self._store.services.end(service.service_id, replica, failures, retry_at, why[:_MAX_SAID]) and service.died:
            self._store.jobs.delete(service.died, Actor(service.tenant, service.token))

    def _why(self, job: str) -> str:
        """Return why a replica failed, from its last failure or its job."""
        return self._store.services.failure(job) or "the job finished unexpectedly"


def drain_ms(service: Service) -> int:
    """Return how many milliseconds a stopping replica has to finish its requests."""
    return int(json.loads(service.asked)["request_timeout_seconds"] * 1000)

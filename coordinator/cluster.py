"""What one coordinator replica holds, and the few things that its routes do with it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from coordinator import submissions
from coordinator.events import Hub
from coordinator.views import Views
from jobs import errors, execution, registry
from jobs.leases import Leases
from jobs.settings import Settings


class Cluster:
    def __init__(self, book: Leases, hub: Hub, chosen: Settings) -> None:
        self.book = book
        self.hub = hub
        self.settings = chosen
        self.views = Views(book, chosen)

    def owner(self, given: str) -> str:
        """A short name for who asks with this token. Unauthorized when another one is set."""
        token = self.settings.cluster_token
        if not token:
            return "anyone"
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise errors.Unauthorized("send Authorization: Bearer TOKEN; the command reads CLUSTER_TOKEN")
        return hashlib.sha256(token.encode()).hexdigest()[:12]

    def submit(self, bodies: Sequence[Any], owner: str) -> list[dict[str, Any] | errors.ClusterError]:
        """Validates each body alone and writes the good ones; one answer or error each, in order."""
        fleet = self.views.fleet()
        accepted = [self._accept(body, owner, fleet) for body in bodies]
        good = [one for one in accepted if isinstance(one, submissions.Accepted)]
        written = iter(zip(good, self.book.submit([one.job for one in good]), strict=True) if good else [])
        return [one if isinstance(one, errors.ClusterError) else self._answer(*next(written)) for one in accepted]

    def _accept(self, body: Any, owner: str, fleet: Any) -> submissions.Accepted | errors.ClusterError:
        try:
            return submissions.accept(submissions.read(body), owner, fleet, self.settings)
        except errors.ClusterError as error:
            return error

    def _answer(self, one: submissions.Accepted, written: tuple[str, str]) -> dict[str, Any] | errors.ClusterError:
        how, job_id = written
        if how == "conflict":
            return errors.Conflict(
                f"idempotency_key: already used by job {job_id} with another body; use a new key",
                field="idempotency_key",
            )
        state = "queued" if how == "new" else self.views.states([job_id])[0] or "queued"
        return one.answer(job_id, state)

    def ask(self, job_id: str, name: str, choice: Mapping[str, str]) -> str:
        """Submits a question about a job and gives the id of the job that answers it.

        NotFound naming the questions that its kind answers; Unavailable when no live worker could.
        """
        job = self.views.job(job_id)
        asking = registry.asking(job["type"])
        if asking is None or name not in asking.QUESTIONS:
            have = ", ".join(asking.QUESTIONS if asking else ()) or "none"
            raise errors.NotFound(f"{job['type']} answers no question {name}; it answers {have}", field="question")
        asked = submissions.question(job["type"], asking.question(name, job["parameters"], choice), self.views.fleet())
        if asked.estimated_wait_seconds is None:
            raise errors.Unavailable(f"no live worker serves the queue {asked.job.queue}; see GET /api/nodes")
        [(_, answering)] = self.book.submit([asked.job])
        return answering

    def steer(self, job_id: str, verb: str) -> None:
        """cancel, pause, resume, retry or delete; NotFound, or Conflict naming the state."""
        if verb == "retry":
            kind = self.views.job(job_id)["type"]
            how, *rest = self.book.retry(job_id, registry.definition(kind).MODEL_VERSION)
        else:
            how, *rest = getattr(self.book, verb)(job_id)
        if how == "missing":
            raise errors.NotFound(f"no job {job_id}; list them with GET /api/jobs", field="job_id")
        if how == "version":
            detail = f"the job's partial results come from version {rest[0]} of its kind; submit it anew"
            raise errors.Conflict(detail, field="state")
        if how == "conflict":
            raise errors.Conflict(f"cannot {verb} a job that is {rest[0]}", field="state")

    def so_far(self, job_id: str, kind: str) -> dict[str, Any] | None:
        """The result over the units committed up to now; None when the job has ended or gone meanwhile."""
        gathered = self.book.gather(job_id, limit=10_000)
        if gathered.spec is None or (gathered.done and gathered.accumulator is None and not gathered.parts):
            return None
        return {"units": gathered.done, "result": execution.so_far(kind, json.loads(gathered.spec), gathered)}

    @staticmethod
    @lru_cache
    def kinds() -> list[dict[str, Any]]:
        """Every kind as /api/job-types shows it."""
        return [_kind(name) for name in registry.names()]


def _kind(name: str) -> dict[str, Any]:
    definition = registry.definition(name)
    return {
        "type": name,
        "summary": definition.SUMMARY,
        "model_version": definition.MODEL_VERSION,
        "schema": definition.Parameters.model_json_schema(),
        "example": definition.EXAMPLE,
    }

"""What can go wrong between a client and its cluster. `exit_code` is what the `cluster` command ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The job failed or was cancelled.
JOB_FAILED = 1
#: Bad usage, or the cluster refused the request (4xx).
REFUSED = 2
#: No cluster answers, or it answered with an error of its own (5xx).
UNREACHABLE = 3
#: Ctrl-C. What was submitted goes on.
INTERRUPTED = 130


class ClientError(Exception):
    """A call did not succeed."""

    exit_code = UNREACHABLE
    #: What to do now; may be empty.
    next: str = ""


class Unreachable(ClientError):
    """No cluster answers at the address."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no cluster answers at {url} ({reason})")
        self.url = url
        self.next = "start one with ./deploy-cluster.sh local, or say where yours is with --url or CLUSTER_URL"


class TimedOut(ClientError):
    """The job had not ended when the time to wait was over. It goes on."""


class JobEnded(ClientError):
    """The job failed or was cancelled: there is no result."""

    exit_code = JOB_FAILED

    def __init__(self, job_id: str, state: str, error: str | None) -> None:
        super().__init__(
            f"job {job_id} {'was cancelled' if state == 'cancelled' else state}{f': {error}' if error else ''}"
        )
        self.job_id, self.state = job_id, state
        self.next = f"look at it with cluster job {job_id}, or go on with cluster retry {job_id}"


class ApiError(ClientError):
    """The cluster answered with an error: RFC 9457 problem details."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        #: Seconds after which the cluster would like to be asked again.
        self.retry_after = retry_after
        self.title = str(problem.get("title") or f"status {status}")
        self.detail = str(problem.get("detail") or "")
        #: Dotted path of the offending input, for example `parameters.number_count`.
        self.field: str | None = problem.get("field")
        self.next = str(problem.get("next") or ("set CLUSTER_TOKEN" if status == 401 else ""))
        #: Everything the cluster said.
        self.problem = dict(problem)
        super().__init__(self.detail or self.title)

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return REFUSED if self.status < 500 else UNREACHABLE

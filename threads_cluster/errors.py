"""Errors between a client and its cluster. `exit_code` is what the `cluster` command ends with.

Messages are one line, also where a server chose the words, and never hold the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threads_cluster.terminal import LONGEST, visible

#: The job failed or was cancelled.
JOB_FAILED = 1
#: An audit log is not what was written.
ALTERED = 1
#: Bad usage, or the cluster refused the request (4xx).
REFUSED = 2
#: No cluster answers, it answered with an error of its own (5xx), or its answer makes no sense.
UNREACHABLE = 3
#: The output could not be written.
UNWRITTEN = 4
#: A fault of the command itself; EX_SOFTWARE of sysexits.h.
FAULT = 70
#: Ctrl-C. What was submitted goes on.
INTERRUPTED = 130
#: Who read the output went away, as in `cluster jobs | head -1`: 128 + SIGPIPE, as other commands end then.
PIPE_CLOSED = 141


class ClientError(Exception):
    """A call did not succeed."""

    exit_code = UNREACHABLE
    #: What to do now; may be empty.
    next: str = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message, LONGEST))


class BadArgument(ClientError, ValueError):
    """An argument of a call that no cluster could take; nothing was sent."""

    exit_code = REFUSED

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class Misconfigured(ClientError):
    """A setting or option, such as the address or the token, that cannot be used; nothing was sent."""

    exit_code = REFUSED


class Unreachable(ClientError):
    """No cluster answers at the address."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no cluster answers at {url} ({visible(reason, LONGEST)})")
        self.url = url
        self.next = "start one with ./deploy-cluster.sh local, or say where yours is with --url or CLUSTER_URL"


class TooSlow(Unreachable):
    """A cluster was reached and does not answer in time."""

    def __init__(self, url: str) -> None:
        ClientError.__init__(self, f"the cluster at {url} takes too long to answer")
        self.url = url
        self.next = "try again; where it runs, see ./deploy-cluster.sh status and ./deploy-cluster.sh logs"


class UnexpectedAnswer(Unreachable):
    """Something answers at the address, but not as a cluster does."""

    def __init__(self, url: str, reason: str) -> None:
        ClientError.__init__(self, f"what answers at {url} is not a cluster, or one of another version ({reason})")
        self.url = url
        self.next = "say where the cluster is with --url or CLUSTER_URL"


class BrokenOff(Unreachable):
    """A cluster ended an answer before its end, as where its Redis does not answer."""

    def __init__(self, url: str) -> None:
        ClientError.__init__(self, f"the cluster at {url} breaks off: it restarts, or its Redis does not answer")
        self.url = url
        self.next = "try again; where it runs, see ./deploy-cluster.sh status and ./deploy-cluster.sh logs"


class NothingMore(UnexpectedAnswer):
    """A stream that was to be resumed has come to its end."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "the stream has ended")


class TimedOut(ClientError):
    """The job had not ended when the time to wait was over. It goes on."""


class JobEnded(ClientError):
    """The job failed, was cancelled or was skipped: there is no result."""

    exit_code = JOB_FAILED

    def __init__(self, job_id: str, state: str, error: str | None) -> None:
        what = f"was {state}" if state in ("cancelled", "skipped") else state
        super().__init__(f"job {job_id} {what}{f': {error}' if error else ''}")
        self.job_id, self.state = job_id, state
        self.next = f"look at it with cluster job {job_id}, or go on with cluster retry {job_id}"
        if state == "skipped":
            self.next = f"see why with cluster relations {job_id}"


class UnitFailed(ClientError):
    """A unit of a program failed, and will not be tried again."""

    exit_code = JOB_FAILED

    def __init__(self, job_id: str, unit: int, reason: str) -> None:
        super().__init__(f"unit {unit} of job {job_id} failed: {reason}")
        self.job_id, self.unit = job_id, unit
        self.next = f"see what it wrote with cluster logs {job_id} --unit {unit}"


class ApiError(ClientError):
    """The cluster answered with an error: RFC 9457 problem details."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        #: Seconds after which the cluster would like to be asked again.
        self.retry_after = retry_after
        self.title = _text(problem, "title") or f"status {status}"
        self.detail = _text(problem, "detail")
        #: Dotted path of the offending input, for example `parameters.number_count`.
        self.field: str | None = _text(problem, "field") or None
        self.next = _text(problem, "next")
        #: Everything the cluster said.
        self.problem = dict(problem)
        super().__init__(self.detail or self.title)

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return REFUSED if self.status < 500 else UNREACHABLE


class Unauthorized(ApiError):
    """The cluster needs a token where none was sent, or refuses the one that was."""

    def __init__(self, problem: Mapping[str, Any], name: str, advice: str) -> None:
        """`name`: what people call the token that was sent; empty where there was none."""
        super().__init__(401, problem)
        refused = f"the cluster refuses {name}: it is unknown, was revoked or has expired"
        self.args = (visible(refused, LONGEST) if name else "this cluster needs a token",)
        self.next = advice


def _text(problem: Mapping[str, Any], name: str) -> str:
    text = problem.get(name)
    return visible(text, LONGEST) if isinstance(text, str) else ""

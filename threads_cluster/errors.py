"""Errors that the client raises. For each error, the `cluster` command has an exit code.

Messages are single lines, even if a server wrote them, and never contain the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threads_cluster.terminal import LONGEST, visible

#: Exit code if the job failed or was cancelled.
JOB_FAILED = 1
#: Exit code if an audit log was altered.
ALTERED = 1
#: Exit code for wrong usage, and for requests that the cluster rejected (HTTP 4xx).
REFUSED = 2
#: Exit code if the cluster is unreachable, failed (HTTP 5xx) or sent an invalid response.
UNREACHABLE = 3
#: Exit code if the command cannot write its output.
UNWRITTEN = 4
#: Exit code for a bug in the command, as EX_SOFTWARE in sysexits.h.
FAULT = 70
#: Exit code after Ctrl-C. Submitted jobs continue.
INTERRUPTED = 130
#: Exit code if the program that reads the output exits first: 128 + SIGPIPE.
PIPE_CLOSED = 141


class ClientError(Exception):
    """Base class of all errors of the client."""

    exit_code = UNREACHABLE
    #: Advice to the user on how to fix the error, or empty.
    next: str = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message, LONGEST))


class BadArgument(ClientError, ValueError):
    """An argument of a call is invalid, so the client sends no request."""

    exit_code = REFUSED

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class Misconfigured(ClientError):
    """A setting or option is invalid, such as the address or the token. The client sends no request."""

    exit_code = REFUSED


class Unreachable(ClientError):
    """No server accepts connections at the address of the cluster."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no cluster answers at {url} ({visible(reason, LONGEST)})")
        self.url = url
        self.next = "start a cluster with ./deploy-cluster.sh local, or set its address with --url or CLUSTER_URL"


class TooSlow(Unreachable):
    """The cluster accepted the connection but did not respond in time."""

    def __init__(self, url: str) -> None:
        ClientError.__init__(self, f"the cluster at {url} takes too long to answer")
        self.url = url
        self.next = "try again; on the cluster's machine, see ./deploy-cluster.sh status and ./deploy-cluster.sh logs"


class UnexpectedAnswer(Unreachable):
    """The server at the address does not respond like a cluster."""

    def __init__(self, url: str, reason: str) -> None:
        ClientError.__init__(self, f"the server at {url} is not a cluster, or has another version ({reason})")
        self.url = url
        self.next = "set the address of the cluster with --url or CLUSTER_URL"


class BrokenOff(Unreachable):
    """The cluster closed the connection in the middle of a response, for example because its Redis does not answer."""

    def __init__(self, url: str) -> None:
        reason = "it is restarting, or its Redis does not answer"
        ClientError.__init__(self, f"the cluster at {url} closed the connection early: {reason}")
        self.url = url
        self.next = "try again; on the cluster's machine, see ./deploy-cluster.sh status and ./deploy-cluster.sh logs"


class NothingMore(UnexpectedAnswer):
    """The stream that the client wants to resume has already ended."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "the stream has ended")


class TimedOut(ClientError, TimeoutError):
    """The job did not finish within the timeout. The job continues."""


class JobEnded(ClientError):
    """The job failed, was cancelled or was skipped, so it has no result."""

    exit_code = JOB_FAILED

    def __init__(self, job_id: str, state: str, error: str | None) -> None:
        what = f"was {state}" if state in ("cancelled", "skipped") else state
        super().__init__(f"job {job_id} {what}{f': {error}' if error else ''}")
        self.job_id, self.state = job_id, state
        self.next = f"see the job with cluster job {job_id}, or retry it with cluster retry {job_id}"
        if state == "skipped":
            self.next = f"see why with cluster relations {job_id}"


class NoRunner(ClientError):
    """No live runner could ever take the program, so the client uploads no files and submits no job."""

    exit_code = REFUSED
    next = "start a suitable runner, or wait for one with --queue (in Python: queue=True)"

    def __init__(self, reason: str) -> None:
        super().__init__(f"nothing was sent, because no runner could take the program: {reason}")


class UnitFailed(ClientError):
    """A unit of a program failed and is not retried."""

    exit_code = JOB_FAILED

    def __init__(self, job_id: str, unit: int, reason: str) -> None:
        super().__init__(f"unit {unit} of job {job_id} failed: {reason}")
        self.job_id, self.unit = job_id, unit
        self.next = f"see its output with cluster logs {job_id} --unit {unit}"


class CallFailed(ClientError):
    """The call of a Python function ended without a result, for example because its process crashed.

    It also replaces an exception of the function that cannot be unpickled in the client.
    """

    exit_code = JOB_FAILED


class CallTimedOut(CallFailed, TimeoutError):
    """The call of a Python function was stopped, because it took longer than the option `timeout` allows."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"the call ran longer than its timeout of {timeout:g} s")
        self.next = "raise the option timeout, or divide the work into several calls"


class ValueNotStored(ClientError):
    """The cluster cannot store an argument of a call or a value for calls, for example because of a limit."""

    exit_code = REFUSED

    def __init__(self, size: int, reason: str) -> None:
        super().__init__(f"cannot store a value of {size:,} bytes in the cluster: {reason}")


class RemoteTraceback(Exception):
    """Traceback of an exception on a runner, as text. It is the cause of the exception in the client."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ApiError(ClientError):
    """The cluster returned an error with problem details (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        #: Seconds to wait before the next request, as in the header Retry-After.
        self.retry_after = retry_after
        self.title = _text(problem, "title") or f"status {status}"
        self.detail = _text(problem, "detail")
        #: Dotted path of the invalid input, for example `parameters.number_count`.
        self.field: str | None = _text(problem, "field") or None
        self.next = _text(problem, "next")
        #: All problem details in the response.
        self.problem = dict(problem)
        super().__init__(self.detail or self.title)

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return REFUSED if self.status < 500 else UNREACHABLE


class Unauthorized(ApiError):
    """The cluster requires a token, or rejected the token of the request."""

    def __init__(self, problem: Mapping[str, Any], name: str, advice: str) -> None:
        """Describe the rejected token. `name` is a description such as CLUSTER_TOKEN, or empty without a token."""
        super().__init__(401, problem)
        refused = f"the cluster rejected {name}: the token is unknown, revoked or expired"
        self.args = (visible(refused, LONGEST) if name else "this cluster requires a token",)
        self.next = advice


def _text(problem: Mapping[str, Any], name: str) -> str:
    text = problem.get(name)
    return visible(text, LONGEST) if isinstance(text, str) else ""

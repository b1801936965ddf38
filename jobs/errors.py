"""One tree of errors. A class's docstring is its title; `status` is what HTTP answers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClusterError(Exception):
    """Something went wrong in the cluster."""

    status = 500

    def __init__(self, detail: str = "", *, field: str | None = None) -> None:
        super().__init__(detail or self.title())
        self.detail = detail or self.title()
        #: Dotted path of the offending input, for example `parameters.number_count`.
        self.field = field
        #: Further members of the answer, by name.
        self.extra: Mapping[str, Any] = {}

    @classmethod
    def title(cls) -> str:
        """First line of the docstring, without its full stop."""
        return (cls.__doc__ or cls.__name__).splitlines()[0].rstrip(".")


class InvalidRequest(ClusterError):
    """The request is not valid."""

    status = 422


class UnknownTenant(InvalidRequest):
    """There is no such tenant."""

    def __init__(self, tenant: str) -> None:
        detail = f"tenant: {tenant} is not registered; an admin registers it with PUT /api/tenants/{tenant}"
        super().__init__(detail, field="tenant")


class MalformedBody(ClusterError):
    """The body is not valid JSON."""

    status = 400


class UnknownKind(InvalidRequest):
    """There is no such kind of job."""


class Unauthorized(ClusterError):
    """A token is needed."""

    status = 401


class Forbidden(ClusterError):
    """The request is not allowed."""

    status = 403


class NotFound(ClusterError):
    """There is no such thing."""

    status = 404


def missing(what: str, name: str, field: str) -> NotFound:
    """Return the error about a thing that does not exist. Things of its sort are listed at /api/`what`s."""
    return NotFound(f"no {what} {name}; list them with GET /api/{what}s", field=field)


class TooSlow(ClusterError):
    """The body did not arrive in time."""

    status = 408


class Conflict(ClusterError):
    """The state does not allow this."""

    status = 409


class Broken(ClusterError):
    """Raised when something stored cannot be read."""

    status = 409


class TooLarge(ClusterError):
    """The body is too large."""

    status = 413


class InvalidRange(ClusterError):
    """Nothing of the file is in the range."""

    status = 416


class OverLimit(ClusterError):
    """A limit is reached."""

    status = 429

    def __init__(self, detail: str = "", *, field: str | None = None, seconds: int = 1) -> None:
        super().__init__(detail, field=field)
        #: Seconds after which a client should try again, for Retry-After.
        self.seconds = seconds


class UnsupportedMediaType(ClusterError):
    """The body's type is not supported."""

    status = 415


class Unavailable(ClusterError):
    """A part of the cluster cannot be reached."""

    status = 503


class StoreFull(ClusterError):
    """The artifact store is full."""

    status = 507


class MissingSetting(ClusterError):
    """A setting of the coordinator is missing."""

    # Not 503: it comes back with every attempt until somebody sets it.
    status = 500


class NoKernel(ClusterError):
    """No kernel for this device."""


class KernelFailed(ClusterError):
    """A kernel raised."""

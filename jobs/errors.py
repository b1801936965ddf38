"""Exceptions of the cluster. The docstring of a class is its title in API responses; `status` is its HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClusterError(Exception):
    """The cluster failed to process the request."""

    status = 500

    def __init__(self, detail: str = "", *, field: str | None = None) -> None:
        super().__init__(detail or self.title())
        self.detail = detail or self.title()
        #: Dotted path of the invalid input, for example `parameters.number_count`.
        self.field = field
        #: Additional members of the error response, keyed by name.
        self.extra: Mapping[str, Any] = {}

    @classmethod
    def title(cls) -> str:
        """Return the first line of the class's docstring, without its full stop."""
        return (cls.__doc__ or cls.__name__).splitlines()[0].rstrip(".")


class InvalidRequest(ClusterError):
    """The request is not valid."""

    status = 422


class UnknownTenant(InvalidRequest):
    """The tenant does not exist."""

    def __init__(self, tenant: str) -> None:
        detail = f"tenant: {tenant} is not registered; an admin can register it with PUT /api/tenants/{tenant}"
        super().__init__(detail, field="tenant")


class MalformedBody(ClusterError):
    """The request body is not valid JSON."""

    status = 400


class IncompatibleVersion(ClusterError):
    """The version of the client or worker does not work together with this coordinator."""

    status = 400


class UnknownKind(InvalidRequest):
    """The kind of job does not exist."""


class Unauthorized(ClusterError):
    """A token is required."""

    status = 401


class Forbidden(ClusterError):
    """The request is not allowed."""

    status = 403


class NotFound(ClusterError):
    """The resource does not exist."""

    status = 404


def missing(what: str, name: str, field: str) -> NotFound:
    """Return the error for a resource that does not exist. Its detail says how to list the existing ones."""
    return NotFound(f"no {what} {name}; list them with GET /api/{what}s", field=field)


class TooSlow(ClusterError):
    """The request body did not arrive in time."""

    status = 408


class Conflict(ClusterError):
    """The current state does not allow the request."""

    status = 409


class Broken(ClusterError):
    """Stored data cannot be read."""

    status = 409


class TooLarge(ClusterError):
    """The request body is too large."""

    status = 413


class InvalidRange(ClusterError):
    """The requested range is outside the file."""

    status = 416


class OverLimit(ClusterError):
    """A limit is reached."""

    status = 429

    def __init__(self, detail: str = "", *, field: str | None = None, seconds: int = 1) -> None:
        super().__init__(detail, field=field)
        #: Seconds after which a client can try again, sent in the Retry-After header.
        self.seconds = seconds


class UnsupportedMediaType(ClusterError):
    """The media type of the request body is not supported."""

    status = 415


class Unavailable(ClusterError):
    """A part of the cluster cannot be reached."""

    status = 503


class StoreFull(ClusterError):
    """The artifact store is full."""

    status = 507


class MissingSetting(ClusterError):
    """A setting of the coordinator is missing."""

    # The status is not 503, because a retry fails until an operator sets the setting.
    status = 500


class NoKernel(ClusterError):
    """The kind cannot run on this device."""


class KernelFailed(ClusterError):
    """The kernel raised an exception."""

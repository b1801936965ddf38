"""Guests: requests without a token, on a cluster whose other requests need one.

A guest submits jobs of compiled kinds, and reads and controls the jobs of guests. GUEST_TENANT owns these jobs. Guests
are programs on this machine. Browsers must log in, so that no page acts as a guest without the user's knowledge.
"""

from __future__ import annotations

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from coordinator.access import cookies
from coordinator.access.principal import GUEST, GUEST_TENANT, Principal
from jobs import errors
from jobs.models import Priority
from jobs.network import exposure
from jobs.settings import Settings
from jobs.store.tenancy.tenants import Tenant, Tenants

#: Methods and paths of the routes that accept guests. All other routes need a token.
ROUTES = frozenset(
    {
        ("GET", "/api/job-types"),
        ("POST", "/api/submit"),
        ("POST", "/api/submit-batch"),
        ("GET", "/api/jobs"),
        ("GET", "/api/jobs/{job_id}"),
        ("GET", "/api/jobs/{job_id}/result"),
        ("GET", "/api/jobs/{job_id}/events"),
        ("POST", "/api/jobs/{job_id}/{verb:verb}"),
        ("POST", "/api/results"),
        ("GET", "/api/v1/queue/tasks/{job_id}"),
        ("POST", "/api/v1/queue/tasks/{job_id}/cancel"),
        ("GET", "/api/v1/queue/history"),
    }
)
#: Instructions for users whose request needs a token.
ADVICE = (
    "the `cluster` command in the cluster's checkout has one. For other clients, create one there with `cluster token"
    " create NAME` and store it with `cluster login URL`; for a browser, print a link with `cluster login --link`"
)
#: Initial limits of the guests' tenant.
LIMITS = Tenant(name=GUEST_TENANT, max_jobs=1000, max_stored_bytes=64 << 20)
#: Request headers of browsers, of reverse proxies, and of clients with another credential.
_REFUSED_HEADERS = (
    "authorization",
    "x-api-key",
    cookies.CSRF_HEADER,
    "origin",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
)


def require_token(principal: Principal, field: str, purpose: str = "") -> None:
    """Raise Forbidden if the principal is a guest. The error message names `purpose`, or else the field."""
    if principal == GUEST:
        raise errors.Forbidden(f"{purpose or field} needs a token; {ADVICE}", field=field)


def limit_priority(principal: Principal, priority: Priority) -> tuple[Priority, tuple[str, ...]]:
    """Return the priority of a submitted job, with notes for the submitter. Jobs of guests have at most `normal`.

    With `high`, other users of the machine could delay all jobs of people.
    """
    if principal != GUEST or priority is not Priority.HIGH:
        return priority, ()
    return Priority.NORMAL, ("the priority is normal: high needs a token",)


class Guests:
    """Decides which requests without a token are accepted."""

    def __init__(self, settings: Settings, tenants: Tenants) -> None:
        self.are_accepted = exposure.accepts_guests(settings)
        self._hosts = exposure.allowed_hosts(settings)
        self._tenants = tenants
        self._is_registered = False

    async def principal(self, request: Request) -> Principal | None:
        """Return GUEST, or None if the request needs a token."""
        route = getattr(request.scope.get("route"), "path", "")
        if not self.are_accepted or (request.method, route) not in ROUTES or not self._is_from_program(request):
            return None
        if not self._is_registered:
            await run_in_threadpool(self._register)
            self._is_registered = True
        return GUEST

    def _is_from_program(self, request: Request) -> bool:
        """Return True if a program on this machine sent the request without credentials, or a user opened its URL."""
        headers = request.headers
        host = exposure.host_name(headers.get("host", ""))
        return (
            (exposure.is_loopback(host) or host in self._hosts)
            and headers.get("sec-fetch-site", "none") == "none"
            and not any(name in headers for name in _REFUSED_HEADERS)
            and not cookies.read(request)
        )

    def _register(self) -> None:
        """Register the tenant with its limits, unless an admin has registered it."""
        if GUEST_TENANT not in self._tenants.names():
            self._tenants.put(LIMITS)

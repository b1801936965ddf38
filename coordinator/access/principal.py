"""Principals: the senders of requests, with their tenants, tokens and scopes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from jobs import errors
from jobs.models import DEFAULT_TENANT, Actor

#: Tenant of the jobs that guests submit. No token belongs to this tenant.
GUEST_TENANT = "guest"
#: Token ID that represents CLUSTER_TOKEN. IDs of API tokens never contain a dash.
BOOTSTRAP = "cluster-token"


class Scope(StrEnum):
    """Permission of a token."""

    #: Read the tenant's jobs, artifacts and services, and the state of the cluster.
    READ = "read"
    #: Submit, cancel, pause, resume, retry, delete and query the tenant's jobs; create and delete its artifacts.
    SUBMIT = "submit"
    #: Run programs, attach shells to them, and set their secrets.
    RUN = "run"
    #: Send requests to services.
    INFER = "infer"
    #: Lease work as the worker named in the token.
    WORKER = "worker"
    #: Add one new host to the cluster.
    JOIN = "join"
    #: Drain workers; read and control the jobs of every tenant.
    OPERATE = "operate"
    #: Manage tokens, tenants, secrets, the audit log and usage of every tenant. Includes all other scopes.
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Sender of a request, with its tenant, token and scopes."""

    tenant: str
    #: ID of the API token, BOOTSTRAP for CLUSTER_TOKEN, or empty without a token.
    token: str
    scopes: frozenset[Scope]
    #: Name of the API token, or empty without a token.
    name: str = field(default="", compare=False)
    #: Host labels from a worker token or an invitation.
    labels: tuple[str, ...] = ()
    #: ID of the browser session, or empty if the request has a token instead.
    session: str = ""
    #: Digest of the CLUSTER_TOKEN in use, or empty for any other token.
    bootstrap: str = field(default="", compare=False)

    def has(self, *scopes: Scope) -> bool:
        """Return True if the principal has one of these scopes or admin, or if `scopes` is empty."""
        return not scopes or not self.scopes.isdisjoint((*scopes, Scope.ADMIN))

    def require(self, *scopes: Scope) -> None:
        """Raise Forbidden unless the principal has one of these scopes."""
        if not self.has(*scopes):
            required = " or ".join(scopes)
            owned = ", ".join(sorted(self.scopes)) or "none"
            have = f"the token has {owned}" if self.token else f"a request without a token has {owned}"
            raise errors.Forbidden(f"this request needs the scope {required}; {have}", field="Authorization")

    @property
    def actor(self) -> Actor:
        """Return the actor that the audit log records for this principal."""
        return Actor(self.tenant, self.token)

    @property
    def only_tenant(self) -> str | None:
        """Return the only tenant whose jobs the principal can access, or None if it can access all jobs."""
        return None if self.has(Scope.OPERATE) else self.tenant


#: Principal of requests without a token, if the cluster does not require tokens.
ANYONE = Principal(tenant=DEFAULT_TENANT, token="", scopes=frozenset({Scope.READ, Scope.SUBMIT, Scope.OPERATE}))
#: Principal of requests without a token, if the cluster accepts guests. `guests.py` lists the routes.
GUEST = Principal(tenant=GUEST_TENANT, token="", scopes=frozenset({Scope.READ, Scope.SUBMIT}))
#: Principal of requests with CLUSTER_TOKEN.
OWNER = Principal(tenant=DEFAULT_TENANT, token=BOOTSTRAP, scopes=frozenset(Scope))

"""Who asks: a tenant, the token that says so, and the scopes that decide what it may do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from jobs import errors
from jobs.models import DEFAULT_TENANT, Actor

#: Stands for an id where the principal has CLUSTER_TOKEN; no id of an API token has a dash.
BOOTSTRAP = "cluster-token"


class Scope(StrEnum):
    """Right that a token gives its bearer."""

    #: Look at everything that one may look at.
    READ = "read"
    #: Submit, cancel, pause, resume, retry, delete and ask jobs of one's tenant; put and delete its artifacts.
    SUBMIT = "submit"
    #: Run programs, have shells beside them, and set the secrets that they are given.
    RUN = "run"
    #: Ask services.
    INFER = "infer"
    #: Take work as the worker that the token is named after.
    WORKER = "worker"
    #: Join the cluster with a new host, once.
    JOIN = "join"
    #: Drain workers; see and steer jobs of every tenant.
    OPERATE = "operate"
    #: Tokens, tenants, secrets, audit and usage of everybody; includes all other scopes.
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who asks."""

    tenant: str
    #: Id of its API token; BOOTSTRAP with CLUSTER_TOKEN; empty without any.
    token: str
    scopes: frozenset[Scope]
    #: Name of its API token; empty without one.
    name: str = field(default="", compare=False)
    #: Labels of the host of the worker that it is, or of the host that joins with it.
    labels: tuple[str, ...] = ()
    #: Id of the browser's session; empty for who sent a token.
    session: str = ""
    #: Digest of the CLUSTER_TOKEN that it showed; empty for any other token.
    bootstrap: str = field(default="", compare=False)

    def has(self, *scopes: Scope) -> bool:
        """Return True when the principal has one of these scopes, or admin; or when none is named."""
        return not scopes or not self.scopes.isdisjoint((*scopes, Scope.ADMIN))

    def require(self, *scopes: Scope) -> None:
        """Raise Forbidden, naming what is needed and what there is, unless the principal has one of these scopes."""
        if not self.has(*scopes):
            needed = " or ".join(scopes)
            owned = ", ".join(sorted(self.scopes)) or "none"
            have = f"the token has {owned}" if self.token else f"a call without a token has {owned}"
            raise errors.Forbidden(f"this needs the scope {needed}; {have}", field="Authorization")

    @property
    def actor(self) -> Actor:
        """Who it is in the audit log."""
        return Actor(self.tenant, self.token)

    @property
    def only_tenant(self) -> str | None:
        """The tenant whose jobs alone the principal sees and steers; None: it sees those of all."""
        return None if self.has(Scope.OPERATE) else self.tenant


#: Who asks without a token where none is needed.
ANYONE = Principal(tenant=DEFAULT_TENANT, token="", scopes=frozenset({Scope.READ, Scope.SUBMIT, Scope.OPERATE}))
#: Who asks with CLUSTER_TOKEN.
OWNER = Principal(tenant=DEFAULT_TENANT, token=BOOTSTRAP, scopes=frozenset(Scope))

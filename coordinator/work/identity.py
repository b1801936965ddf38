"""Which worker asks: the one that its token is named after."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends

from coordinator.access.principal import Principal
from coordinator.server.http import PrincipalDep
from jobs import errors

#: Names of workers.
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NEXT = "make one with: cluster token create NAME --scopes worker, where NAME is the worker's"


def named(principal: Principal) -> str:
    """Return the worker's name. Raises Forbidden unless it is the name of the principal's API token."""
    if principal.session or not principal.name:
        raise errors.Forbidden(f"a worker needs an API token of its own; {_NEXT}", field="Authorization")
    if not NAME.fullmatch(principal.name):
        detail = (
            f"the token's name {principal.name} is no name of a worker (letters, digits, dots, dashes and _); {_NEXT}"
        )
        raise errors.Forbidden(detail, field="Authorization")
    return principal.name


async def _worker(principal: PrincipalDep) -> str:
    return named(principal)


WorkerDep = Annotated[str, Depends(_worker)]


def owned(worker: str, lease: str) -> str:
    """Return the token of a lease as Redis knows it: nobody but this worker can name it, whoever sees it."""
    return f"{owner(worker)}{lease}"


def owner(worker: str) -> str:
    """Return what the tokens of a worker's leases begin with; no worker's name holds the sign at its end."""
    return f"{worker}/"

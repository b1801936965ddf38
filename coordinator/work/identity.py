"""Identity of a worker: its name is the name of its API token."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends

from coordinator.access.principal import Principal
from coordinator.server.http import PrincipalDep
from jobs import errors

#: Pattern of worker names.
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NEXT = "create one with: cluster token create NAME --scopes worker (NAME is the worker's name)"


def worker_name(principal: Principal) -> str:
    """Return the worker's name. Raises Forbidden unless it is the name of the principal's API token."""
    if principal.session or not principal.name:
        raise errors.Forbidden(f"a worker needs its own API token; {_NEXT}", field="Authorization")
    if not NAME.fullmatch(principal.name):
        detail = f"the token's name {principal.name} is not a valid worker name (letters, digits, ., - and _); {_NEXT}"
        raise errors.Forbidden(detail, field="Authorization")
    return principal.name


async def _worker(principal: PrincipalDep) -> str:
    return worker_name(principal)


WorkerDep = Annotated[str, Depends(_worker)]


def worker_lease_token(worker: str, lease: str) -> str:
    """Return a lease token with the worker's name as prefix, so that no other worker can use the lease."""
    return f"{token_prefix(worker)}{lease}"


def token_prefix(worker: str) -> str:
    """Return the prefix of a worker's lease tokens. Worker names cannot contain the slash at its end."""
    return f"{worker}/"

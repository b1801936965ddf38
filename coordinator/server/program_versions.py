"""Check that the version of a client, worker or runner works together with this coordinator.

These programs send their version in the header User-Agent. Requests of other programs are not checked.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jobs import VERSION, errors
from threads_protocol import versions

#: Names of our programs in the header, with the text that names them in errors.
_PROGRAMS = {"cluster-client": "client", "threads-cluster-worker": "worker or runner"}
_AGENT = re.compile(rf"({'|'.join(_PROGRAMS)})/(\d\S{{0,40}})")


def require_compatible(agent: str) -> None:
    """Raise IncompatibleVersion if the header User-Agent contains a version that this coordinator does not accept."""
    if agent.startswith(tuple(_PROGRAMS)) and (reason := obstacle(agent)):
        raise errors.IncompatibleVersion(reason, field="User-Agent")


@lru_cache(maxsize=256)
def obstacle(agent: str) -> str:
    """Return why this coordinator does not accept the program's version, or an empty text if it does."""
    found = _AGENT.fullmatch(agent)
    try:
        if not found or versions.are_compatible(VERSION, found[2]):
            return ""
    except versions.NoVersion:
        return ""
    is_older = versions.parse(found[2]) < versions.parse(VERSION)
    advice = f"update the {_PROGRAMS[found[1]]}" if is_older else "update the cluster first"
    return (
        f"this {_PROGRAMS[found[1]]} has version {found[2]}, but a coordinator of version {VERSION} works with versions"
        f" {versions.describe_accepted(VERSION)}: {advice} (see docs/upgrades.md)"
    )

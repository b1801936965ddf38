"""Locations as users type them, such as HOST:disk. The host can also be in a separate option, or be omitted."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from threads_cluster.errors import BadArgument

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

_LOCATION = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*:)?(?:disk|dram|cpu|gpu[0-9]+)")
_STORE = "disk"


def on(cluster: Cluster, host: str | None, place: str, *, store: bool = False) -> str:
    """Add a host to a location without a host: `host`, or else this machine if it has a runner of the cluster.

    Without a host, `disk` is the cluster's store. If `store` is true, it is the store even with a host. The cluster
    completes other locations without a host.
    """
    if ":" in place or (place == _STORE and (store or host is None)):
        return place
    host = host or find_own_host(cluster)
    return f"{host}:{place}" if host else place


def find_own_host(cluster: Cluster) -> str:
    """Return the name of this machine in the cluster, or an empty string if no live runner of the cluster is on it."""
    from threads_cluster.client import checkouts

    hosts = {row["host"] for row in cluster.workers() if row["live"] and row["device"] == "runner"}
    names = (str(checkouts.own().membership().get("name", "")), _local_name())
    return next((name for name in names if name in hosts), "")


def _local_name() -> str:
    """Return the host name that workers in this checkout use, or an empty string outside of a checkout."""
    try:
        from jobs.settings import default_host
    except ModuleNotFoundError:
        return ""
    return default_host()


def require(cluster: Cluster, place: str, option: str) -> None:
    """Raise BadArgument unless a text is a location, and ApiError if its host does not exist."""
    if not _LOCATION.fullmatch(place):
        raise BadArgument(
            f"must be disk, or a location such as HOST:disk, HOST:dram or HOST:gpu0; got {place!r}", option
        )
    if ":" in place:
        cluster.host(place.partition(":")[0])


def is_at(place: str | None, locations: Collection[str]) -> bool:
    """Return True if `place` is None or one of the locations. Without a host, `place` matches locations on any host."""
    return place is None or place in locations or any(each.endswith(f":{place}") for each in locations)

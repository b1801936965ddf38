"""Health of hosts. The hosts of cluster.yaml are checked over SSH, and the cluster reports its own hosts."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from threads_cluster import errors
from threads_cluster.ssh import probe
from threads_cluster.ssh.configuration import HealthCheck, Node
from threads_cluster.ssh.probe import Health

if TYPE_CHECKING:
    from threads_cluster.ssh.pool import Pool


async def check_nodes(pool: Pool, nodes: Sequence[Node] | None = None) -> list[Health]:
    """Check hosts of cluster.yaml in parallel, by default all of them. Return their health in the same order."""
    places = asyncio.Semaphore(pool.config.health_check.max_workers)

    async def one(node: Node) -> Health:
        async with places:
            return await probe.check_host(pool, node)

    return list(await asyncio.gather(*map(one, nodes or pool.config.nodes)))


def from_cluster(rows: Iterable[Mapping[str, Any]], check: HealthCheck) -> list[Health]:
    """Convert hosts from the format of /api/hosts to their health."""
    return [_joined(row, check) for row in rows]


def _joined(row: Mapping[str, Any], check: HealthCheck) -> Health:
    load1, cpus = row.get("load1"), row.get("cpus") or 0
    gpus = tuple(
        100.0 * device["utilization_ratio"]
        for device in row.get("devices") or ()
        if device.get("utilization_ratio") is not None
    )
    told = {
        "name": row["host"],
        "source": "joined",
        "gpus": gpus,
        "load1": load1,
        "cpus": cpus or None,
        "memory_used_bytes": row.get("memory_used_bytes"),
        "memory_total_bytes": row.get("memory_total_bytes"),
    }
    if not row["live"]:
        return Health(**told, reachable=False, reason="all workers are lost", advice=f"cluster host {row['host']}")
    if load1 is None or not cpus:
        return Health(**told, reachable=True)
    return Health(
        **told,
        reachable=True,
        reason=probe.find_trouble(load1, cpus, gpus),
        score=probe.score(load1, cpus, gpus, check),
    )


def merge(nodes: Sequence[Health], joined: Sequence[Health]) -> list[Health]:
    """Merge two lists of hosts. For a host in both lists, keep the health from SSH."""
    names = {each.name for each in nodes}
    return [*nodes, *(each for each in joined if each.name not in names)]


def best(several: Iterable[Health]) -> Health | None:
    """Return the best host: the healthy host with the lowest score, or else any reachable host. None if there
    is none.
    """
    scored = [each for each in several if each.reachable and each.score is not None]
    return min(scored, key=lambda each: (not each.healthy, each.score, each.name), default=None)


def choose(several: Sequence[Health]) -> Health:
    """Return the best host. Raises ClientError if no host is reachable."""
    found = best(several)
    if found is None:
        reasons = "; ".join(f"{each.name} {each.reason}" for each in several[:5])
        more = f"; and {len(several) - 5} more" if len(several) > 5 else ""
        error = errors.ClientError(f"no host is reachable: {reasons}{more}")
        error.next = next((each.advice for each in several if each.advice), "")
        raise error
    return found


def row(each: Health, best_one: Health | None) -> dict[str, Any]:
    """Return the health of a host as a JSON object."""
    return {
        **{name: value for name, value in dataclasses.asdict(each).items() if name != "advice"},
        "healthy": each.healthy,
        "gpu_percent": each.gpu_percent,
        "best": each is best_one,
    }


def line(each: Health, best_one: Health | None) -> str:
    """Format the health of a host as one line of text."""
    verdict = "✓ HEALTHY" if each.healthy else "✗ UNHEALTHY"
    head = f"{each.name:<20} {verdict:<13}  "
    if each.load1 is None or each.score is None or not each.reachable:
        return f"{head}{each.reason or 'load unknown'}"
    gpu = "     -" if each.gpu_percent is None else f"{each.gpu_percent:5.1f}%"
    figures = f"CPU: {each.load1:6.2f}  GPU: {gpu}  Score: {each.score:5.1f}"
    memory = ""
    if each.memory_total_bytes and each.memory_used_bytes is not None:
        memory = f"  Memory: {each.memory_used_bytes / each.memory_total_bytes:4.0%}".replace("%", " %")
    return f"{head}{figures}{memory}{'  best' if each is best_one else ''}"

"""A round of ./deploy-cluster.sh autoscale, which pipes this into a coordinator: `python3 - step CONTAINER...`.

deploy/autoscaler decides by the same `plan` in a container of its own.

`step` drains workers that are not needed, lets those work again that are, and prints what to do with containers; `look`
prints the same and changes nothing; `release` lets all workers of these containers work again. Each prints lines:

    need N        N workers are needed
    drain NAME    this worker takes nothing new from now on
    resume NAME   this worker takes new work again
    stop ID       the worker of this container has ended its leases
    scale N       N containers should be there
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

TOKEN = Path("/run/secrets/cluster_token")
API = "http://127.0.0.1:3000/api"
#: A container's name within it, with which a worker's name begins, is this much of its id.
_ID_LENGTH = 12
#: As AUTOSCALE_MAX is bounded: a larger number is no answer of a coordinator.
MOST_WORKERS = 10_000
#: What is used of a worker's row.
_ROW = {"id": str, "device": str | None, "live": bool, "draining": bool, "state": str, "busy_lanes": int}

Worker = Mapping[str, Any]


class Cluster(Protocol):
    """Questions that a round asks a cluster."""

    def status(self) -> Mapping[str, Any]:
        """Return GET /api/status."""
        ...

    def workers(self) -> Sequence[Worker]:
        """Return the rows of GET /api/workers."""
        ...

    def drain(self, worker: str, on: bool) -> None:
        """Let a worker end its leases and take nothing new, or take that back."""
        ...


@dataclass(frozen=True)
class Plan:
    """Consequences of a number of workers that are needed."""

    #: Names of workers.
    drain: Sequence[str]
    resume: Sequence[str]
    #: Ids of containers.
    stop: Sequence[str]
    #: Containers that should be there.
    containers: int


def plan(need: int, containers: Sequence[str], workers: Sequence[Worker]) -> Plan:
    """Return what brings the workers of these containers to the number needed. Pure.

    A worker that drains, whoever said so, is on its way out: it works again before a new one starts, and its container
    stops when its leases have ended. One that has not reported yet is never drained, and none for it: it may hang.
    """
    rows = {container: row for container in containers if (row := _worker_of(container, workers))}
    leaving = [container for container, row in rows.items() if row["draining"]]
    staying = [container for container in containers if container not in leaving]
    resume = leaving[: max(0, need - len(staying))]
    missing = max(0, need - len(staying) - len(resume))
    idle_first = sorted((each for each in staying if each in rows), key=lambda each: rows[each]["busy_lanes"])
    drain = idle_first[: max(0, len(idle_first) - need)]
    stop = [each for each in leaving if each not in resume and rows[each]["state"] == "drained"]
    return Plan(
        drain=[rows[each]["id"] for each in drain],
        resume=[rows[each]["id"] for each in resume],
        stop=stop,
        containers=len(containers) + missing,
    )


def count_needed(containers: Sequence[str], need: int, workers: Sequence[Worker]) -> int:
    """Return how many of the `need` workers are left for these containers, where others live beside them."""
    ours = [row["id"] for container in containers if (row := _worker_of(container, workers))]
    takers = [row for row in workers if row["live"] and row["device"] == "cpu" and not row["draining"]]
    return max(0, need - len([row for row in takers if row["id"] not in ours]))


def total_of(status: Mapping[str, Any]) -> int:
    """Return the CPU workers that a cluster needs; LookupError where nobody says, ValueError for what is no number."""
    desired = status["desired_workers"]
    total = desired["cpu"] if isinstance(desired, Mapping) else None
    if total is None:
        raise LookupError("cpu")
    if not isinstance(total, int) or not 0 <= total <= MOST_WORKERS:
        raise ValueError(f"{total!r} is no number of workers")
    return total


def _worker_of(container: str, workers: Sequence[Worker]) -> Worker | None:
    """Return the live worker of a container, whose name is the container's and a process id."""
    name = f"{container[:_ID_LENGTH]}-"
    return next((worker for worker in workers if worker["live"] and worker["id"].startswith(name)), None)


def step(cluster: Cluster, containers: Sequence[str], *, act: bool) -> list[str]:
    """Do a round and return its lines; LookupError while nobody says how many workers are needed."""
    need = total_of(cluster.status())
    chosen = plan(need, containers, cluster.workers())
    if act:
        for on, names in ((True, chosen.drain), (False, chosen.resume)):
            for name in names:
                cluster.drain(name, on)
    lines = [f"need {need}", *(f"drain {name}" for name in chosen.drain), *(f"resume {name}" for name in chosen.resume)]
    lines += [f"stop {container}" for container in chosen.stop]
    return lines + [f"scale {chosen.containers}"] * (chosen.containers > len(containers))


def release(cluster: Cluster, containers: Sequence[str]) -> list[str]:
    """Let every worker of these containers that drains work again; return a line for each."""
    workers = cluster.workers()
    rows = [row for container in containers if (row := _worker_of(container, workers))]
    draining = [row["id"] for row in rows if row["draining"]]
    for name in draining:
        cluster.drain(name, False)
    return [f"resume {name}" for name in draining]


class Api:
    """A cluster over HTTP, as it is seen in a coordinator's container, or at another address.

    OSError or ValueError where it does not answer, or answers what no coordinator does.
    """

    def __init__(self, url: str = API) -> None:
        # Two while one replaces the other.
        token = (TOKEN.read_text().replace(",", " ").split() or [""])[0] if TOKEN.is_file() else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # A proxy that is set for the internet must not see the token.
        self._http = httpx.Client(base_url=url, headers=headers, timeout=5, trust_env=False)

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self._http.request("GET" if body is None else "POST", path, json=body)
        except httpx.HTTPError as error:
            raise OSError(str(error) or type(error).__name__) from None
        if answer.is_error:
            raise OSError(f"HTTP Error {answer.status_code}: {answer.reason_phrase}")
        read = answer.json()
        if not isinstance(read, dict):
            raise ValueError("its answer is none of a coordinator")
        return read

    def status(self) -> Mapping[str, Any]:
        return self._ask("/status")

    def workers(self) -> Sequence[Worker]:
        rows = self._ask("/workers").get("workers")
        if not isinstance(rows, list) or not all(map(_is_worker, rows)):
            raise ValueError("its workers cannot be read")
        return rows

    def drain(self, worker: str, on: bool) -> None:
        self._ask(f"/workers/{worker}/drain", {"on": on})


def _is_worker(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in _ROW.items())


def main(words: Sequence[str], cluster: Cluster) -> int:
    verb, *containers = words
    try:
        releases = verb == "release"
        lines = release(cluster, containers) if releases else step(cluster, containers, act=verb == "step")
    except (OSError, ValueError) as error:
        print(f"the API does not answer: {error}", file=sys.stderr)
        return 1
    except LookupError:
        print("no coordinator has counted the workers that are needed yet", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Api()))

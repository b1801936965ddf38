"""Run one round of ./deploy-cluster.sh autoscale, which pipes this file into a coordinator: `python3 - step
CONTAINER...`.

deploy/autoscaler uses the same `plan` in its own container.

`step` drains surplus workers, resumes draining workers that are needed, and prints the changes of containers. `look`
prints the same but changes nothing. `release` resumes all workers of these containers. Output lines:

    need N        N workers are needed
    drain NAME    this worker accepts no new leases
    resume NAME   this worker accepts leases again
    stop ID       the worker of this container has finished its leases
    scale N       N containers should exist
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
#: Length of the container ID's prefix with which the name of its worker starts.
_ID_LENGTH = 12
#: Upper bound of AUTOSCALE_MAX. A response with a larger number is invalid.
MAX_WORKERS = 10_000
#: Required fields of a worker's record, with their types.
_WORKER_FIELDS = {"id": str, "device": str | None, "live": bool, "draining": bool, "state": str, "busy_lanes": int}

Worker = Mapping[str, Any]


class Cluster(Protocol):
    """Requests that a round sends to the cluster."""

    def status(self) -> Mapping[str, Any]:
        """Return the response of GET /api/status."""
        ...

    def workers(self) -> Sequence[Worker]:
        """Return the workers in the response of GET /api/workers."""
        ...

    def drain(self, worker: str, on: bool) -> None:
        """Start or cancel the draining of a worker, which then finishes its leases and accepts no new ones."""
        ...


@dataclass(frozen=True)
class Plan:
    """Changes that lead to the needed number of workers."""

    #: Worker names.
    drain: Sequence[str]
    resume: Sequence[str]
    #: Container IDs.
    stop: Sequence[str]
    #: Number of containers that should exist.
    containers: int


def plan(need: int, containers: Sequence[str], workers: Sequence[Worker]) -> Plan:
    """Plan the changes that lead to the needed number of workers, without side effects.

    A draining worker is about to leave. It is resumed before a new worker starts, and its container stops when its
    leases have finished. A worker that has not reported yet is never drained or replaced, because it may hang.
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
    """Return how many of the `need` workers these containers must provide, after counting workers elsewhere."""
    ours = [row["id"] for container in containers if (row := _worker_of(container, workers))]
    takers = [row for row in workers if row["live"] and row["device"] == "cpu" and not row["draining"]]
    return max(0, need - len([row for row in takers if row["id"] not in ours]))


def desired_cpu_workers(status: Mapping[str, Any]) -> int:
    """Return the number of CPU workers that the cluster needs. Raises LookupError if unknown, ValueError if invalid."""
    desired = status["desired_workers"]
    total = desired["cpu"] if isinstance(desired, Mapping) else None
    if total is None:
        raise LookupError("cpu")
    if not isinstance(total, int) or not 0 <= total <= MAX_WORKERS:
        raise ValueError(f"{total!r} is not a valid number of workers")
    return total


def _worker_of(container: str, workers: Sequence[Worker]) -> Worker | None:
    """Return the live worker of a container. Its name consists of the container's name and a process ID."""
    name = f"{container[:_ID_LENGTH]}-"
    return next((worker for worker in workers if worker["live"] and worker["id"].startswith(name)), None)


def run_round(cluster: Cluster, containers: Sequence[str], *, act: bool) -> list[str]:
    """Run one round and return its output lines. Raises LookupError if the number of needed workers is unknown."""
    need = desired_cpu_workers(cluster.status())
    chosen = plan(need, containers, cluster.workers())
    if act:
        for on, names in ((True, chosen.drain), (False, chosen.resume)):
            for name in names:
                cluster.drain(name, on)
    lines = [f"need {need}", *(f"drain {name}" for name in chosen.drain), *(f"resume {name}" for name in chosen.resume)]
    lines += [f"stop {container}" for container in chosen.stop]
    return lines + [f"scale {chosen.containers}"] * (chosen.containers > len(containers))


def resume_workers(cluster: Cluster, containers: Sequence[str]) -> list[str]:
    """Resume the draining workers of these containers and return an output line for each."""
    workers = cluster.workers()
    rows = [row for container in containers if (row := _worker_of(container, workers))]
    draining = [row["id"] for row in rows if row["draining"]]
    for name in draining:
        cluster.drain(name, False)
    return [f"resume {name}" for name in draining]


class Api:
    """Client for the HTTP API, by default of the coordinator in this container.

    Methods raise OSError or ValueError if the API does not answer or its response is invalid.
    """

    def __init__(self, url: str = API) -> None:
        # The file can contain two tokens during a token rotation; use the first.
        token = (TOKEN.read_text().replace(",", " ").split() or [""])[0] if TOKEN.is_file() else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Ignore proxy settings for the internet: the proxy must not see the token.
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
            raise ValueError("the response is not a JSON object")
        return read

    def status(self) -> Mapping[str, Any]:
        return self._ask("/status")

    def workers(self) -> Sequence[Worker]:
        rows = self._ask("/workers").get("workers")
        if not isinstance(rows, list) or not all(map(_is_worker, rows)):
            raise ValueError("the list of workers is invalid")
        return rows

    def drain(self, worker: str, on: bool) -> None:
        self._ask(f"/workers/{worker}/drain", {"on": on})


def _is_worker(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in _WORKER_FIELDS.items())


def main(words: Sequence[str], cluster: Cluster) -> int:
    verb, *containers = words
    try:
        releases = verb == "release"
        lines = resume_workers(cluster, containers) if releases else run_round(cluster, containers, act=verb == "step")
    except (OSError, ValueError) as error:
        print(f"The API does not answer: {error}", file=sys.stderr)
        return 1
    except LookupError:
        print("No coordinator has calculated the number of needed workers yet", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Api()))

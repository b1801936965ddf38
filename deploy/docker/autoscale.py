"""Run one round of ./deploy-cluster.sh autoscale: `python3 - step CONTAINER...`.

The script pipes this program into a coordinator. deploy/autoscaler uses the same `plan` in its own container.

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
#: Number of characters of a container's ID that its worker's name starts with.
_ID_LENGTH = 12
#: Largest valid value of AUTOSCALE_MAX. A response with a larger number is invalid.
MAX_WORKERS = 10_000
#: Fields that a worker's record must have, with their types.
_WORKER_FIELDS = {"id": str, "device": str | None, "live": bool, "draining": bool, "state": str, "busy_lanes": int}

Worker = Mapping[str, Any]


class Cluster(Protocol):
    """Requests that a round of the autoscaler sends to the cluster."""

    def status(self) -> Mapping[str, Any]:
        """Return the response to GET /api/status."""
        ...

    def workers(self) -> Sequence[Worker]:
        """Return the workers in the response to GET /api/workers."""
        ...

    def drain(self, worker: str, on: bool) -> None:
        """Drain a worker, so that it finishes its leases and gets no new ones. `on=False` undoes this."""
        ...


@dataclass(frozen=True)
class Plan:
    """Changes that lead to the required number of workers."""

    #: Names of workers to drain.
    drain: Sequence[str]
    resume: Sequence[str]
    #: IDs of containers to stop.
    stop: Sequence[str]
    #: Number of containers that should exist afterwards.
    containers: int


def plan(need: int, containers: Sequence[str], workers: Sequence[Worker]) -> Plan:
    """Plan the changes that lead to the required number of workers. This function has no side effects.

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
    """Return the number of workers that `containers` must provide. Workers elsewhere reduce this number."""
    ours = [row["id"] for container in containers if (row := _worker_of(container, workers))]
    takers = [row for row in workers if row["live"] and row["device"] == "cpu" and not row["draining"]]
    return max(0, need - len([row for row in takers if row["id"] not in ours]))


def desired_cpu_workers(status: Mapping[str, Any]) -> int:
    """Return the required number of CPU workers. Raises LookupError if it is unknown, and ValueError if it is
    invalid.
    """
    desired = status["desired_workers"]
    total = desired["cpu"] if isinstance(desired, Mapping) else None
    if total is None:
        raise LookupError("cpu")
    if not isinstance(total, int) or not 0 <= total <= MAX_WORKERS:
        raise ValueError(f"{total!r} is not a valid number of workers")
    return total


def _worker_of(container: str, workers: Sequence[Worker]) -> Worker | None:
    """Return the live worker in a container. A worker's name contains the container's name and a process ID."""
    name = f"{container[:_ID_LENGTH]}-"
    return next((worker for worker in workers if worker["live"] and worker["id"].startswith(name)), None)


def run_round(cluster: Cluster, containers: Sequence[str], *, act: bool) -> list[str]:
    """Run one round and return its output. Raises LookupError if the required number of workers is unknown."""
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
    """Resume the draining workers in `containers`. Return one line of output for each worker."""
    workers = cluster.workers()
    rows = [row for container in containers if (row := _worker_of(container, workers))]
    draining = [row["id"] for row in rows if row["draining"]]
    for name in draining:
        cluster.drain(name, False)
    return [f"resume {name}" for name in draining]


class Api:
    """Client of the HTTP API. By default, it uses the coordinator in this container.

    Methods raise OSError or ValueError if the API does not answer or its response is invalid.
    """

    def __init__(self, url: str = API) -> None:
        # While an operator replaces the token, the file contains two tokens. The first one is used.
        token = (TOKEN.read_text().replace(",", " ").split() or [""])[0] if TOKEN.is_file() else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # A proxy for the internet must not see the token, so proxy settings are ignored.
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

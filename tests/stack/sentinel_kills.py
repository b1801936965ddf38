"""Kills Redis in real containers: `python -m tests.stack.sentinel_kills 5` prints the cost of each failover.

Deploys a copy of the checkout with deploy/ha.yml. While a large job runs and others are submitted, the master's
container is killed in three ways. First, it stays down, so that a replica takes over. Second, the engine restarts it at
once. Third, a sentinel is down at the same time and starts while the server is down. Finally, everything is restarted.
tests/integration/sentinel_kills.py does the same with processes in seconds.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tests.stack.stack import Stack, copy_of_the_checkout, eventually

SERVERS = ("redis", "redis-replica-1", "redis-replica-2")
SENTINELS = ("sentinel-1", "sentinel-2", "sentinel-3")
FILES = "docker-compose.yml:deploy/air-gapped.yml:deploy/ha.yml"
GOAL_SECONDS = 10.0
#: Seconds of computing that continue while the master dies; the largest delay in the range is known.
LARGE, LARGEST_DELAY = 17_900_000_000, (17828259369, 1213)


class HighlyAvailable(Stack):
    """A deployment with replicas and sentinels."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.set("COMPOSE_FILE", FILES)

    def redis_cli(self, service: str, *words: str) -> str:
        """Run valkey-cli with the operator's password on a server or a sentinel."""
        port = "26379" if service in SENTINELS else "6379"
        ask = f'REDISCLI_AUTH=$(cat /run/secrets/redis_password) timeout 3 valkey-cli -p {port} --user operator "$@"'
        done = self.run("docker", "compose", "exec", "-T", service, "sh", "-c", ask, "sh", *words, check=False)
        return done.stdout.strip()

    def master(self) -> str:
        """Return the service that most sentinels consider the master."""
        names = [name for each in SENTINELS if (name := self.known_by(each))]
        return max(set(names), key=names.count)

    def known_by(self, sentinel: str) -> str:
        """Return the service that a sentinel considers the master, or nothing if the sentinel does not answer."""
        return self.redis_cli(sentinel, "sentinel", "get-master-addr-by-name", "threads").partition("\n")[0]

    def whole(self) -> bool:
        """Return True if one server is the master, two replicate it, and every sentinel knows all of them."""
        roles = {each: self.redis_cli(each, "info", "replication") for each in SERVERS}
        masters = [each for each, text in roles.items() if "role:master" in text]
        links = [text.count("master_link_status:up") for text in roles.values()]
        if len(masters) != 1 or sum(links) != 2 or masters[0] != self.master():
            return False
        for each in SENTINELS:
            rows = self.redis_cli(each, "sentinel", "master", "threads").split("\n")
            known = dict(zip(rows[::2], rows[1::2], strict=False))
            if (known.get("num-slaves"), known.get("num-other-sentinels"), known.get("flags")) != ("2", "2", "master"):
                return False
        return True

    def container(self, service: str) -> str:
        """Return the ID of a service's only container, even if it is stopped."""
        [one] = self.compose("ps", "--all", "--quiet", service).split()
        return one

    def kill_for_good(self, service: str) -> None:
        """Kill a container with SIGKILL and prevent its restart by the engine."""
        self.run("docker", "kill", self.container(service))

    def bring_back(self, service: str) -> None:
        """Start a killed container again."""
        self.run("docker", "start", self.container(service))


@dataclass
class Submitter(threading.Thread):
    """Submits small jobs one after another, each until it is acknowledged."""

    url: str
    #: Number of units of each job, keyed by job ID.
    units: dict[str, int] = field(default_factory=dict)
    acknowledged: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        with httpx.Client(timeout=15, base_url=self.url) as http:
            while not self.ended.is_set():
                self._submit(http, 3 + len(self.units) % 50)

    def _submit(self, http: httpx.Client, units: int) -> None:
        key = {"Idempotency-Key": uuid.uuid4().hex}
        body = {"type": "collatz", "parameters": {"start_number": 1, "number_count": units}}
        while not self.ended.is_set():
            try:
                answer = http.post("/api/submit", json=body, headers=key)
                if answer.status_code in (200, 202):
                    self.acknowledged.append(time.monotonic())
                    self.units[answer.json()["job_id"]] = units
                    time.sleep(0.02)
                    return
                self.refused.append(str(answer.status_code))
            except httpx.TransportError as error:
                self.refused.append(repr(error))
            time.sleep(0.05)


@cache
def delays(count: int) -> int:
    """Return the total number of steps of 1 to `count`, computed with the simplest algorithm."""
    total = 0
    for number in range(1, count + 1):
        while number != 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1  # noqa: PLW2901
            total += 1
    return total


Act = Callable[[str], object]


def strike(stack: HighlyAvailable, what: str, kill: Act, mend: Act, ready: Callable[[], bool] | None = None) -> float:
    """Kill the master under load, heal the cluster, print the cost, and return the seconds without writes."""
    eventually(ready or stack.whole, 90, "the servers and sentinels are whole")
    large = stack.submit("collatz", start_number=1, number_count=LARGE)
    load = [Submitter(stack.url) for _ in range(2)]
    for each in load:
        each.start()
    stack.await_progress(large)
    master = stack.master()
    kill(master)
    died = time.monotonic()
    eventually(lambda: any(each.acknowledged and each.acknowledged[-1] > died + 0.2 for each in load), 90, "a write")
    time.sleep(2)
    for each in load:
        each.ended.set()
    for each in load:
        each.join(30)
    follower = stack.master()
    mend(master)
    outage = min(at for each in load for at in each.acknowledged if at > died + 0.2) - died
    units = {job: count for each in load for job, count in each.units.items()}
    with httpx.Client(base_url=stack.url, timeout=40) as http:
        lost = [job for job, count in units.items() if not is_right(http, job, count)]
    longest = stack.result(large, 180)["delay"]["max"]
    exact = (int(longest["n"]), int(longest["value"])) == LARGEST_DELAY
    refused = [word for each in load for word in each.refused]
    print(
        f"{what} ({master} -> {follower}): writes resumed after {outage:.1f} s; {len(units)} acknowledged, "
        f"{len(refused)} refused ({', '.join(sorted(set(refused)))[:200]}), {len(lost)} lost or wrong; "
        f"the large job {'exact' if exact else 'WRONG'}",
        flush=True,
    )
    assert not lost and exact
    return outage


def is_right(http: httpx.Client, job: str, count: int) -> bool:
    """Return True if the job exists and finishes with the known sum."""
    answer = http.get(f"/api/jobs/{job}", params={"wait_seconds": 30})
    answer = http.get(f"/api/jobs/{job}/result") if answer.status_code == 200 else answer
    right = answer.status_code == 200 and int(answer.json()["result"]["delay"]["sum"]) == delays(count)
    if not right:
        print(f"{job}: {answer.status_code} {answer.text[:300]}")
    return right


def without_a_sentinel(stack: HighlyAvailable) -> float:
    """Kill the master while a sentinel is down, which must follow the new master when it starts."""
    eventually(stack.whole, 90, "whole before a sentinel stops")
    stack.compose("stop", "sentinel-2")

    def mend(service: str) -> None:
        stack.compose("start", "sentinel-2")
        eventually(lambda: stack.known_by("sentinel-2") not in ("", service), 30, "the sentinel knows the new master")
        stack.bring_back(service)

    return strike(stack, "a sentinel is away", stack.kill_for_good, mend, ready=lambda: True)


def restart(stack: HighlyAvailable) -> None:
    """Stop and restart everything. Each server must keep its role, and no data may be lost."""
    eventually(stack.whole, 90, "whole before the restart")
    master, jobs = stack.master(), listed(stack)
    stack.deploy("stop")
    started = time.monotonic()
    stack.deploy("docker")
    print(f"restart of everything: {time.monotonic() - started:.0f} s until all is healthy", flush=True)
    eventually(stack.whole, 90, "whole after the restart")
    assert stack.master() == master and listed(stack) == jobs


def listed(stack: HighlyAvailable) -> Any:
    return {job["job_id"]: job["state"] for job in stack.get("/api/jobs", limit=100)["jobs"]}


def every_death(stack: HighlyAvailable, kills: int) -> list[float]:
    """Return the seconds without writes of each failover."""
    outages = [strike(stack, f"kill {each + 1}", stack.kill_for_good, stack.bring_back) for each in range(kills)]
    strike(stack, "the engine starts it again", lambda name: stack.kill_hard(stack.container(name)), lambda _: None)
    outages.append(without_a_sentinel(stack))
    restart(stack)
    outages.append(strike(stack, "after the restart", stack.kill_for_good, stack.bring_back))
    return sorted(outages)


def main(kills: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        copy_of_the_checkout(Path(name))
        stack = HighlyAvailable(Path(name))
        try:
            stack.deploy("docker", "2", "0")
            outages = every_death(stack, kills)
        except BaseException:
            for service in (*SERVERS, *SENTINELS, "coordinator"):
                print(stack.run("docker", "compose", "logs", "--tail", "40", service, check=False).stdout)
            raise
        finally:
            stack.deploy("cleanup", "--yes", check=False)
    median = outages[len(outages) // 2]
    print(f"{len(outages)} failovers: {outages[0]:.1f} to {outages[-1]:.1f} s, median {median:.1f} s; none lost")
    return int(outages[-1] > GOAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 5))

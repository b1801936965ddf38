"""Client of a cluster under faults: submits and controls jobs, and repeats requests that fail or get lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import httpx

from tests import fetch
from tests.chaos.work import Job
from threads_protocol.states import TERMINAL

#: Seconds for which a request is repeated before the client gives up.
PATIENCE_SECONDS = 60.0
#: Seconds before the end of Redis' log in which acknowledged writes can be lost, because writes wait for an fsync.
UNSAFE_SECONDS = 2.5


class GaveUp(Exception):
    """No coordinator accepted a request in time."""


class Order:
    """A job as its client knows it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.job_id = ""
        self.acknowledged = 0.0
        self.ids: list[str] = []
        self.state = ""
        self.error = ""
        self.result: Any = None


class Customer:
    """Client that sends each request to a random coordinator of `urls` and repeats failed requests."""

    def __init__(self, urls: Sequence[str], seed: int, headers: Mapping[str, str] | None = None) -> None:
        self.urls = urls
        self.orders: list[Order] = []
        self._draw = Random(f"customer {seed}")
        limits = httpx.Limits(max_connections=200)
        self._http = fetch.client(
            headers=headers, timeout=httpx.Timeout(5.0, pool=60.0), limits=limits, trust_env=False
        )

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: Any = None, within: float = PATIENCE_SECONDS) -> httpx.Response:
        """Return the first response below status 500. Raises GaveUp if there is none in time."""
        deadline, last = time.monotonic() + within, ""
        while time.monotonic() < deadline:
            try:
                answer = self._http.request(method, self._draw.choice(self.urls) + path, json=body)
                if answer.status_code < 500:
                    return answer
                last = answer.text
            except httpx.TransportError as error:
                last = f"{type(error).__name__}: {error}"
            time.sleep(0.2)
        raise GaveUp(f"{method} {path} for {within:g} s: {last[:300]}")

    def serve(self, jobs: Sequence[Job]) -> None:
        """Submit and control every job at its time, and return after the last one."""
        began = time.monotonic()
        orders = [Order(job) for job in jobs]
        self.orders += orders
        with ThreadPoolExecutor(max_workers=len(orders)) as threads:
            for done in [threads.submit(self._live, order, began) for order in orders]:
                done.result()

    def _live(self, order: Order, began: float) -> None:
        time.sleep(max(0.0, began + order.job.at - time.monotonic()))
        self.submit(order)
        for after, verb in order.job.steering:
            time.sleep(after)
            self.ask("POST", f"/api/jobs/{order.job_id}/{verb}")

    def submit(self, order: Order) -> None:
        answer = self.ask("POST", "/api/submit", order.job.body())
        if answer.status_code != 202:
            raise GaveUp(f"{order.job.key} was refused: {answer.status_code} {answer.text[:300]}")
        order.job_id, order.acknowledged = answer.json()["job_id"], time.monotonic()
        if order.job_id not in order.ids:
            order.ids.append(order.job_id)

    def settle(self, seconds: float, may_be_lost: Callable[[Order], bool]) -> list[str]:
        """Finish every job by submitting, resuming or retrying it. Return problems and unfinished jobs."""
        deadline = time.monotonic() + seconds
        problems: list[str] = []
        left = list(self.orders)
        while left and time.monotonic() < deadline:
            left = [order for order in left if not self._push(order, may_be_lost, problems)]
            time.sleep(0.2 if left else 0.0)
        stuck = [f"{order.job.key} ({order.job_id}) is {order.state} after {seconds:g} s" for order in left]
        return problems + stuck

    def _push(self, order: Order, may_be_lost: Callable[[Order], bool], problems: list[str]) -> bool:
        """Check a job once, and resume or retry it if needed. Return True if it has finished."""
        answer = self.ask("GET", f"/api/jobs/{order.job_id}")
        if answer.status_code == 404:
            if not may_be_lost(order):
                problems.append(f"{order.job.key} ({order.job_id}) is lost though Redis has not died since")
            self.submit(order)
            return False
        found = answer.json()
        order.state, order.error = found["state"], found.get("error") or ""
        if order.state == "failed":
            problems.append(f"{order.job.key} ({order.job_id}) failed: {order.error}")
        again = {"paused": "resume", "cancelled": "retry", "failed": "retry"}.get(order.state)
        if again:
            self.ask("POST", f"/api/jobs/{order.job_id}/{again}")
        return order.state in TERMINAL and not again

    def collect(self) -> None:
        """Read the results of all finished jobs."""
        for order in self.orders:
            if order.state == "done":
                order.result = self.ask("GET", f"/api/jobs/{order.job_id}/result").json()["result"]
                if order.job.kind == "command":  # Durations differ in each run, but the values do not.
                    rows = self.ask("GET", f"/api/jobs/{order.job_id}/units?limit=1000").json()["units"]
                    order.result = {"units": order.result["units"], "values": [row["value"] for row in rows]}


def lost_with_the_log(deaths: Sequence[tuple[float, float]]) -> Callable[[Order], bool]:
    """Return a function that tells whether an order can be lost, because Redis died shortly after it was stored."""
    return lambda order: any(at - lost - UNSAFE_SECONDS <= order.acknowledged <= at + 1 for at, lost in deaths)

"""Who uses a cluster that is being tormented: submits, steers, and repeats what was refused or got lost."""

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

#: A call is repeated for this long before the customer gives up.
PATIENCE_SECONDS = 60.0
#: What was acknowledged this many seconds before Redis' log ends may be lost too: a write waits for an fsync.
UNSAFE_SECONDS = 2.5


class GaveUp(Exception):
    """No coordinator took a call in time."""


class Order:
    """One job as its customer knows it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.job_id = ""
        self.acknowledged = 0.0
        self.ids: list[str] = []
        self.state = ""
        self.error = ""
        self.result: Any = None


class Customer:
    """Talks to any coordinator that answers; `urls` are theirs."""

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
        """The first answer that is not a 5xx. GaveUp when none comes in time."""
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
        """Submits and steers every job at its moment; returns after the last."""
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
        """Sees every job to state done: submits what a log lost again, resumes, retries. What did not get there."""
        deadline = time.monotonic() + seconds
        problems: list[str] = []
        left = list(self.orders)
        while left and time.monotonic() < deadline:
            left = [order for order in left if not self._push(order, may_be_lost, problems)]
            time.sleep(0.2 if left else 0.0)
        stuck = [f"{order.job.key} ({order.job_id}) is {order.state} after {seconds:g} s" for order in left]
        return problems + stuck

    def _push(self, order: Order, may_be_lost: Callable[[Order], bool], problems: list[str]) -> bool:
        """One look at a job; True when it has ended for good."""
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
        """Reads the results of all that is done."""
        for order in self.orders:
            if order.state == "done":
                order.result = self.ask("GET", f"/api/jobs/{order.job_id}/result").json()["result"]
                if order.job.kind == "command":  # how long it took is another each time; what it gave is not
                    rows = self.ask("GET", f"/api/jobs/{order.job_id}/units?limit=1000").json()["units"]
                    order.result = {"units": order.result["units"], "values": [row["value"] for row in rows]}


def lost_with_the_log(deaths: Sequence[tuple[float, float]]) -> Callable[[Order], bool]:
    """Says whether an order was acknowledged so shortly before Redis died that it may be gone."""
    return lambda order: any(at - lost - UNSAFE_SECONDS <= order.acknowledged <= at + 1 for at, lost in deaths)

"""A steady mixed load: batches, jobs of every kind, pauses and cancels, questions, pages' reads, listeners."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from tests.chaos import work
from threads_protocol.states import TERMINAL

#: Jobs of kinds that every cluster has. Those in SPLIT keep a lane busy for a quarter of a second, so that tests that
#: run at the same time get most of the CPU time.
SMALL = [each for each in work.SMALL if each[0] != "faulty"]
SPLIT: list[tuple[str, Mapping[str, Any]]] = [
    ("collatz", {"start_number": 1, "number_count": 100_000_000}),
    ("collatz", {"start_number": 10**12 + 7, "number_count": 40_000_000}),
    ("collatz", {"start_number": 10**9, "number_count": 30_000_000, "columns": 16}),
    ("collatz", {"mode": "verify", "start_number": 2**40 + 5, "number_count": 5_000_000_000}),
    ("collatz", {"mode": "records", "start_number": 10**9, "number_count": 200_000_000}),
    ("thread", {"replicas": 300, "seed": 11}),
    ("thread", {"replicas": 60, "seed": 5, "cores": [1, 4, 8]}),
]
LONG = {"start_number": 1, "number_count": 50_000_000_000}
LISTENERS = 3
READS = ("/api/snapshot", "/api/status", "/api/jobs?limit=50", "/api/history?names=units.*,host.*&seconds=600")
#: Failures that are kept as text.
_KEPT = 20


class Load:
    """Threads that use a cluster until `stop`; what they did is counted, what went wrong is kept."""

    def __init__(self, url: str) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._http = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self._over = threading.Event()
        steps: list[tuple[Callable[[int], None], float]] = [
            (self._batch, 1.0),
            (self._job, 1.0),
            (self._steer, 5.0),
            (self._ask, 5.0),
            (self._read, 2.0),
            *((self._listen, 0.2),) * LISTENERS,
        ]
        self._threads = [threading.Thread(target=self._repeat, args=step, daemon=True) for step in steps]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(90)
        self._http.close()

    def warm(self) -> bool:
        """Return True once it has done everything: each divided job, and something of every other sort."""
        sorts = {"batch", "job", "steer", "ask", "read", "listen"}
        return sorts <= self.counts.keys() and self.counts["job"] >= len(SPLIT)

    def _repeat(self, step: Callable[[int], None], pause: float) -> None:
        for number in itertools.count():
            if self._over.is_set():
                return
            try:
                step(number)
                self.counts[step.__name__.strip("_")] += 1
            except Exception as error:  # whatever the cluster did that it must not
                self.failures[_KEPT:] = [f"{step.__name__.strip('_')}: {type(error).__name__}: {error}"]
            self._over.wait(pause)

    def _get(self, path: str) -> Any:
        return self._http.get(path).raise_for_status().json()

    def _submit(self, kind: str, parameters: Any) -> str:
        answer = self._http.post("/api/submit", json={"type": kind, "parameters": parameters})
        return str(answer.raise_for_status().json()["job_id"])

    def _ended(self, job: str) -> str:
        """Wait until a job has ended; return its state."""
        while (state := self._get(f"/api/jobs/{job}?wait_seconds=20")["state"]) not in TERMINAL:
            if self._over.is_set():
                return "left alone"
        return str(state)

    def _result(self, job: str) -> Any:
        if (state := self._ended(job)) == "left alone":
            return None
        if state != "done":
            raise ValueError(f"{job} is {state}")
        return self._get(f"/api/jobs/{job}/result")["result"]

    def _delete(self, job: str) -> None:
        if not self._over.is_set():
            self._http.delete(f"/api/jobs/{job}").raise_for_status()

    def _batch(self, number: int) -> None:
        kinds = [SMALL[(number + place) % len(SMALL)] for place in range(8)]
        jobs = [{"type": kind, "parameters": dict(parameters)} for kind, parameters in kinds]
        answer = self._http.post("/api/submit-batch", json={"jobs": jobs}).raise_for_status().json()
        for submitted in answer["answers"]:
            self._result(submitted["job_id"])
            self._delete(submitted["job_id"])

    def _job(self, number: int) -> None:
        kind, parameters = SPLIT[number % len(SPLIT)]
        job = self._submit(kind, dict(parameters))
        result = self._result(job)
        self._delete(job)
        if result is not None and result != work.undisturbed(kind, parameters):
            raise ValueError(f"a wrong result of {kind} {parameters}: {str(result)[:300]}")

    def _steer(self, number: int) -> None:
        job = self._submit("collatz", LONG)
        for verb in ("pause", "resume", "cancel"):
            time.sleep(0.3)
            self._http.post(f"/api/jobs/{job}/{verb}").raise_for_status()
        self._ended(job)
        self._delete(job)

    def _ask(self, number: int) -> None:
        # One of four: answers are kept for ten minutes, and the same question is answered by the same job.
        job = self._submit("thread", {"thread_count": 50, "replicas": 2, "seed": number % 4})
        if self._result(job) is not None:
            self._http.get(f"/api/jobs/{job}/trace.json", params={"replica": 0}).raise_for_status()
        self._delete(job)

    def _read(self, number: int) -> None:
        self._get(READS[number % len(READS)])

    def _listen(self, number: int) -> None:
        end = time.monotonic() + 1 + number % 20
        with self._http.stream("GET", "/api/events") as answer:
            answer.raise_for_status()
            for _ in answer.iter_raw():
                if time.monotonic() > end or self._over.is_set():
                    return


@contextmanager
def on(url: str) -> Iterator[Load]:
    """Load a cluster while the context lasts."""
    load = Load(url)
    load.start()
    try:
        yield load
    finally:
        load.stop()

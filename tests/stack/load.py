"""Sends requests at a steady rate from several threads, and counts what a user would notice of a restart."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType

import httpx

#: Seconds after which a waiting client counts as failed.
PATIENCE_SECONDS = 15.0


class Load:
    """Context manager that sends requests, and then has `failures`, `requests` and `jobs` (job IDs)."""

    def __init__(
        self,
        url: str,
        threads: int = 6,
        pause: float = 0.05,
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        pages: bool = True,
    ) -> None:
        self._url = url
        self._headers = headers
        self._pause = pause
        self._asks = [_page, _status, _submit] if pages else [_status, _submit]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]
        self._lock = threading.Lock()
        self.requests = 0
        self.failures: list[str] = []
        self.jobs: list[str] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_SECONDS, headers=self._headers) as http:
            turn = number
            while not self._ended.is_set():
                self._count(self._asks[turn % len(self._asks)], http)
                turn += 1
                time.sleep(self._pause)

    def _count(self, ask: Callable[[httpx.Client], httpx.Response], http: httpx.Client) -> None:
        started = time.monotonic()
        try:
            answer = ask(http)
            failure = "" if answer.status_code in (200, 202) else f"{answer.status_code} {answer.text[:300]}"
            if not failure and ask is _submit:
                self.jobs.append(answer.json()["job_id"])
        except httpx.HTTPError as error:
            failure = repr(error)
        with self._lock:
            self.requests += 1
            if failure:
                self.failures.append(f"{ask.__name__} after {time.monotonic() - started:.1f} s: {failure}")


def _page(http: httpx.Client) -> httpx.Response:
    return http.get("/")


def _status(http: httpx.Client) -> httpx.Response:
    return http.get("/api/status")


def _submit(http: httpx.Client) -> httpx.Response:
    job = {"type": "collatz", "parameters": {"start_number": 27, "number_count": 1}}
    return http.post("/api/submit", json=job, headers={"Idempotency-Key": uuid.uuid4().hex})

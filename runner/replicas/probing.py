"""Health checks of a replica by its runner, which reports the replica's state to the coordinators."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx

log = logging.getLogger(__name__)

#: Interval in seconds between health checks of a replica that is starting.
#: `READY_SECONDS` is the interval in seconds after the start.
#: `ANSWER_SECONDS` is the timeout of a health check in seconds.
STARTING_SECONDS, READY_SECONDS, ANSWER_SECONDS = 0.2, 2.0, 2.0
#: Number of consecutive failed health checks that make a replica unhealthy.
#: A replica that is unhealthy for `UNHEALTHY_SECONDS` is stopped.
FAILURES, UNHEALTHY_SECONDS = 3, 60.0
#: Minimum gap in seconds between two checks that does not count as downtime. The runner was probably suspended.
BLIND_SECONDS = 10.0
#: Maximum interval in seconds between two reports of the same state.
REPORT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Network address of a replica, with the key that requests to it must send."""

    #: IPv4 or IPv6 address.
    address: str
    port: int
    #: Bearer token that each request must contain.
    key: str = field(repr=False)

    @property
    def url(self) -> str:
        """Return the URL of the replica without a path."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers with the replica's bearer token."""
        return {"Authorization": f"Bearer {self.key}"}


def endpoint(address: str) -> Endpoint:
    """Return an endpoint with a free port and a new key. Raises OSError if this host does not have the address."""
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return Endpoint(address=address, port=int(probe.getsockname()[1]), key=secrets.token_urlsafe(24))


#: Function that reports a replica's state (starting, ready, unhealthy or stopping) and the reason for it.
Report = Callable[[str, str], None]


class Probe(threading.Thread):
    """Thread that checks the health of a replica until stopped. `fault` is the reason why the replica must stop, or
    empty.
    """

    def __init__(self, at: Endpoint, path: str, start_seconds: float, report: Report) -> None:
        super().__init__(name=f"probe-{at.port}", daemon=True)
        self._at, self._path, self._start_seconds, self._report = at, path, start_seconds, report
        # An idle connection would block one of the few threads of a llama.cpp server.
        alone = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(trust_env=False, timeout=ANSWER_SECONDS, limits=alone)
        self._ended = threading.Event()
        self.replica_state = "starting"
        self._why = ""
        self._began = self._well_at = self._looked_at = time.monotonic()
        self._reported_at = -1e9
        self._failures = 0
        self.fault = ""

    def run(self) -> None:
        """Check the replica and report its state until stopped. Then report the state `stopping`.

        Errors do not end the thread.
        """
        with self._http:
            while not self._ended.is_set():
                self._tell(*self.judge(self._check()))
                self._ended.wait(STARTING_SECONDS if self.replica_state == "starting" else READY_SECONDS)
        self._tell("stopping", "")

    def stop(self) -> None:
        """Stop the health checks without waiting for the thread."""
        self._ended.set()

    def _check(self) -> str:
        """Run one health check, and return its error or an empty string."""
        try:
            with self._http.stream("GET", f"{self._at.url}{self._path}", headers=self._at.headers) as answer:
                status = answer.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{self._path} does not answer: {str(error) or type(error).__name__}"
        return "" if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES else f"{self._path} returned HTTP {status}"

    def judge(self, wrong: str) -> tuple[str, str]:
        """Return the replica's state after a health check, and the reason for this state."""
        now = time.monotonic()
        self._pass_over(now)
        if not wrong:
            self._well_at, self._failures = now, 0
            return "ready", ""
        self._failures += 1
        if self.replica_state == "starting":
            if now - self._began > self._start_seconds:
                self.fault = f"the replica was not ready within start_timeout_seconds, {self._start_seconds:g}: {wrong}"
            return "starting", wrong
        if now - self._well_at > UNHEALTHY_SECONDS:
            self.fault = f"the replica was unhealthy for {UNHEALTHY_SECONDS:g} s: {wrong}"
        return ("unhealthy", wrong) if self._failures >= FAILURES else (self.replica_state, self._why)

    def _pass_over(self, now: float) -> None:
        """Exclude a long gap between two checks from all measured durations."""
        unseen = now - self._looked_at
        self._looked_at = now
        if unseen > BLIND_SECONDS:
            self._began += unseen
            self._well_at += unseen

    def _tell(self, state: str, why: str) -> None:
        """Report a new state immediately, and an unchanged state every REPORT_SECONDS."""
        now = time.monotonic()
        if state == self.replica_state and now - self._reported_at < REPORT_SECONDS:
            return
        self.replica_state, self._why, self._reported_at = state, why, now
        try:
            self._report(state, why)
        except Exception as error:
            log.info("cannot report the state of a replica: %s", error)
            self._reported_at = -1e9

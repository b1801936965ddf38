"""Health of a replica that runs here: asked for by its runner, and told to the coordinators."""

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

#: Seconds between two questions while it starts, and afterwards; and for which one waits for its answer.
STARTING_SECONDS, READY_SECONDS, ANSWER_SECONDS = 0.2, 2.0, 2.0
#: Questions in a row that fail until it is unhealthy, and seconds after which an unhealthy one is ended.
FAILURES, UNHEALTHY_SECONDS = 3, 60.0
#: Seconds between two answers after which nobody knows how it was meanwhile, as after a stop of its runner.
BLIND_SECONDS = 10.0
#: Seconds between two reports of one state.
REPORT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Place where a replica answers."""

    #: Literal, of IP 4 or 6.
    address: str
    port: int
    #: Bearer token of its requests.
    key: str = field(repr=False)

    @property
    def url(self) -> str:
        """Address before the path."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers that show the key."""
        return {"Authorization": f"Bearer {self.key}"}


def endpoint(address: str) -> Endpoint:
    """Return a place with a port that is free now, and a new key. OSError where the address is none of this host."""
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return Endpoint(address=address, port=int(probe.getsockname()[1]), key=secrets.token_urlsafe(24))


#: Reports state (starting, ready, unhealthy, stopping) and why.
Report = Callable[[str, str], None]


class Probe(threading.Thread):
    """Asks a replica for its health until stopped. `fault` says why it must be ended; empty while nothing does."""

    def __init__(self, at: Endpoint, path: str, start_seconds: float, report: Report) -> None:
        super().__init__(name=f"probe-{at.port}", daemon=True)
        self._at, self._path, self._start_seconds, self._report = at, path, start_seconds, report
        # An idle connection would block one of the few threads of llama.cpp's server.
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
        """Ask and report, whatever fails, until stopped; then report that it stops."""
        with self._http:
            while not self._ended.is_set():
                self._tell(*self.judge(self._check()))
                self._ended.wait(STARTING_SECONDS if self.replica_state == "starting" else READY_SECONDS)
        self._tell("stopping", "")

    def stop(self) -> None:
        """Ask no more; nobody waits for that."""
        self._ended.set()

    def _check(self) -> str:
        """Return what is wrong with it; empty: it is well."""
        try:
            with self._http.stream("GET", f"{self._at.url}{self._path}", headers=self._at.headers) as answer:
                status = answer.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{self._path} does not answer: {str(error) or type(error).__name__}"
        return "" if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES else f"{self._path} answers {status}"

    def judge(self, wrong: str) -> tuple[str, str]:
        """Return its state by one answer, and why."""
        now = time.monotonic()
        self._pass_over(now)
        if not wrong:
            self._well_at, self._failures = now, 0
            return "ready", ""
        self._failures += 1
        if self.replica_state == "starting":
            if now - self._began > self._start_seconds:
                self.fault = f"it was not ready within start_timeout_seconds, {self._start_seconds:g}: {wrong}"
            return "starting", wrong
        if now - self._well_at > UNHEALTHY_SECONDS:
            self.fault = f"it was unhealthy for {UNHEALTHY_SECONDS:g} s: {wrong}"
        return ("unhealthy", wrong) if self._failures >= FAILURES else (self.replica_state, self._why)

    def _pass_over(self, now: float) -> None:
        """Count no time for which nobody looked."""
        unseen = now - self._looked_at
        self._looked_at = now
        if unseen > BLIND_SECONDS:
            self._began += unseen
            self._well_at += unseen

    def _tell(self, state: str, why: str) -> None:
        """Report a state that is new, and each every REPORT_SECONDS."""
        now = time.monotonic()
        if state == self.replica_state and now - self._reported_at < REPORT_SECONDS:
            return
        self.replica_state, self._why, self._reported_at = state, why, now
        try:
            self._report(state, why)
        except Exception as error:
            log.info("what a replica does is not told: %s", error)
            self._reported_at = -1e9

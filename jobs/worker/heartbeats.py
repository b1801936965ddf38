"""Heartbeats of a worker. Once per second, a heartbeat extends the worker's leases and its time slice (slot)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.store.server.connection import RedisError, Unreachable, describe_for_log, pause
from jobs.store.work.lease_store import Heard, LeaseStore, Pulse, Row
from jobs.store.work.leases import HEARTBEAT_SECONDS
from jobs.worker.api.api_calls import AccessDenied
from jobs.worker.serving import Server

log = logging.getLogger(__name__)

#: Delay in seconds after a heartbeat request, so that requests of many cancelled jobs share one heartbeat.
COALESCE_SECONDS = 0.02
#: Interval in seconds between a requested heartbeat and the next heartbeat.
REQUESTED_INTERVAL_SECONDS = 0.25
#: Maximum time in seconds that a stopping worker spends to report its departure.
DEPARTURE_SECONDS = 5.0
#: Stop level of a task for each reply to a heartbeat: 0 continues, 1 stops and commits, 2 drops the lease.
_STOPS = {1: 0, 2: 1, 0: 2}


class HeartbeatThread(threading.Thread):
    """Thread that sends a heartbeat once per second on its own connection.

    A heartbeat extends leases and the slot. `row` returns the worker's record for each heartbeat. `name_taken` is
    called when a newer process uses the worker's name. `heard` is called after each heartbeat that Redis accepted.
    `asked` receives each reply, which contains requests of users for running programs.
    """

    def __init__(
        self,
        store: LeaseStore,
        server: Server,
        born: str,
        row: Callable[[], Row],
        name_taken: Callable[[], None],
        heard: Callable[[], None] = lambda: None,
        asked: Callable[[Heard], None] = lambda heard: None,
    ) -> None:
        super().__init__(name="heartbeats", daemon=True)
        self._store = store
        self._server = server
        self._born = born
        self._row = row
        self._name_taken = name_taken
        self._heard, self._asked = heard, asked
        self._ended = threading.Event()
        self._hurried = threading.Event()

    def request_heartbeat(self) -> None:
        """Send the next heartbeat immediately, because the reply can stop leases. Can be called from any thread."""
        self._hurried.set()

    def run(self) -> None:
        wait = 0.0
        while not self._wait(wait):
            # A lease that was granted during its job's cancellation needs another heartbeat soon.
            wait = REQUESTED_INTERVAL_SECONDS if self._hurried.is_set() else HEARTBEAT_SECONDS
            self._hurried.clear()
            try:
                self.send_heartbeat()
            except Unreachable as error:
                log.warning("cannot send a heartbeat: %s", describe_for_log(error))
            except Exception:  # Keep the thread alive: a worker without heartbeats loses all its leases.
                log.exception("a heartbeat failed")

    def _wait(self, seconds: float) -> bool:
        """Wait until the next heartbeat is due. Return True if the thread must exit."""
        if self._hurried.wait(seconds) and not self._ended.is_set():
            self._ended.wait(COALESCE_SECONDS)
        return self._ended.is_set()

    def send_heartbeat(self) -> None:
        """Send one heartbeat, which extends all leases and the slot, and process the reply."""
        tasks = dict(self._server.tasks)
        leases = tuple((task.facts.job_id, token, task.upto) for token, task in tasks.items())
        slot = self._server.slot is not None
        pulse = Pulse(worker=self._server.worker, born=self._born, row=self._row, leases=leases, slot=slot)
        asked = time.monotonic()
        heard = self._store.pulse(pulse)
        for task, answer in zip(tasks.values(), heard.leases, strict=True):
            if answer:
                task.kept_at = asked
            task.ask_to_stop(_STOPS[answer])
        self._asked(heard)
        self._server.draining = heard.word == "drain"
        self._heard()
        if heard.word == "taken" and not self._server.stopping:
            self._name_taken()

    def end(self) -> None:
        """Stop the heartbeats and report that the worker left the cluster."""
        self._ended.set()
        self._hurried.set()
        self.join(timeout=5)
        report_departure(self._store, self._server.worker, self._born, {**self._row(), "state": "stopped"})


def report_departure(store: LeaseStore, worker: str, born: str, row: Row) -> None:
    """Report that a worker leaves the cluster. Retry for DEPARTURE_SECONDS while the store is unreachable."""
    until = time.monotonic() + DEPARTURE_SECONDS
    while (error := _try_report_departure(store, worker, born, row)) is not None:
        may_repeat = isinstance(error, Unreachable) and not isinstance(error, AccessDenied)
        if not may_repeat or time.monotonic() > until:
            log.warning("cannot report that this worker leaves the cluster, so it will count as lost: %s", error)
            return
        time.sleep(pause(error, REQUESTED_INTERVAL_SECONDS))


def _try_report_departure(store: LeaseStore, worker: str, born: str, row: Row) -> RedisError | None:
    try:
        store.fleet.heartbeat(worker, born, row, leaving=True)
    except RedisError as error:
        return error
    return None

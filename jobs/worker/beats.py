"""Beats: each second a worker says that it lives, and keeps its leases and its slot."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.store.server.connection import RedisError, Unreachable, away, pause
from jobs.store.work.lease_store import Heard, LeaseStore, Pulse, Row
from jobs.store.work.leases import BEAT_SECONDS
from jobs.worker.api.api_calls import NotLetIn
from jobs.worker.serving import Server

log = logging.getLogger(__name__)

#: Hurries within so many seconds are one: thousands of jobs may be cancelled at once.
TOGETHER_SECONDS = 0.02
#: Seconds after a beat that was hurried until the next.
AGAIN_SECONDS = 0.25
#: Seconds for which a worker that stops tries to report that it leaves.
GOODBYE_SECONDS = 5.0
#: What BEAT's answer means to a task's `stop`: go on; stop and commit; stop and drop.
_STOPS = {1: 0, 2: 1, 0: 2}


class Beats(threading.Thread):
    """Keeps leases, the slot and the worker alive, each second, on a connection of its own.

    `row` gives what the worker says of itself; `name_taken` is called when a later process has this worker's name,
    `heard` whenever Redis has taken the heartbeat, `asked` with each answer, for what people want of running programs.
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
        super().__init__(name="beats", daemon=True)
        self._store = store
        self._server = server
        self._born = born
        self._row = row
        self._name_taken = name_taken
        self._heard, self._asked = heard, asked
        self._ended = threading.Event()
        self._hurried = threading.Event()

    def hurry(self) -> None:
        """Have the next beat come at once: it may say that leases are to end. From any thread."""
        self._hurried.set()

    def run(self) -> None:
        wait = 0.0
        while not self._wait(wait):
            # A lease that was granted as its job was cancelled is not among those of the beat that was hurried.
            wait = AGAIN_SECONDS if self._hurried.is_set() else BEAT_SECONDS
            self._hurried.clear()
            try:
                self.beat()
            except Unreachable as error:
                log.warning("no beat: %s", away(error))
            except Exception:  # a worker that does not beat loses all its work
                log.exception("a beat failed")

    def _wait(self, seconds: float) -> bool:
        """Return True when there are no more beats, else when the next is due; one answers hurries close together."""
        if self._hurried.wait(seconds) and not self._ended.is_set():
            self._ended.wait(TOGETHER_SECONDS)
        return self._ended.is_set()

    def beat(self) -> None:
        """Extend every lease, the slot and the worker's life; pass on what the answers ask for."""
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
        """Stop beating and say that the worker left."""
        self._ended.set()
        self._hurried.set()
        self.join(timeout=5)
        say_goodbye(self._store, self._server.worker, self._born, {**self._row(), "state": "stopped"})


def say_goodbye(store: LeaseStore, worker: str, born: str, row: Row) -> None:
    """Report that the worker leaves. While the store does not answer, try again for GOODBYE_SECONDS."""
    until = time.monotonic() + GOODBYE_SECONDS
    while (error := _error_of_goodbye(store, worker, born, row)) is not None:
        may_repeat = isinstance(error, Unreachable) and not isinstance(error, NotLetIn)
        if not may_repeat or time.monotonic() > until:
            log.warning("cannot report that this worker leaves, so it will count as lost: %s", error)
            return
        time.sleep(pause(error, AGAIN_SECONDS))


def _error_of_goodbye(store: LeaseStore, worker: str, born: str, row: Row) -> RedisError | None:
    try:
        store.fleet.heartbeat(worker, born, row, leaving=True)
    except RedisError as error:
        return error
    return None

"""The life of a worker process, the same for every device: Redis, lanes, beats, bells, goodbye."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs import exposure, settings
from jobs.kinds import registry
from jobs.models import Device
from jobs.store import bells, leases
from jobs.worker import exporter
from jobs.worker.host import Host
from jobs.worker.meter import Meter
from jobs.worker.serving import Beats, Lane, Server

log = logging.getLogger(__name__)

#: A beat on a connection that fell silent is repeated on another before the leases expire.
BEAT_TIMEOUT_SECONDS = 1.5
#: What a worker says of itself: values of a flat hash.
Facts = dict[str, str | int | float]


class CannotStart(Exception):
    """The lanes could not be made; the message says why and what to do."""


class Worker:
    """One worker under its name. `more` gives what its device has to say each second."""

    def __init__(self, chosen: settings.Settings, device: Device, lanes: int, more: Callable[[], Facts] = dict) -> None:
        self.chosen, self.device, self.lanes, self.more = chosen, device, lanes, more
        self.name = chosen.worker_name()
        self.born = ""
        self.host = Host(chosen.host_name())
        self.server: Server | None = None
        #: Why it ends, when a device failed.
        self.retired = ""

    def retire(self, why: str) -> None:
        """Ends the worker because its device failed. From any thread."""
        self.retired = self.retired or why
        if self.server:
            self.server.stop()
        os.kill(os.getpid(), signal.SIGTERM)

    def facts(self, state: str = "") -> Facts:
        """What it says of itself each second."""
        server = self.server
        busy = server.busy() if server else 0
        if server and not state:
            state = "busy" if busy else "idle"
            if server.draining:
                state = "draining" if busy else "drained"
        job = server.slot.facts.job_id if server and server.slot else ""
        rates: Mapping[str, float] = dict(server.rates) if server else {}
        return {
            "device": self.device, "state": state, "lanes": self.lanes, "busy_lanes": busy, "job": job,
            "kinds": json.dumps(registry.versions()),
            "pid": os.getpid(), "rates": json.dumps({kind: round(rate, 3) for kind, rate in rates.items()}),
            **({"retired": self.retired} if self.retired else {}), **self.host.figures(), **self.more(),
        }  # fmt: skip

    def run(self, client: leases.Client, start: Callable[[], Sequence[Lane]], close: Callable[[], None],
            meter: Meter | None = None) -> int:  # fmt: skip
        """Serves until it is told to stop; the exit code. `start` makes the lanes, warm; `close` ends them."""
        book = leases.Leases(client)
        self.born = book.birth()
        try:
            with self._starting(book):
                lanes = start()
        except CannotStart as error:
            log.error("%s", error)
            self.retired = str(error)
            book.heartbeat(self.name, self.born, self.facts("stopped"), leaving=True)
            return 1
        self.server = Server(book, self.name, self.device, lanes, meter)
        try:
            self._serve(self.server)
        finally:  # else children, which ignore signals, would keep a broken worker from ending
            close()
        log.info("stopped")
        return 1 if self.retired else 0

    @contextmanager
    def _starting(self, book: leases.Leases) -> Iterator[None]:
        """Says each second that the worker is about to be ready."""
        ready = threading.Event()

        def say() -> None:
            with contextlib.suppress(leases.RedisError):
                book.heartbeat(self.name, self.born, self.facts("starting"))

        def go_on() -> None:
            while not ready.wait(leases.BEAT_SECONDS):
                say()

        book.heartbeat(self.name, self.born, self.facts("starting"))
        saying = threading.Thread(target=go_on, name="starting", daemon=True)
        saying.start()
        try:
            yield
        finally:
            ready.set()
            saying.join()

    def _serve(self, server: Server) -> None:
        chosen = self.chosen
        own = leases.Leases(bells.connect(chosen.redis_url, retries=1, timeout=BEAT_TIMEOUT_SECONDS))
        beats = Beats(own, server, self.born, self.facts, self._name_taken, sign_of_life(chosen.heartbeat_file))
        beats.start()
        stop_metrics = exporter.serve(chosen)
        log.info("ready", extra={"lanes": self.lanes})
        try:
            listening = bells.connect(chosen.redis_url, retries=0, timeout=None)
            bells.listen(
                lambda: bells.BellWorker(server.listened, listening, server.serve, server.stop, server.reconnect),
                lambda: server.stopping,
            )
        finally:
            server.stop()
            server.settle_down()
            beats.end()
            stop_metrics()

    def _name_taken(self) -> None:
        log.error("another worker runs under the name %s; give each its own WORKER_ID", self.name)
        os.kill(os.getpid(), signal.SIGTERM)


def sign_of_life(file: str) -> Callable[[], None]:
    """What a heartbeat leaves for a health check to look at."""
    return Path(file).touch if file else lambda: None


def refusal(chosen: settings.Settings) -> int:
    """Says why a worker must not start as it is set; the exit code, 0 when it may."""
    try:
        exposure.check_metrics(chosen)
    except exposure.Exposed as error:
        log.error("%s", error)
        return exposure.REFUSED
    return 0


def wait_for_redis(url: str) -> leases.Client:
    client = bells.connect(url)
    while True:
        try:
            bells.place_bells(client)
            return client
        except leases.Unreachable as error:
            log.warning("waiting for redis at %s: %s", url.rpartition("@")[2], error)
            time.sleep(1)

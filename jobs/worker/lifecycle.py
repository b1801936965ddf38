"""Lifecycle of a worker process: startup, heartbeats, computation of jobs, and shutdown."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.hosts import labels
from jobs.kinds import registry
from jobs.models import Device
from jobs.network import exposure, redis_address
from jobs.settings import Settings
from jobs.store.server.connection import RedisError
from jobs.store.work.lease_store import Heard, LeaseStore, Row
from jobs.store.work.leases import HEARTBEAT_SECONDS
from jobs.worker import heartbeats
from jobs.worker.api import api_calls, links
from jobs.worker.api.links import CannotStart, Link
from jobs.worker.free_capacity import Room
from jobs.worker.heartbeats import HeartbeatThread
from jobs.worker.lanes import Lane
from jobs.worker.serving import SHUTDOWN_SECONDS, Server
from jobs.worker.telemetry import exporter
from jobs.worker.telemetry.host import Host
from jobs.worker.telemetry.meter import Meter
from jobs.worker.telemetry.profiler import Profiler, Sampled

log = logging.getLogger(__name__)


class StoppedBeforeReady(BaseException):
    """A signal stopped the worker before it was ready.

    Derives from BaseException, so that device code does not catch it.
    """


class Worker:
    """A worker process with its name, its device and its record for heartbeats.

    `more` returns the device's fields of the record. `kinds` are the kinds that the lanes compute, by default all. The
    worker offers those in `compiled` only after a call of `offer`, because their kernels must be compiled first.
    `asked` receives the reply to each heartbeat. `sampled` describes what a profile records here in addition to the
    host.
    """

    def __init__(
        self,
        settings: Settings,
        device: Device,
        lanes: int,
        more: Callable[[], Row] = dict,
        *,
        kinds: Mapping[str, int] | None = None,
        compiled: Collection[str] = (),
        room: Room | None = None,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
        asked: Callable[[Heard], None] = lambda heard: None,
        sampled: Sampled | None = None,
    ) -> None:
        self.settings, self.device, self.lanes, self.more = settings, device, lanes, more
        self._versions = registry.versions() if kinds is None else kinds
        self._changing_kinds = threading.Lock()
        #: Model version of each kind that the worker computes now.
        self.kinds: Mapping[str, int] = {k: version for k, version in self._versions.items() if k not in compiled}
        #: Kinds that the worker will compute once their kernels are compiled and loaded.
        self.compiling = tuple(kind for kind in self._versions if kind in compiled)
        self._reports_kernels = bool(self.compiling)
        self._waiting_kinds: Collection[str] = ()
        self.link: Link | None = None
        self.room, self.shutdown_seconds, self.asked = room, shutdown_seconds, asked
        self.sampled = sampled or Sampled()
        self.name = ""
        self.born = ""
        self.host = Host(settings.host_name(), settings.data_folders())
        self.server: Server | None = None
        #: State in the worker's record before it is ready: starting, or parked while programs use its GPU.
        self.phase = "starting"
        #: Reason why the worker must exit, set if a device failed.
        self.retired = ""
        self._is_dismissed = False
        #: Kinds that the worker should compute but cannot, mapped to the reason.
        self.refused: dict[str, str] = {}

    def offer(self, kind: str) -> bool:
        """Take work of a kind from now on, because its kernel is compiled and loaded.

        Return False if the worker did so before.
        """
        with self._changing_kinds:
            if kind not in self.compiling:
                return False
            self._change_kinds(kind, {**self.kinds, kind: self._versions[kind]})
        if self.link:
            self.link.repeat_request()
        return True

    def refuse(self, kind: str, why: str) -> None:
        """Take no more work of a kind, and report the reason."""
        log.error("this worker does not compute jobs of kind %s: %s", kind, why)
        with self._changing_kinds:
            self.refused = {**self.refused, kind: why}
            self._change_kinds(kind, {name: version for name, version in self.kinds.items() if name != kind})

    def _change_kinds(self, ready: str, kinds: Mapping[str, int]) -> None:
        self.kinds = kinds
        self.compiling = tuple(kind for kind in self.compiling if kind != ready)
        if self.server:
            self.server.kinds = kinds

    def read_waiting_kinds(self) -> Collection[str]:
        """Return the kinds of waiting jobs that no worker computes yet. If the store fails, return the last answer."""
        if self.link:
            with contextlib.suppress(RedisError):
                self._waiting_kinds = self.link.store.slots.unsupported()
        return self._waiting_kinds

    def waiting_first(self, kinds: Collection[str]) -> list[str]:
        """Sort kinds so that the kinds of waiting jobs come first."""
        return sorted(kinds, key=lambda kind: (kind not in self._waiting_kinds, kind))

    def repair_lanes(self) -> None:
        """Let idle lanes load new kernels, and replace dead lanes."""
        if self.server:
            self.server.pool.repair_idle()

    def retire(self, why: str) -> None:
        """Stop the worker because its device failed. Can be called from any thread."""
        self.retired = self.retired or why
        if self.server:
            self.server.stop()
        os.kill(os.getpid(), signal.SIGTERM)

    def row(self, state: str = "") -> Row:
        """Return the worker's record for a heartbeat."""
        server = self.server
        busy = server.busy() if server else 0
        if server and not state:
            state = "busy" if busy else "idle"
            if server.draining:
                state = "draining" if busy else "drained"
        job = server.slot.facts.job_id if server and server.slot else ""
        rates: Mapping[str, float] = dict(server.rates) if server else {}
        return {
            "device": self.device,
            "state": state,
            "lanes": self.lanes,
            "busy_lanes": busy,
            "job": job,
            "kinds": json.dumps(dict(self.kinds)),
            "labels": labels.join_labels(self.settings.host_labels()),
            "pid": os.getpid(),
            "rates": json.dumps({kind: round(rate, 3) for kind, rate in rates.items()}),
            **({"retired": self.retired} if self.retired else {}),
            **({"refused": self._refusals()} if self.refused else {}),
            **({"compiling": ",".join(self.compiling)} if self._reports_kernels else {}),
            **self.host.figures(),
            **self.more(),
            **self.host.clock.heartbeat_fields(),  # Read the clock last, just before sending.
        }

    def _refusals(self) -> str:
        return "; ".join(f"{kind}: {why}" for kind, why in sorted(self.refused.items()))

    def run(
        self, link: Link, start: Callable[[], Sequence[Lane]], close: Callable[[], None], meter: Meter | None = None
    ) -> int:
        """Run the worker until a signal stops it, and return its exit code.

        `start` creates the lanes and prepares them for work; `close` shuts them down.
        """
        self.name, self.born, self.link = link.worker, links.wait_for_identity(link.store), link
        with links.on_signals(self._stop):
            try:
                self.server = self._start(link.store, start, meter)
            except (CannotStart, StoppedBeforeReady) as error:
                close()
                return self._end_unready(link.store, error)
            return self._run(self.server, link, close)

    def _stop(self) -> None:
        """Stop the worker after a signal, even during startup, which can wait for a GPU."""
        if self.server:
            self.server.stop()
        elif not self._is_dismissed:
            self._is_dismissed = True
            raise StoppedBeforeReady

    def _start(self, store: LeaseStore, start: Callable[[], Sequence[Lane]], meter: Meter | None) -> Server:
        with self._starting(store):
            lanes = start()
        server = Server(store, self.name, self.device, lanes, meter, self.kinds, self.room, self.shutdown_seconds)
        with self._changing_kinds:  # A kernel may have been compiled meanwhile.
            server.kinds = self.kinds
            self.server = server
        return server

    def _end_unready(self, store: LeaseStore, error: CannotStart | StoppedBeforeReady) -> int:
        """Report that the worker leaves, so that the cluster does not report it as lost. Return the exit code."""
        if isinstance(error, CannotStart):
            log.error("%s", error)
            self.retired = str(error)
        heartbeats.report_departure(store, self.name, self.born, self.row("stopped"))
        log.info("stopped before it was ready")
        return 1 if self.retired else 0

    def _run(self, server: Server, link: Link, close: Callable[[], None]) -> int:
        try:
            self._serve(server, link)
        finally:  # Close the lanes, because child processes ignore signals and would keep a broken worker running.
            close()
        log.info("stopped")
        return 1 if self.retired else 0

    @contextmanager
    def _starting(self, store: LeaseStore) -> Iterator[None]:
        """Send a heartbeat once per second while the worker is starting."""
        ready = threading.Event()

        def say() -> None:
            with contextlib.suppress(RedisError):
                store.fleet.heartbeat(self.name, self.born, self.row(self.phase))

        def go_on() -> None:
            while not ready.wait(HEARTBEAT_SECONDS):
                say()

        say()
        saying = threading.Thread(target=go_on, name="starting", daemon=True)
        saying.start()
        try:
            yield
        finally:
            ready.set()
            saying.join()

    def _serve(self, server: Server, link: Link) -> None:
        settings, touch = self.settings, heartbeat_file(self.settings.heartbeat_file)

        def heard() -> None:
            self.host.clock.answered()
            touch()

        profiler = Profiler(link.store, self.name, self.host.name, settings.profile_folder(), self.sampled)

        def asked(answer: Heard) -> None:
            self.asked(answer)
            profiler.hear(answer)

        beating = HeartbeatThread(link.for_heartbeats(), server, self.born, self.row, self._name_taken, heard, asked)
        beating.start()
        link.listen_for_stops(beating.request_heartbeat, lambda: server.stopping)
        profiler.start()
        stop_metrics = exporter.serve(settings)
        log.info("ready", extra={"lanes": self.lanes})
        self.repair_lanes()
        try:
            link.listen(server)
        finally:
            server.stop()
            profiler.end()
            server.settle_down()
            beating.end()
            stop_metrics()

    def _name_taken(self) -> None:
        log.error("another worker is running under the name %s; set a different WORKER_ID for each worker", self.name)
        os.kill(os.getpid(), signal.SIGTERM)


def heartbeat_file(file: str) -> Callable[[], None]:
    """Return a function that touches the file which a health check reads."""
    return Path(file).touch if file else lambda: None


def refusal(settings: Settings) -> int:
    """Log why the worker refuses to start with these settings. Return the exit code, or 0 if the settings are valid."""
    try:
        exposure.check_metrics(settings)
        links.check(settings)
    except (exposure.ExposureError, redis_address.UnusableAddress, api_calls.UnusableApi) as error:
        log.error("%s", error)
        return exposure.REFUSED
    return 0

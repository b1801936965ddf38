"""Records profiles on a worker's host: a child process samples the devices that are assigned to the worker.

The replies to heartbeats announce profiles. All other work happens in the profiler's own thread, so no lease waits for
it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from jobs.store.profiles import MAX_BYTES, Order, Recording, Reported
from jobs.store.server.connection import CoordinatorRejects, RedisError
from jobs.store.work.lease_store import Heard, LeaseStore
from jobs.worker.telemetry import recordings
from jobs.worker.telemetry.recordings import Parcel

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
#: Minimum delay in seconds between two starts of a sampling process for one profile.
_RESTART_SECONDS = 3.0
#: Timeout in seconds for a sampling process to exit.
_END_SECONDS = 5.0
#: Maximum share of the free disk space that a recording can use.
_SHARE = 0.5
_LEAST_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Devices that a worker's sampling process can record in addition to the host."""

    #: Name of the module that the child process runs.
    module: str = "jobs.worker.telemetry.sampler"
    #: Function that returns the GPUs, each with uuid, name and index.
    gpus: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    #: Function that starts the sampling process, with the arguments of subprocess.Popen.
    spawn: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    #: Function that receives the PID of the sampling process after its exit.
    gone: Callable[[int], None] = lambda pid: None


@dataclass(kw_only=True)
class _Running:
    """A running sampling process."""

    process: subprocess.Popen[bytes]
    recording: Recording
    granted: frozenset[str]
    _text: bytes = field(default=b"")

    def heard(self) -> Recording:
        """Return the most recent progress that the process reported."""
        assert self.process.stdout
        with contextlib.suppress(OSError, ValueError):
            while piece := os.read(self.process.stdout.fileno(), 1 << 16):
                self._text = (self._text + piece)[-(1 << 16) :]
        *lines, self._text = self._text.split(b"\n")
        if lines:
            with contextlib.suppress(ValueError, TypeError):
                self.recording = replace(self.recording, **json.loads(lines[-1]))
        return self.recording

    def end(self) -> None:
        """Ask the sampling process to write its last line and exit; kill it if it does not exit in time."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.communicate(b"stop\n", timeout=_END_SECONDS)
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Profiler(threading.Thread):
    """Thread that starts, reports, and uploads profile recordings of a worker."""

    def __init__(
        self,
        store: LeaseStore,
        worker: str,
        host: str,
        folder: Path,
        sampled: Sampled = Sampled(),
    ) -> None:
        super().__init__(name="profiler", daemon=True)
        self._store, self._worker, self._host = store, worker, host
        self._folder, self._sampled = folder, sampled
        self.current_orders: dict[str, Order] | None = None
        self.running_profiles: dict[str, _Running] = {}
        self._parcels: dict[tuple[str, str], Parcel] = {}
        self._launched: dict[str, float] = {}
        #: Profiles whose recording on this worker has reached its time limit or size limit.
        self._over: set[str] = set()
        self._searched = self._ended = False
        self._wake = threading.Event()
        self._said = ""

    def hear(self, heard: Heard) -> None:
        """Store the requests for profiles from a heartbeat's reply, and wake the thread. Thread-safe."""
        if heard.profiles is None:
            return
        first = self.current_orders is None
        self.current_orders = {order.profile_id: order for order in heard.profiles}
        if heard.profiles or first:
            self._wake.set()

    def run(self) -> None:
        while not self._ended:
            self._wake.wait(ROUND_SECONDS if self._busy() else None)
            self._wake.clear()
            if self._ended or self.current_orders is None:
                continue
            try:
                while self.round(self.current_orders) and not self._ended:
                    pass
                self._say("")
            except (RedisError, recordings.Unusable) as error:  # RedisError includes errors of a coordinator.
                self._say(f"cannot process profiles now: {error}")
            except Exception:  # Catch every error, because a failed profile must not stop the worker.
                log.exception("a profile failed")
            time.sleep(ROUND_SECONDS / 2)

    def end(self) -> None:
        """Stop the sampling processes. Their files remain for the next process of this worker."""
        self._ended = True
        self._wake.set()
        self.join(timeout=2 * _END_SECONDS)
        for running in self.running_profiles.values():
            running.end()

    def round(self, orders: Mapping[str, Order]) -> bool:
        """Process all requests for profiles once. Return True if parts were uploaded and more parts can follow."""
        self._search()
        for order in orders.values():
            if order.state == "recording" and (not order.hosts or self._host in order.hosts):
                self._record(order)
        for profile_id in [one for one in self.running_profiles if not _records(orders.get(one))]:
            self._finish(profile_id)
        for order in orders.values():
            if order.state == "collecting":
                self._take(recordings.left(self._folder, order.profile_id))
        self._over &= set(orders)
        sent = [
            self._bring(one)
            for one in {parcel.profile_id for parcel in self._parcels.values()}
            if not _records(orders.get(one))
        ]
        return any(sent)

    # -- recording --------------------------------------------------------------------------------------------------

    def _record(self, order: Order) -> None:
        profile_id, gpus = order.profile_id, {f"gpu:{gpu['uuid']}": gpu for gpu in self._sampled.gpus()}
        running = self.running_profiles.get(profile_id)
        if running and running.process.poll() is not None:
            if running.process.returncode == 0:
                self._over.add(profile_id)
            self._finish(profile_id)
            running = None
        before = time.time()
        answer = self._store.profiles.report(
            profile_id, self._worker, [f"host:{self._host}", *gpus], [running.heard()] if running else []
        )
        granted = frozenset(answer.devices)
        if running and running.granted != granted:
            self._finish(profile_id)
            running = None
        if granted and not running and profile_id not in self._over and self._may_start(profile_id):
            offset = answer.now / 1000 - (before + time.time()) / 2
            self._start(order, answer, [gpus[one] for one in granted if one in gpus], offset)

    def _may_start(self, profile_id: str) -> bool:
        last = self._launched.get(profile_id)
        return last is None or time.monotonic() - last >= _RESTART_SECONDS

    def _start(self, order: Order, answer: Reported, gpus: Sequence[Mapping[str, Any]], offset: float) -> None:
        recordings.prepare(self._folder)
        self._launched[order.profile_id] = time.monotonic()
        name = f"{self._worker}.{time.time_ns() // 1_000_000}"
        devices = tuple(sorted(answer.devices))
        recording = Recording(name=name, host=self._host, devices=devices)
        head = {
            "profile": 1,
            "id": order.profile_id,
            "host": self._host,
            "worker": self._worker,
            "hz": order.hz,
            "cores": psutil.cpu_count() or 1,
            "memory_total_bytes": psutil.virtual_memory().total,
            "devices": devices,
            "gpus": [dict(gpu) for gpu in gpus],
            "offset": round(offset, 4),
        }
        room = int(shutil.disk_usage(self._folder).free * _SHARE)
        asked = {
            "file": str(recordings.path(self._folder, order.profile_id, name)),
            "hz": order.hz,
            "head": head,
            "seconds": max(1.0, (order.until - answer.now) / 1000),
            "most": max(_LEAST_BYTES, min(MAX_BYTES, room)),
            "host": f"host:{self._host}" in answer.devices,
            "gpus": [str(gpu["uuid"]) for gpu in gpus],
        }
        process = self._sampled.spawn(
            [sys.executable, "-m", self._sampled.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # A Ctrl-C must stop only the worker, which then stops this process.
        )
        assert process.stdin and process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        with contextlib.suppress(OSError):  # If the process exited, the next round detects it.
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
        self.running_profiles[order.profile_id] = _Running(
            process=process, recording=recording, granted=frozenset(answer.devices)
        )
        log.info(
            "started sampling for a profile", extra={"profile": order.profile_id, "hz": order.hz, "devices": devices}
        )

    def _finish(self, profile_id: str) -> None:
        running = self.running_profiles.pop(profile_id)
        running.end()
        self._sampled.gone(running.process.pid)
        self._take([(profile_id, running.recording.name)])

    # -- collecting -------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Find the recordings that earlier processes of this worker left on disk, once."""
        if not self._searched:
            self._searched = True
            self._take(recordings.left(self._folder))

    def _take(self, found: Sequence[tuple[str, str]]) -> None:
        for profile_id, name in found:
            if (profile_id, name) not in self._parcels and (parcel := Parcel.take(self._folder, profile_id, name)):
                self._parcels[profile_id, name] = parcel

    def _bring(self, profile_id: str) -> bool:
        """Report the recordings of a profile, and upload the requested parts. Return True if a part was uploaded."""
        mine = [parcel for parcel in self._parcels.values() if parcel.profile_id == profile_id]
        for parcel in mine:
            parcel.pack()
        if trouble := next((parcel.trouble for parcel in mine if parcel.trouble), ""):
            self._say(f"cannot compress a recording: {trouble}")
        try:
            answer = self._store.profiles.report(profile_id, self._worker, (), [parcel.recording for parcel in mine])
        except CoordinatorRejects as error:  # The error must not stop other profiles.
            self._say(f"cannot upload recordings, so they stay on this host: {error}")
            return False
        sent = [self._settle(parcel, answer) for parcel in mine]
        return any(sent)

    def _settle(self, parcel: Parcel, answer: Reported) -> bool:
        wanted = answer.wanted.get(parcel.recording.name, "")
        if answer.state == "gone" or wanted in ("kept", "lost"):
            del self._parcels[parcel.profile_id, parcel.recording.name]
            parcel.remove()
        elif wanted.isdigit():
            data = parcel.part(int(wanted))
            sent = self._store.profiles.add_part(
                parcel.profile_id, self._worker, parcel.recording.name, int(wanted), data
            )
            return sent == "stored"
        return False

    def _busy(self) -> bool:
        return bool(self.current_orders or self.running_profiles or self._parcels)

    def _say(self, what: str) -> None:
        """Log a problem unless it is the same as the last logged problem."""
        if what and what != self._said:
            log.warning("%s", what)
        self._said = what


def _records(order: Order | None) -> bool:
    return order is not None and order.state == "recording"

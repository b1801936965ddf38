"""Measurements of the host that are part of a worker's heartbeat."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from jobs import VERSION
from jobs.worker.telemetry import sysfs_gpus
from jobs.worker.telemetry.background import Background

RAPL = Path("/sys/class/powercap")
#: File with the version of NVIDIA's kernel module. It exists only if the module is loaded.
DRIVER = Path("/proc/driver/nvidia/version")
#: Time in seconds between two reads of disk usage.
DISKS_SECONDS = 10.0
#: Time in seconds between two reads of GPUs that belong to no worker.
CARDS_SECONDS = 2.0


class Host:
    """CPU, memory, network and disk measurements of a host.

    In a container, the values are those that the kernel reports.
    """

    def __init__(self, name: str, places: Mapping[str, Path] | None = None) -> None:
        self.name = name
        self.clock = Clock()
        self.disks = Disks(places or {})
        self.cards = Background[list[dict[str, Any]]](sysfs_gpus.look, [], CARDS_SECONDS)
        self._versions = json.dumps(versions())
        self._speed = Speed()
        self.network = network_namespace()
        psutil.cpu_percent(None)
        self.packages = Packages()

    def figures(self) -> dict[str, str | int | float]:
        memory = psutil.virtual_memory()
        network = psutil.net_io_counters()
        joules = self.packages.joules()
        received, sent = (network.bytes_recv, network.bytes_sent) if network else (0, 0)
        return {
            "host": self.name,
            "network": self.network,
            "cpu_ratio": round(psutil.cpu_percent(None) / 100, 4),
            "cpus": psutil.cpu_count() or 1,
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "network_receive_bytes_total": received,
            "network_transmit_bytes_total": sent,
            **self._speed.of(received, sent),
            "load1": round(psutil.getloadavg()[0], 2),
            "disks": json.dumps(self.disks.read()),
            "versions": self._versions,
            **({"cards": json.dumps(shown)} if (shown := self.cards.read()) else {}),
            **({} if joules is None else {"cpu_energy_joules_total": round(joules, 3)}),
        }


def versions(driver: Path = DRIVER) -> dict[str, str]:
    """Return the versions of the installed software: this project, Python, numba and NVIDIA's driver."""
    found = {"threads_cluster": VERSION, "python": platform.python_version()}
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["numba"] = metadata.version("numba")
    try:
        number = re.search(r"Kernel Module\D*?(?:\bfor \S+)?\s+(\d+(?:\.\d+)+)", driver.read_text())
    except OSError:
        return found
    return found | ({"driver": number[1]} if number else {})


class Speed:
    """Network throughput between two calls, in bytes per second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, int, int] | None = None

    def of(self, received: int, sent: int) -> dict[str, float]:
        """Return the received and sent bytes per second since the last call.

        Returns an empty dictionary on the first call and after a counter was reset.
        """
        before, self._last = self._last, (self._clock(), received, sent)
        if before is None or self._last[0] <= before[0] or received < before[1] or sent < before[2]:
            return {}
        seconds = self._last[0] - before[0]
        return {
            "network_receive_bytes_per_second": round((received - before[1]) / seconds),
            "network_transmit_bytes_per_second": round((sent - before[2]) / seconds),
        }


class Clock:
    """Clock of this machine, with the round-trip time of the previous heartbeat.

    A coordinator compares the clock with the clock of Redis. It assumes that a heartbeat travels for half of the round
    trip.
    """

    def __init__(self, wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._clock = wall, clock
        self._asked: float | None = None
        self._took: float | None = None

    def heartbeat_fields(self) -> dict[str, float]:
        """Return the clock fields of a heartbeat that is sent now, or an empty dictionary before the first reply.

        The fields are the Unix time in seconds and the round-trip time.
        """
        self._asked = self._clock()
        return {} if self._took is None else {"clock": round(self._wall(), 4), "round_trip_seconds": self._took}

    def answered(self) -> None:
        """Record that the reply to the last heartbeat has just arrived."""
        if self._asked is not None:
            self._took, self._asked = round(self._clock() - self._asked, 4), None


class Disks:
    """Free space on the disks of named folders. A disk that does not answer does not delay heartbeats."""

    def __init__(self, places: Mapping[str, Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._places = dict(places)
        self._known = Background[list[dict[str, object]]](self._look, [], DISKS_SECONDS, clock)

    def read(self) -> list[dict[str, object]]:
        """Return the disk number, folder names, free bytes and total bytes of each disk, and refresh them if due."""
        return self._known.read()

    def settle(self) -> None:
        """Wait for the running refresh, if there is one."""
        self._known.settle()

    def _look(self) -> list[dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        places: dict[str, list[str]] = {}
        for name, folder in self._places.items():
            try:
                number, room = folder.stat().st_dev, shutil.disk_usage(folder)
            except OSError:
                continue  # The folder does not exist yet, or this worker does not use it.
            disk = f"{os.major(number)}:{os.minor(number)}"
            places.setdefault(disk, []).append(name)
            found[disk] = {"disk": disk, "places": places[disk], "free_bytes": room.free, "total_bytes": room.total}
        return list(found.values())


def network_namespace(file: Path = Path("/proc/self/ns/net")) -> str:
    """Return the inode of this process' network namespace, or 0 if the kernel has none.

    Each host and each container with its own network has a different one.
    """
    try:
        return str(file.stat().st_ino)
    except OSError:
        return "0"


class Packages:
    """Energy of the CPU packages from RAPL counters, which most systems let only root read."""

    def __init__(self, folder: Path = RAPL) -> None:
        self._zones = sorted(folder.glob("*-rapl:[0-9]")) if folder.is_dir() else []
        self._ranges = [_microjoules(zone / "max_energy_range_uj") for zone in self._zones]
        self._last = self._read()
        self._total = 0

    def _read(self) -> list[int] | None:
        readings = [_microjoules(zone / "energy_uj") for zone in self._zones]
        return None if not readings or None in readings else [one for one in readings if one is not None]

    def joules(self) -> float | None:
        """Return the energy in joules since this object was created, or None if the counters are not readable.

        Counters wrap around, so call this method at least every few minutes.
        """
        now = self._read()
        if now is None or self._last is None:
            return None
        for zone, (new, old) in enumerate(zip(now, self._last, strict=True)):
            self._total += new - old if new >= old else new - old + (self._ranges[zone] or 0)
        self._last = now
        return self._total / 1e6


def _microjoules(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None

"""Figures of the host that ride on a worker's heartbeat."""

from __future__ import annotations

from pathlib import Path

import psutil

RAPL = Path("/sys/class/powercap")


class Host:
    """CPU, memory and network of this host under its name (inside a container: what the kernel shows there)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.network = network_namespace()
        psutil.cpu_percent(None)
        self.packages = Packages()

    def figures(self) -> dict[str, str | int | float]:
        memory = psutil.virtual_memory()
        network = psutil.net_io_counters()
        joules = self.packages.joules()
        return {
            "host": self.name,
            "network": self.network,
            "cpu_ratio": round(psutil.cpu_percent(None) / 100, 4),
            "cpus": psutil.cpu_count() or 1,
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "network_receive_bytes_total": network.bytes_recv if network else 0,
            "network_transmit_bytes_total": network.bytes_sent if network else 0,
            **({} if joules is None else {"cpu_energy_joules_total": round(joules, 3)}),
        }


def network_namespace(file: Path = Path("/proc/self/ns/net")) -> str:
    """Number of the network that this process sees, one a host and one a container; 0 where there is but one."""
    try:
        return str(file.stat().st_ino)
    except OSError:
        return "0"


class Packages:
    """Energy of the CPU packages as the kernel counts it (RAPL). Most systems let only root read it."""

    def __init__(self, folder: Path = RAPL) -> None:
        self._zones = sorted(folder.glob("*-rapl:[0-9]")) if folder.is_dir() else []
        self._ranges = [_microjoules(zone / "max_energy_range_uj") for zone in self._zones]
        self._last = self._read()
        self._total = 0

    def _read(self) -> list[int] | None:
        readings = [_microjoules(zone / "energy_uj") for zone in self._zones]
        return None if not readings or None in readings else [one for one in readings if one is not None]

    def joules(self) -> float | None:
        """Since this was made; None where it cannot be read. Counters wrap: call it every few minutes at least."""
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

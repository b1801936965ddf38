"""Health check of a host with one command over SSH, and the load score that is computed from its output."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from threads_cluster.ssh import refusals
from threads_cluster.ssh.configuration import HealthCheck, Node
from threads_cluster.ssh.refusals import HostTrouble
from threads_cluster.terminal import visible

if TYPE_CHECKING:
    from threads_cluster.ssh.pool import Pool

#: Shell script of the health check. It is sent on stdin, so that the user's login shell does not matter.
_SCRIPT = b"""\
LC_ALL=C; export LC_ALL
read -r load rest </proc/loadavg && echo "load $load"
echo "cpus $(nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo)"
while read -r name value rest; do
  case $name in MemTotal:) echo "total $value" ;; MemAvailable:) echo "available $value" ;; esac
done </proc/meminfo
if command -v nvidia-smi >/dev/null 2>&1; then
  if command -v timeout >/dev/null 2>&1; then limit="timeout 2"; else limit=; fi
  $limit nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null |
    while read -r used rest; do echo "gpu $used"; done
fi
echo end
"""
#: Maximum size in bytes of the health check's output.
_MOST_BYTES = 64 << 10
_LINE = re.compile(rb"(load|cpus|total|available|gpu) ([0-9]{1,18}(?:\.[0-9]{1,9})?)")
#: Load per CPU above which a host is overloaded.
#: GPU utilization in percent at which a GPU is full.
_BUSY_LOAD, _FULL_GPU = 2.0, 95.0


@dataclass(frozen=True, kw_only=True)
class Health:
    """Result of the last health check of a host."""

    name: str
    #: Source of the result: `ssh` for a host of cluster.yaml, or `joined` for a host of the cluster.
    source: str
    reachable: bool
    #: Reason why the host is unreachable or unhealthy, or empty.
    reason: str = ""
    #: Advice to the user on how to fix the host, or empty.
    advice: str = ""
    load1: float | None = None
    cpus: int | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    #: Utilization of each GPU in percent.
    gpus: tuple[float, ...] = ()
    #: Load score, of which lower values are better. None if unknown.
    score: float | None = None
    #: Duration of the check in seconds.
    seconds: float = 0.0

    @property
    def healthy(self) -> bool:
        return self.reachable and not self.reason

    @property
    def gpu_percent(self) -> float | None:
        """Return the mean utilization of the GPUs in percent, or None for a host without GPUs."""
        return sum(self.gpus) / len(self.gpus) if self.gpus else None


def score(load1: float, cpus: int, gpus: tuple[float, ...], check: HealthCheck) -> float:
    """Return the load score of a host: cpu_weight * 100 * load1 / cpus + gpu_weight * mean GPU utilization in
    percent.
    """
    return check.cpu_weight * 100 * load1 / cpus + (check.gpu_weight * sum(gpus) / len(gpus) if gpus else 0.0)


def find_trouble(load1: float, cpus: int, gpus: tuple[float, ...]) -> str:
    """Return the reason why a reachable host is unhealthy, or "" for a healthy host."""
    if load1 / cpus > _BUSY_LOAD:
        return f"load {load1:.2f} on {cpus} cpus"
    if gpus and all(used >= _FULL_GPU for used in gpus):
        return f"every GPU is at {_FULL_GPU:g} % or more"
    return ""


async def check_host(pool: Pool, node: Node) -> Health:
    """Check the health of a host within `health_check.timeout`. Never raises for an unhealthy or unreachable host."""
    began, check = monotonic(), pool.config.health_check
    try:
        async with asyncio.timeout(check.timeout), pool.channel(node, check.timeout) as connection:
            answer = await _answer(connection, node)
        return _parse_output(node, answer, check, monotonic() - began)
    except (HostTrouble, TimeoutError) as error:
        found = refusals.trouble(node, error, seconds=check.timeout, user="")
        return Health(
            name=node.name,
            source="ssh",
            reachable=False,
            reason=found.why,
            advice=found.next,
            seconds=monotonic() - began,
        )


async def _answer(connection: Any, node: Node) -> bytes:
    process = await connection.create_process("/bin/sh -s", encoding=None)
    try:
        process.stdin.write(_SCRIPT)
        process.stdin.write_eof()
        said = b""
        while len(said) <= _MOST_BYTES and (piece := await process.stdout.read(_MOST_BYTES)):
            said += piece
    finally:
        process.close()
    if len(said) <= _MOST_BYTES:
        await process.wait_closed()  # sshd counts the session until it is closed
    return said


def _parse_output(node: Node, said: bytes, check: HealthCheck, seconds: float) -> Health:
    """Parse the output of a health check. Raises HostTrouble if the output is invalid."""
    lines = said.splitlines()
    if len(said) > _MOST_BYTES or b"end" not in lines:
        began = visible(said[:100].decode(errors="replace"))
        advice = "the login shell must run commands and print nothing after them"
        raise HostTrouble(node, f"unexpected output of the health check: {began!r}", advice)
    told: dict[bytes, list[float]] = {}
    for line in lines:
        if match := _LINE.fullmatch(line):
            told.setdefault(match[1], []).append(float(match[2]))
    load1, cpus = told.get(b"load", [math.nan])[0], int(told.get(b"cpus", [0])[0])
    if cpus < 1 or not math.isfinite(load1):
        raise HostTrouble(node, "the health check reported no load or CPUs", "the host must run Linux and have /proc")
    gpus = tuple(min(used, 100.0) for used in told.get(b"gpu", []))
    total, available = (int(told[name][0]) << 10 if name in told else None for name in (b"total", b"available"))
    return Health(
        name=node.name,
        source="ssh",
        reachable=True,
        reason=find_trouble(load1, cpus, gpus),
        load1=load1,
        cpus=cpus,
        memory_total_bytes=total,
        memory_used_bytes=None if None in (total, available) else total - available,  # type: ignore[operator]
        gpus=gpus,
        score=score(load1, cpus, gpus, check),
        seconds=seconds,
    )

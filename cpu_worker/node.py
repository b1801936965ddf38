"""Figures of the machine that ride on the heartbeat."""

from __future__ import annotations

import socket

import psutil


class Node:
    """CPU, memory and network of this host (inside a container: what the kernel shows there)."""

    def __init__(self) -> None:
        psutil.cpu_percent(None)

    def figures(self) -> dict[str, str | int | float]:
        memory = psutil.virtual_memory()
        network = psutil.net_io_counters()
        return {
            "host": socket.gethostname(),
            "cpu_ratio": round(psutil.cpu_percent(None) / 100, 4),
            "cpus": psutil.cpu_count() or 1,
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "network_receive_bytes_total": network.bytes_recv if network else 0,
            "network_transmit_bytes_total": network.bytes_sent if network else 0,
        }

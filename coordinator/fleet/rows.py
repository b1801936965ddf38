"""A worker as the API shows it, from its hash in Redis. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator import decoding


def worker(name: str, row: dict[str, str], live: float | None, now: float) -> dict[str, Any]:
    """Return the worker whose hash is `row` and who lives until `live` ms; `now` in seconds, both of Redis' clock."""
    seen = now - int(row["seen"]) / 1000
    alive = live is not None and live / 1000 > now
    state = row.get("state", "lost")
    numbers = (
        "cpus", "memory_used_bytes", "memory_total_bytes", "network_receive_bytes_total",
        "network_transmit_bytes_total", "pid",
    )  # fmt: skip
    return {
        "id": name,
        "device": row.get("device"),
        "state": state if alive or state == "stopped" else "lost",
        "live": alive,
        "lanes": int(row.get("lanes", 0)),
        "busy_lanes": int(row.get("busy_lanes", 0)) if alive else 0,
        "job": row.get("job") or None,
        "host": row.get("host"),
        "network": row.get("network", "0"),
        "draining": row.get("drain") == "1",
        "seen_seconds_ago": round(max(0.0, seen), 1),
        "cpu_ratio": decoding.finite(row.get("cpu_ratio", "0")),
        "rates": {kind: decoding.finite(rate) for kind, rate in decoding.parsed(row.get("rates", "{}")).items()},
        **{name: int(row[name]) for name in numbers if name in row},
        **(
            {"gpus": [{**gpu, "uuid": str(gpu["uuid"])} for gpu in decoding.parsed(row["gpus"])]}
            if "gpus" in row
            else {}
        ),
        **({"retired": row["retired"]} if "retired" in row else {}),
        **(
            {"cpu_energy_joules_total": decoding.finite(joules)}
            if (joules := row.get("cpu_energy_joules_total"))
            else {}
        ),
    }


def gpus(workers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every GPU that a worker reports, with the worker's name, which was called `node` one version ago."""
    return [
        {
            **gpu, "worker": worker["id"], "node": worker["id"], "live": worker["live"],
            "job": worker["job"] if worker["live"] else None,
        }
        for worker in workers
        for gpu in worker.get("gpus", ())
    ]  # fmt: skip

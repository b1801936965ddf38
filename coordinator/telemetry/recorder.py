"""What the leading coordinator writes down each second for people: a sample of every figure, alerts, spans of work."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from coordinator.decoding import moment
from coordinator.fleet.rows import QueueRow, WorkerRow
from coordinator.queries import Queries
from coordinator.telemetry import alerts, history
from jobs.kinds import registry
from jobs.store import keys, skipped

P = keys.PREFIX
#: Figures of a node and of a GPU by their names in the heartbeat, and how they are called here.
NODE_NAMES = {"cpu_ratio": "cpu", "memory_used_bytes": "memory", "memory_total_bytes": "memory_total"}
RATE_NAMES = {"network_receive_bytes_total": "receive", "network_transmit_bytes_total": "send"}
GPU_NAMES = {
    "utilization_ratio": "utilization", "sm_active_ratio": "sm_active", "memory_used_bytes": "memory",
    "memory_total_bytes": "memory_total", "temperature_celsius": "temperature", "power_watts": "power",
    "clock_sm_hertz": "clock",
}  # fmt: skip
#: Bytes are written down in steps of this many: what changes below compresses badly and nobody sees it.
_STEP_BYTES = 1 << 20
#: A counter's speed is taken over no longer gap than this.
_GAP_SECONDS = 5.0
#: Spans are put away, and failed jobs counted, this often.
_SLOW_EVERY = 5
#: Failed jobs looked at, newest first.
_FAILED_LOOK = 500
_HOUR = 3600.0
_TYPES = {
    "alerts": "hash", "history": "list", "history:now": "list", "units": "hash", "load": "hash", "pace": "hash",
    "nodes": "zset", "span": "hash", "spans": "stream", "workers": "zset", "workers:cpu": "zset",
    "workers:gpu": "zset", "broken": "set", "jobs": "zset", "durations": "hash", "waits": "hash",
}  # fmt: skip


class Speeds:
    """Differences of counters over time."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def of(self, name: str, count: float, now: float) -> float | None:
        """Units/s since the last call; None at first, after a gap, and for a counter that began anew."""
        before, since = self._last.get(name, (count, -_GAP_SECONDS))
        self._last[name] = (count, now)
        gap = now - since
        return (count - before) / gap if 0 < gap < _GAP_SECONDS and count >= before else None


class Recorder:
    """One replica's pen; only the leader's writes."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._client = queries.store.client
        self._speeds = Speeds()
        self._watch = alerts.Watch()
        self._rounds = 0
        self._failed: dict[str, int] = {}

    def round(self) -> None:
        nodes, queues = self._queries.fleet.workers(), self._queries.fleet.queues()
        memory = self._client.info("memory")
        if self._rounds % _SLOW_EVERY == 0:
            self._put_aside()
            self._queries.store.telemetry.put_spans_away()
            self._failed = self._failures()
        self._rounds += 1
        (seconds, micros), units = skipped.replies(self._client.pipeline(transaction=False).time().hgetall(f"{P}units"))
        now = seconds + micros / 1e6
        sample = {**dict(self._fleet(nodes, queues, units or {}, now)), "redis.memory": _stepped(memory["used_memory"])}
        for node in nodes:
            if node["live"]:
                sample.update(self._node(node, now))
        history.append(self._client, seconds, {name: history.rounded(value) for name, value in sample.items()})
        limit = memory.get("maxmemory") or memory.get("total_system_memory")
        ratio = memory["used_memory"] / limit if limit else None
        self._alarm(
            alerts.Facts(
                nodes=nodes, queues=queues, fleet=self._queries.fleet_cache.get(), failed=self._failed, memory=ratio
            ),
            now,
        )

    def _fleet(
        self, nodes: list[WorkerRow], queues: list[QueueRow], units: Mapping[bytes, bytes], now: float
    ) -> Iterator[tuple[str, float]]:
        live = [node for node in nodes if node["live"]]
        yield "workers.live", len(live)
        yield "lanes.total", sum(node["lanes"] for node in live)
        yield "lanes.busy", sum(node["busy_lanes"] for node in live)
        yield "wait.oldest", max(row["oldest_wait_seconds"] for row in queues)
        for row in queues:
            yield f"queue.{row['queue']}", row["jobs"]
        for state, count in self._queries.jobs.counts().items():
            yield f"jobs.{state}", count
        done = Counter(dict.fromkeys(registry.names(), 0))  # from zero on: a kind's first units count too
        for kind, count in skipped.readable("figure", units.items(), lambda field, text: (field.decode(), int(text))):
            done[kind.partition("|")[0]] += count
        for kind, total in done.items():
            speed = self._speeds.of(f"units.{kind}", total, now)
            if speed is not None:
                yield f"units.{kind}", speed

    def _node(self, node: Mapping[str, Any], now: float) -> Iterator[tuple[str, float]]:
        name = f"node.{node['id']}"
        yield f"{name}.busy_lanes", node["busy_lanes"]
        for known, short in NODE_NAMES.items():
            if known in node:
                yield f"{name}.{short}", _stepped(node[known]) if "bytes" in known else node[known]
        for known, short in RATE_NAMES.items():
            speed = self._speeds.of(f"{name}.{short}", node[known], now) if known in node else None
            if speed is not None:
                yield f"{name}.{short}", float(f"{speed:.3g}")
        for gpu in node.get("gpus", ()):
            for known, short in GPU_NAMES.items():
                if gpu.get(known) is not None:
                    yield f"gpu.{gpu['uuid']}.{short}", _stepped(gpu[known]) if "bytes" in known else gpu[known]

    def _failures(self) -> dict[str, int]:
        """Jobs that failed within the hour, by kind."""
        [ids] = skipped.replies(self._client.pipeline().zrevrange(f"{P}in:failed", 0, _FAILED_LOOK - 1))
        pipe = self._client.pipeline(transaction=False)
        for job_id in ids or ():
            pipe.hmget(keys.job("").encode() + job_id, "ended", "kind")
        since = (time.time() - _HOUR) * 1000
        found = zip(ids, skipped.replies(pipe), strict=True) if ids else ()
        kinds = skipped.readable("job", found, lambda _, row: row[1].decode() if int(row[0] or 0) > since else "")
        return dict(Counter(kind for kind in kinds if kind))

    def _put_aside(self) -> None:
        """Empties the places of keys of another type that only Python reads, or that no script mends."""
        pipe = self._client.pipeline(transaction=False)
        for name in _TYPES:
            pipe.type(f"{P}{name}")
        for (name, kind), found in zip(_TYPES.items(), pipe.execute(), strict=True):
            if found.decode() not in (kind, "none"):
                skipped.SKIPS.note("index", f"{P}{name}", f"a {found.decode()}, not a {kind}")
                self._queries.store.repairs.put_aside(f"{P}{name}")

    def _alarm(self, facts: alerts.Facts, now: float) -> None:
        known = {alert["id"]: alert for alert in self._queries.telemetry.alerts()}
        when = moment(now)
        changed, gone = self._watch.round(known, alerts.figures(facts), when)
        if changed:
            self._client.hset(f"{P}alerts", mapping={alert["id"]: json.dumps(alert) for alert in changed})
        if gone:
            self._client.hdel(f"{P}alerts", *gone)


def _stepped(count: float) -> int:
    return round(count / _STEP_BYTES) * _STEP_BYTES

"""What the API shows, read from Redis and shaped. Reads only."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, NamedTuple

from coordinator import alerts, scheduler
from jobs import broker, errors, leases, marks, queues, registry
from jobs.models import Device, JobState
from jobs.numbers import exact
from jobs.settings import Settings

P = leases.PREFIX
VERSION = "0.1.0"
#: A worker is shown for this long after its last sign of life.
LOST_SECONDS = 3600
#: Submissions and waits are decided on a view of the fleet this old at most.
FLEET_SECONDS = 0.5
#: Pages looked at for one answer, when a kind is asked for that is rare.
_PAGES = 20
#: Bytes of results that one answer for many jobs holds.
RESULTS_BYTES = 16 << 20
#: Ranges of a mark that one answer shows.
_RANGES = 1000
#: A rate older than this many seconds says nothing about now.
_STALE_SECONDS = 15


def _not_found(job_id: str) -> errors.NotFound:
    return errors.NotFound(f"no job {job_id}; list them with GET /api/jobs", field="job_id")


def moment(seconds: float) -> str:
    """Seconds since 1970 as the API writes them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _when(ms: str | None) -> str | None:
    return moment(int(ms) / 1000) if ms else None


def _text(mapping: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in mapping.items()}


class Views:
    def __init__(self, book: leases.Leases, chosen: Settings) -> None:
        self.book = book
        self.settings = chosen
        self._fleet, self._fleet_at = scheduler.Fleet(), -FLEET_SECONDS

    # -- jobs -------------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> dict[str, Any]:
        """One job as the API shows it; NotFound."""
        found = self.jobs_by_id([job_id])
        if not found:
            raise _not_found(job_id)
        return found[0]

    def jobs_by_id(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        pipe = self.book.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hgetall(leases.key(job_id))
        rows = [(job_id, _text(row)) for job_id, row in zip(ids, pipe.execute(), strict=True) if row]
        ranks = self._ranks(rows)
        fleet = self.fleet() if ranks else scheduler.Fleet()
        return [_job(job_id, row, ranks.get(job_id, -1), fleet) for job_id, row in rows]

    def _ranks(self, rows: Sequence[tuple[str, dict[str, str]]]) -> dict[str, int | None]:
        """Place in the queue of jobs that wait."""
        waiting = [(job_id, row) for job_id, row in rows if row["state"] in ("queued", "running")]
        if not waiting:
            return {}
        pipe = self.book.client.pipeline(transaction=False)
        for job_id, row in waiting:
            pipe.zrank(f"{P}pending:{row['queue']}", job_id)
        return {job_id: rank for (job_id, _), rank in zip(waiting, pipe.execute(), strict=True)}

    def jobs(self, state: str | None, kind: str | None, cursor: int | None, limit: int) -> dict[str, Any]:
        """Newest first. The cursor is the number of the last job looked at; a page may hold less than `limit`."""
        index = f"{P}in:{state}" if state else f"{P}jobs"
        found: list[dict[str, Any]] = []
        top = f"({cursor}" if cursor is not None else "+inf"
        for _ in range(_PAGES):
            size = max(limit, 100)
            page = self.book.client.zrevrangebyscore(index, top, "-inf", start=0, num=size, withscores=True)
            if not page:
                return {"jobs": found, "cursor": None}
            shown = {job["job_id"]: job for job in self.jobs_by_id([job_id.decode() for job_id, _ in page])}
            for job_id, score in page:
                cursor = int(score)
                job = shown.get(job_id.decode())
                if job and (kind is None or job["type"] == kind):
                    found.append(job)
                if len(found) == limit:
                    return {"jobs": found, "cursor": str(cursor)}
            top = f"({cursor}"
        return {"jobs": found, "cursor": str(cursor)}

    def states(self, ids: Sequence[str]) -> list[str | None]:
        pipe = self.book.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hget(leases.key(job_id), "state")
        return [state.decode() if state else None for state in pipe.execute()]

    def result(self, job_id: str) -> tuple[dict[str, Any], str, bytes | None]:
        """What stands around a job's result, its state, and the result as it is stored, if it is; NotFound."""
        (kind, total, done, state), stored = self.book.read(
            ("HMGET", leases.key(job_id), "kind", "total", "done", "state"), ("GET", leases.key(job_id, "result"))
        )
        if kind is None:
            raise _not_found(job_id)
        units, total = exact(int(done)), exact(int(total))
        head = {"job_id": job_id, "type": kind.decode(), "partial": False, "units": units, "total": total}
        return head, state.decode(), stored

    def results(self, ids: Sequence[str]) -> bytes:
        """State and, once done, result of each as one JSON answer; results are spliced in as they are stored.

        Holds at most RESULTS_BYTES of results: each has its share, and what is left goes to larger ones in their order.
        """
        share = RESULTS_BYTES // len(ids)
        pipe = self.book.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hmget(leases.key(job_id), "state", "kind", "error")
            pipe.getrange(leases.key(job_id, "result"), 0, share)  # a byte more than the share: the result is longer
        replies = pipe.execute()
        rows, stored = replies[::2], [Stored(text) for text in replies[1::2]]
        if long := [place for place, text in enumerate(replies[1::2]) if len(text) > share]:
            left = RESULTS_BYTES - sum(len(text) for text in replies[1::2] if len(text) <= share)
            del replies
            stored = self._with_long(ids, stored, long, left)
        return b'{"answers":[' + b",".join(map(_answer, ids, rows, stored)) + b"]}"

    def _with_long(self, ids: Sequence[str], stored: list[Stored], long: list[int], left: int) -> list[Stored]:
        """The same with those results in `long` that fit into `left` bytes; of the others the length."""
        keys = {place: leases.key(ids[place], "result") for place in long}
        pipe = self.book.client.pipeline(transaction=False)
        for key in keys.values():
            pipe.strlen(key)
        found = [Stored(b"") if place in keys else text for place, text in enumerate(stored)]
        taken = self.book.client.pipeline(transaction=False)
        fitting = []
        for place, length in zip(long, pipe.execute(), strict=True):
            found[place] = Stored(b"", length)
            if length <= left:
                left -= length
                fitting.append(place)
                taken.get(keys[place])
        for place, text in zip(fitting, taken.execute(), strict=True):
            found[place] = Stored(text or b"")
        return found

    def mark(self, kind: str, name: str) -> dict[str, Any]:
        """How far a mark reaches without a hole, and the ranges beyond. NotFound naming those there are."""
        if kind not in registry.names():
            raise errors.NotFound(f"nothing is at /api/{kind}/{name}; see /api/docs", field="kind")
        definition = registry.marking(kind)
        known = definition.MARKS if definition else {}
        if name not in known:
            have = ", ".join(known) or "none"
            raise errors.NotFound(f"{kind} has no mark {name}; it has {have}", field="mark")
        found = marks.joined(marks.read(name, self.book.marks(marks.where(kind, name))), known[name])
        reach = marks.from_origin(found, known[name])
        return {
            "type": kind,
            "mark": name,
            "summary": known[name].summary,
            "origin": exact(known[name].origin),
            "up_to": exact(reach.hi - 1) if reach else None,
            "ranges": [{"first": exact(mark.lo), "last": exact(mark.hi - 1)} for mark in found[:_RANGES]],
            "more_ranges": max(0, len(found) - _RANGES),
        }

    # -- the fleet --------------------------------------------------------------------------------------------------

    def nodes(self) -> list[dict[str, Any]]:
        """Workers, live ones and those lost within the hour."""
        client = self.book.client
        since = (time.time() - LOST_SECONDS) * 1000
        names = sorted(name.decode() for name in client.zrangebyscore(f"{P}nodes", since, "+inf"))
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(f"{P}worker:{name}")
            pipe.zscore(f"{P}workers", name)
        pipe.time()
        *replies, (seconds, micros) = pipe.execute()
        now = seconds + micros / 1e6
        rows = zip(names, replies[::2], replies[1::2], strict=True)
        nodes = [_node(name, _text(row), live, now) for name, row, live in rows if row]
        return [node for node in nodes if node["seen_seconds_ago"] < LOST_SECONDS]

    def alerts(self) -> list[dict[str, Any]]:
        """What fires and, for an hour, what did."""
        return alerts.shown([json.loads(text) for text in self.book.client.hvals(f"{P}alerts")])

    def fleet(self) -> scheduler.Fleet:
        """As decisions see it, at most FLEET_SECONDS old."""
        if time.monotonic() - self._fleet_at > FLEET_SECONDS:
            self._fleet, self._fleet_at = self._read_fleet(), time.monotonic()
        return self._fleet

    def _read_fleet(self) -> scheduler.Fleet:
        client = self.book.client
        seconds, _ = client.time()  # scores are of Redis' clock, which need not be ours
        pipe = client.pipeline(transaction=False)
        pipe.hgetall(f"{P}load")
        for device in (Device.CPU, Device.GPU):
            pipe.zrangebyscore(f"{P}workers:{device}", (seconds - 1) * 1000, "+inf")
        pipe.hgetall(f"{P}pace")
        load, *alive, paces = pipe.execute()
        names = [
            (device, name) for device, found in zip((Device.CPU, Device.GPU), alive, strict=True) for name in found
        ]
        pipe = client.pipeline(transaction=False)
        for _, name in names:
            pipe.hmget(f"{P}worker:{name.decode()}", "lanes", "drain", "kinds")
        lanes: dict[Device, int] = {}
        kinds: dict[Device, list[dict[str, int]]] = {}
        for (device, _), (count, drain, told) in zip(names, pipe.execute() if names else [], strict=True):
            if drain != b"1":
                lanes[device] = lanes.get(device, 0) + int(count or 0)
                kinds.setdefault(device, []).append(json.loads(told or "{}"))
        waiting = {queue: int(ms) / 1000 for queue, ms in _text(load).items()}
        return scheduler.Fleet(lanes=lanes, load_seconds=waiting, speeds=_speeds(_text(paces)), kinds=kinds)

    def queues(self) -> list[dict[str, Any]]:
        """Depth and oldest wait of every queue."""
        pipe = self.book.client.pipeline(transaction=False)
        for name in queues.ALL:
            pipe.zcard(f"{P}pending:{name}")
            pipe.zrange(f"{P}pending:{name}", 0, 0)
        replies = pipe.execute()
        first = {name: ids[0].decode() for name, ids in zip(queues.ALL, replies[1::2], strict=True) if ids}
        pipe = self.book.client.pipeline(transaction=False)
        for job_id in first.values():
            pipe.hget(leases.key(job_id), "created")
        created = dict(zip(first, pipe.execute() if first else [], strict=True))
        bells = broker.queue_lengths(self.book.client)
        now = time.time()
        return [
            {
                "queue": name,
                "jobs": depth,
                "bells": bells[name],
                "oldest_wait_seconds": round(max(0.0, now - int(created[name] or 0) / 1000), 3)
                if name in created
                else 0.0,
            }
            for name, depth in zip(queues.ALL, replies[::2], strict=True)
        ]

    def counts(self) -> dict[str, int]:
        """Jobs kept, by state."""
        pipe = self.book.client.pipeline(transaction=False)
        for state in JobState:
            pipe.zcard(f"{P}in:{state}")
        return {state.value: count for state, count in zip(JobState, pipe.execute(), strict=True)}

    def snapshot(self) -> dict[str, Any]:
        """The fleet and the newest jobs, each read once."""
        nodes, rows = self.nodes(), self.queues()
        return {"status": self.status(nodes, rows), "queues": rows, "nodes": nodes, "gpus": gpus(nodes),
                "alerts": self.alerts(), **self.jobs(None, None, None, 100)}  # fmt: skip

    def status(self, nodes: list[dict[str, Any]] | None = None, by_queue: list[Any] | None = None) -> dict[str, Any]:
        nodes, by_queue = nodes or self.nodes(), by_queue or self.queues()
        live = [node for node in nodes if node["live"]]
        workers: dict[str, Any] = {"live": len(live), "ready": sum(node["state"] != "starting" for node in live)}
        for device in (Device.CPU, Device.GPU):
            states: dict[str, int] = {}
            for node in live:
                if node["device"] == device:
                    states[node["state"]] = states.get(node["state"], 0) + 1
            workers[device.value] = states
        return {
            "version": VERSION,
            "cluster_size": self.settings.cluster_size or None,
            "workers": workers,
            "lanes": sum(node["lanes"] for node in live),
            "jobs": self.counts(),
            "queues": {row["queue"]: row["jobs"] for row in by_queue if row["jobs"]},
            "oldest_wait_seconds": max(row["oldest_wait_seconds"] for row in by_queue),
            "units_per_second": self._speeds(),
        }

    def _speeds(self) -> dict[str, float]:
        """Committed units/s now, by kind, over the jobs that run."""
        running = self.jobs_by_id([job_id.decode() for job_id in self.book.client.zrevrange(f"{P}in:running", 0, 99)])
        speeds: dict[str, float] = {}
        for job in running:
            if job["rate"]:
                speeds[job["type"]] = speeds.get(job["type"], 0.0) + job["rate"]
        return speeds


def gpus(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every GPU that a worker tells of, with whose it is."""
    return [
        {**gpu, "node": node["id"], "live": node["live"], "job": node["job"] if node["live"] else None}
        for node in nodes
        for gpu in node.get("gpus", ())
    ]


def _speeds(paces: Mapping[str, str]) -> dict[Device, float]:
    """Of a lane of each device, over the kinds' own estimates: the median of the kinds and modes that were measured."""
    measured: dict[Device, list[float]] = {}
    for field, pace in paces.items():
        measured.setdefault(Device(field.rpartition("|")[2]), []).append(float(pace))
    return {device: median(values) for device, values in measured.items()}


def _job(job_id: str, row: dict[str, str], before: int | None, fleet: scheduler.Fleet) -> dict[str, Any]:
    state, done, total = row["state"], int(row["done"]), int(row["total"])
    rate = _rate(row) if state in ("running", "cancelling") else None
    started, ended = row.get("started"), row.get("ended")
    until = int(ended) / 1000 if ended else time.time()
    holders = int(row["holders"])
    return {
        "job_id": job_id,
        "type": row["kind"],
        "state": state,
        "priority": row["priority"],
        "device": row["device"],
        "queue": row["queue"],
        "parameters": json.loads(row["parameters"]),
        "notes": json.loads(row["notes"]),
        "created": _when(row["created"]),
        "started": _when(started),
        "ended": _when(ended),
        "seconds": round(max(0.0, until - int(started) / 1000), 3) if started else None,
        "progress": done / total,
        "done": exact(done),
        "total": exact(total),
        "rate": rate,
        "eta_seconds": round((total - done) / rate, 1) if rate else None,
        "waiting_because": scheduler.waiting_because(
            state, row["queue"], None if before == -1 else before, holders, fleet, row["kind"], int(row["version"])
        ),
        "error": row.get("error"),
        "usage": _usage(row),
    }


def _rate(row: dict[str, str]) -> float | None:
    """Committed units/s: the smoothed rate, or the average so far while there is none."""
    now = time.time() * 1000
    if "rate" in row and now - int(row["mark_at"]) < _STALE_SECONDS * 1000:
        return float(row["rate"])
    if "rate" in row or "started" not in row or int(row["done"]) == 0:
        return None
    return int(row["done"]) * 1000 / max(now - int(row["started"]), 1)


#: Names and units of what a job's hash counts for a worker.
_USED = {"ms": ("seconds", 1000), "device_ms": ("device_seconds", 1000), "mj": ("joules", 1000)}


def _usage(row: dict[str, str]) -> dict[str, Any]:
    """Who computed: units, seconds of lanes and leases, by device and worker."""
    workers: dict[str, dict[str, Any]] = {}
    for name, value in row.items():
        if name.startswith("use|"):
            _, device, worker, what = name.split("|")
            entry = workers.setdefault(worker, {"device": device})
            shown, unit = _USED.get(what, (what, 1))
            entry[shown] = int(value) / unit if unit > 1 else int(value)
    seconds = sum(entry["seconds"] for entry in workers.values())
    return {
        "lane_seconds": round(seconds, 3),
        **{
            name: round(sum(entry.get(name, 0) for entry in workers.values()), 3)
            for name in ("device_seconds", "joules")
            if any(name in entry for entry in workers.values())
        },
        "leases": sum(entry["leases"] for entry in workers.values()),
        "expired_leases": int(row.get("expired", 0)),
        "workers": workers,
    }


class Stored(NamedTuple):
    """A job's result as it is stored, empty while there is none; or only its length, where it is too long to send."""

    text: bytes
    length: int = 0


def _answer(job_id: str, row: Sequence[bytes | None], stored: Stored) -> bytes:
    state, kind, error = (value.decode() if value else None for value in row)
    answer: dict[str, Any] = {"job_id": job_id, "type": kind, "state": state}
    if state is None:
        answer = {"job_id": job_id, "state": None, "error": f"no job {job_id}"}
    elif stored.length:
        answer |= {"result_at": f"/api/jobs/{job_id}/result", "result_bytes": stored.length}
    elif not stored.text and error:
        answer["error"] = error
    head = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
    return head[:-1] + b',"result":' + stored.text + b"}" if stored.text and state else head


def _node(name: str, row: dict[str, str], live: float | None, now: float) -> dict[str, Any]:
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
        "draining": row.get("drain") == "1",
        "seen_seconds_ago": round(max(0.0, seen), 1),
        "cpu_ratio": float(row.get("cpu_ratio", 0)),
        "rates": json.loads(row.get("rates", "{}")),
        **{name: int(row[name]) for name in numbers if name in row},
        **({"gpus": json.loads(row["gpus"])} if "gpus" in row else {}),
        **({"retired": row["retired"]} if "retired" in row else {}),
        **({"cpu_energy_joules_total": float(joules)} if (joules := row.get("cpu_energy_joules_total")) else {}),
    }

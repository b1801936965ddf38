"""What the API shows, read from Redis and shaped. Reads only."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, NamedTuple

from coordinator.jobs import scheduler
from coordinator.telemetry import alerts
from jobs import errors, queues
from jobs.kinds import registry
from jobs.models import Device, JobState
from jobs.numbers import exact
from jobs.settings import Settings
from jobs.store import bells, leases, marks, skipped

P = leases.PREFIX
VERSION = "0.1.0"
#: A worker is shown for this long after its last sign of life.
LOST_SECONDS = 3600
#: Submissions and waits are decided on a view of the fleet this old at most.
FLEET_SECONDS = 0.5
#: Pages looked at for one answer, when a kind is asked for that is rare.
_PAGES = 20
#: Numbers of jobs are integers up to here.
_LAST = str(2**53)
#: Bytes of results that one answer for many jobs holds.
RESULTS_BYTES = 16 << 20
#: Ranges of a mark that one answer shows.
_RANGES = 1000
#: A rate older than this many seconds says nothing about now.
_STALE_SECONDS = 15


def _not_found(job_id: str) -> errors.NotFound:
    return errors.NotFound(f"no job {job_id}; list them with GET /api/jobs", field="job_id")


def _broken(job_id: str) -> errors.Broken:
    return errors.Broken(
        f"what is stored of job {job_id} cannot be read; delete it and submit it again", field="job_id"
    )


def moment(seconds: float) -> str:
    """Seconds since 1970 as the API writes them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _when(ms: str | None) -> str | None:
    try:
        return moment(int(ms) / 1000) if ms else None
    except OSError as error:  # what some platforms raise for a year that is none
        raise ValueError(f"{ms} is no moment") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _json(text: str | bytes) -> Any:
    """Parsed; ValueError for NaN and the like, which are no JSON."""
    return json.loads(text, parse_constant=_finite)


def _ids(members: Iterable[bytes]) -> list[str]:
    """Names as text; what is no text names nothing that exists."""
    return [member.decode(errors="replace") for member in members]


def _text(mapping: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in mapping.items()}


class Views:
    def __init__(self, book: leases.Leases, chosen: Settings) -> None:
        self.book = book
        self.settings = chosen
        self._fleet, self._fleet_at = scheduler.Fleet(), -FLEET_SECONDS

    # -- jobs -------------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> dict[str, Any]:
        """One job as the API shows it; NotFound, or Broken when what is stored of it cannot be read."""
        found = self.jobs_by_id([job_id])
        if found:
            return found[0]
        raise _broken(job_id) if self.book.client.exists(leases.key(job_id)) else _not_found(job_id)

    def jobs_by_id(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        pipe = self.book.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hgetall(leases.key(job_id))
        stored = [(job_id, row) for job_id, row in zip(ids, skipped.replies(pipe), strict=True) if row]
        rows = skipped.readable("job", stored, lambda job_id, row: (job_id, _sound(_text(row))))
        ranks = self._ranks(rows)
        fleet = self.fleet() if ranks else scheduler.Fleet()
        return skipped.readable("job", rows, lambda job_id, row: _job(job_id, row, ranks.get(job_id, -1), fleet))

    def _ranks(self, rows: Sequence[tuple[str, dict[str, str]]]) -> dict[str, int | None]:
        """Place in the queue of jobs that wait."""
        waiting = [(job_id, row) for job_id, row in rows if row["state"] in ("queued", "running")]
        if not waiting:
            return {}
        pipe = self.book.client.pipeline(transaction=False)
        for job_id, row in waiting:
            pipe.zrank(f"{P}pending:{row['queue']}", job_id)
        return {job_id: rank for (job_id, _), rank in zip(waiting, skipped.replies(pipe), strict=True)}

    def jobs(self, state: str | None, kind: str | None, cursor: int | None, limit: int) -> dict[str, Any]:
        """Newest first. The cursor is the number of the last job looked at; a page may hold less than `limit`."""
        index = f"{P}in:{state}" if state else f"{P}jobs"
        found: list[dict[str, Any]] = []
        top = f"({cursor}" if cursor is not None else _LAST
        for _ in range(_PAGES):
            size = max(limit, 100)
            pipe = self.book.client.pipeline(transaction=False)
            [page] = skipped.replies(pipe.zrevrangebyscore(index, top, 0, start=0, num=size, withscores=True))
            if not page:
                return {"jobs": found, "cursor": None}
            shown = {job["job_id"]: job for job in self.jobs_by_id(_ids(job_id for job_id, _ in page))}
            for job_id, score in page:
                cursor = int(score)
                job = shown.get(job_id.decode(errors="replace"))
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
        return [state.decode(errors="replace") if state else None for state in skipped.replies(pipe)]

    def result(self, job_id: str) -> tuple[dict[str, Any], str, bytes | None]:
        """What stands around a job's result, its state, and the result as it is stored, if it is; NotFound."""
        try:
            row, stored = self.book.read(
                ("HMGET", leases.key(job_id), "kind", "total", "done", "state"), ("GET", leases.key(job_id, "result"))
            )
        except leases.RedisError as error:
            if leases.wrong_type(error):
                raise _broken(job_id) from error
            raise
        if row[0] is None:
            raise _not_found(job_id)
        try:
            kind, total, done, state = (value.decode() for value in row)
            head = {"job_id": job_id, "type": kind, "partial": False, "units": exact(int(done)),
                    "total": exact(int(total))}  # fmt: skip
        except leases.Unreadable:
            raise _broken(job_id) from None
        return head, state, stored

    def results(self, ids: Sequence[str]) -> bytes:
        """State and, once done, result of each as one JSON answer; results are spliced in as they are stored.

        Holds at most RESULTS_BYTES of results: each has its share, and what is left goes to larger ones in their order.
        """
        share = RESULTS_BYTES // len(ids)
        pipe = self.book.client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hmget(leases.key(job_id), "state", "kind", "error")
            pipe.getrange(leases.key(job_id, "result"), 0, share)  # a byte more than the share: the result is longer
        replies: list[Any] = skipped.replies(pipe)
        replies = [reply or (b"" if place % 2 else [None, None, None]) for place, reply in enumerate(replies)]
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
        [known] = skipped.replies(client.pipeline(transaction=False).zrangebyscore(f"{P}nodes", since, "+inf"))
        names = sorted(_ids(known or ()))
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(f"{P}worker:{name}")
            pipe.zscore(f"{P}workers", name)
        pipe.time()
        *replies, (seconds, micros) = skipped.replies(pipe)
        now = seconds + micros / 1e6
        rows = zip(names, replies[::2], replies[1::2], strict=True)
        found = [(name, (row, live)) for name, row, live in rows if row]
        nodes = skipped.readable("node", found, lambda name, both: _node(name, _text(both[0]), both[1], now))
        return [node for node in nodes if node["seen_seconds_ago"] < LOST_SECONDS]

    def alerts(self) -> list[dict[str, Any]]:
        """What fires and, for an hour, what did."""
        [stored] = skipped.replies(self.book.client.pipeline(transaction=False).hgetall(f"{P}alerts"))
        return alerts.shown(skipped.readable("alert", (stored or {}).items(), lambda _, text: _alert(text)))

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
        load, *alive, paces = skipped.replies(pipe)
        names = [
            (device, name)
            for device, found in zip((Device.CPU, Device.GPU), alive, strict=True)
            for name in found or ()
        ]
        pipe = client.pipeline(transaction=False)
        for _, name in names:
            pipe.hmget(leases.PREFIX.encode() + b"worker:" + name, "lanes", "drain", "kinds")
        lanes: dict[Device, int] = {}
        kinds: dict[Device, list[dict[str, int]]] = {}
        told = zip(names, skipped.replies(pipe) if names else [], strict=True)
        for device, count, known in skipped.readable("node", told, _alive):
            if known is not None:
                lanes[device] = lanes.get(device, 0) + count
                kinds.setdefault(device, []).append(known)
        waiting = skipped.readable("figure", (load or {}).items(), lambda queue, ms: (queue.decode(), int(ms) / 1000))
        speeds = skipped.readable("figure", (paces or {}).items(), _pace)
        load_seconds = {queue: max(0.0, seconds) for queue, seconds in waiting}
        return scheduler.Fleet(lanes=lanes, load_seconds=load_seconds, speeds=_speeds(dict(speeds)), kinds=kinds)

    def queues(self) -> list[dict[str, Any]]:
        """Depth and oldest wait of every queue; jobs whose kind or version no worker has wait too."""
        waiting = self._waiting()
        created = self._created({job_id for _, _, job_id in waiting if job_id})
        ringing = bells.queue_lengths(self.book.client)
        now = time.time()
        rows = []
        for name in queues.ALL:
            mine = [(depth, job_id) for queue, depth, job_id in waiting if queue == name]
            oldest = min((created[job_id] for _, job_id in mine if job_id in created), default=now)
            rows.append(
                {
                    "queue": name, "jobs": sum(depth for depth, _ in mine), "bells": ringing[name],
                    "oldest_wait_seconds": round(max(0.0, now - oldest), 3),
                }
            )  # fmt: skip
        return rows

    def _waiting(self) -> list[tuple[str, int, str]]:
        """Queue, number of jobs and the first of them, or empty: of each queue, and of what its workers lack."""
        client = self.book.client
        [lacked] = skipped.replies(client.pipeline(transaction=False).smembers(f"{P}lacked"))
        names = [name.decode(errors="replace") for name in lacked or ()]
        places = [(name, f"{P}pending:{name}") for name in queues.ALL]
        places += [(name.partition(":")[0], f"{P}lacked:{name}") for name in names]
        pipe = client.pipeline(transaction=False)
        for _, place in places:
            pipe.zcard(place).zrange(place, 0, 0)
        replies = skipped.replies(pipe)
        rows = zip(places, replies[::2], replies[1::2], strict=True)
        return [(name, depth or 0, ids[0].decode(errors="replace") if ids else "") for (name, _), depth, ids in rows]

    def _created(self, ids: Iterable[str]) -> dict[str, float]:
        """Seconds since 1970 of each job's submission."""
        pipe, wanted = self.book.client.pipeline(transaction=False), list(ids)
        for job_id in wanted:
            pipe.hget(leases.key(job_id), "created")
        stored = zip(wanted, skipped.replies(pipe), strict=True)
        return dict(skipped.readable("job", stored, lambda job_id, ms: (job_id, int(ms or 0) / 1000)))

    def counts(self) -> dict[str, int]:
        """Jobs kept, by state."""
        pipe = self.book.client.pipeline(transaction=False)
        for state in JobState:
            pipe.zcard(f"{P}in:{state}")
        return {state.value: count or 0 for state, count in zip(JobState, skipped.replies(pipe), strict=True)}

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
        [found] = skipped.replies(self.book.client.pipeline(transaction=False).zrevrange(f"{P}in:running", 0, 99))
        running = self.jobs_by_id(_ids(found or ()))
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


def _sound(row: dict[str, str]) -> dict[str, str]:
    """The row itself. LookupError or ValueError without what all else asks for."""
    JobState(row["state"])
    if "queue" not in row or int(row["total"]) < 1:
        raise ValueError("it has no queue or no units")
    return row


def _alert(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = _json(text)
    if found["state"] not in ("firing", "resolved") or not isinstance(found["id"], str):
        raise ValueError("it is no alert")
    datetime.fromisoformat(found["since"])
    datetime.fromisoformat(found["until"] or found["since"])
    return found


def _alive(worker: tuple[Device, bytes], row: Sequence[bytes | None]) -> tuple[Device, int, dict[str, int] | None]:
    """A live worker's lanes and the kinds that it knows; None when it takes nothing new."""
    count, drain, kinds = row
    known = {name: int(version) for name, version in _json(kinds or b"{}").items()}
    return worker[0], int(count or 0), None if drain == b"1" else known


def _pace(field: bytes, stored: bytes) -> tuple[str, str]:
    Device(field.decode().rpartition("|")[2])
    if _finite(stored.decode()) <= 0:
        raise ValueError("it is no speed")
    return field.decode(), stored.decode()


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
        "parameters": _json(row["parameters"]),
        "notes": _json(row["notes"]),
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
        return _finite(row["rate"])
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
    state, kind, error = (value.decode(errors="replace") if value else None for value in row)
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
        "cpu_ratio": _finite(row.get("cpu_ratio", "0")),
        "rates": {kind: _finite(rate) for kind, rate in _json(row.get("rates", "{}")).items()},
        **{name: int(row[name]) for name in numbers if name in row},
        **({"gpus": [{**gpu, "uuid": str(gpu["uuid"])} for gpu in _json(row["gpus"])]} if "gpus" in row else {}),
        **({"retired": row["retired"]} if "retired" in row else {}),
        **({"cpu_energy_joules_total": _finite(joules)} if (joules := row.get("cpu_energy_joules_total")) else {}),
    }

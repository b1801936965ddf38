"""Services of tenants: their desired state, their replicas, and the addresses of the replicas.

The leader starts and stops replicas. Each step is one idempotent function. Replica numbers are never reused, and a
replica's job is named after its number, so a new leader can continue after any step.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.functions import Part
from jobs.store.server.records import number, record, texts

#: Maximum number of services per tenant.
MAX_SERVICES = 100
#: Milliseconds for which a runner's report about a replica is valid. Runners repeat reports every five seconds.
REPORT_TTL_MS = 60_000
_JOB = re.compile(r"v-([0-9a-f]+)-([1-9][0-9]{0,15})")
#: Seconds for which a coordinator's report about a tunnel is valid. Coordinators repeat reports every five seconds.
_TUNNEL_SECONDS = 15
#: Seconds for which a coordinator's number of requests is valid.
_BUSY_SECONDS = 10
#: Length in milliseconds of the intervals in which requests are counted.
#: Statistics include the current interval and `SLOTS` earlier intervals.
SLOT_MS, SLOTS = 10_000, 6


@dataclass(frozen=True, kw_only=True)
class TunnelEnd:
    """Coordinator to which a runner has a tunnel, with its address for other coordinators."""

    url: str
    #: Key that other coordinators send to authenticate.
    key: str = field(repr=False)
    #: Name of the coordinator's host.
    host: str


@dataclass(frozen=True, kw_only=True)
class Service:
    """Service of a tenant, as stored in Redis. Times are milliseconds since 1970, by Redis time."""

    service_id: str
    tenant: str
    name: str
    engine: str
    #: ID of the API token that created the service.
    token: str = ""
    #: Request that submits the job of a replica, as JSON.
    job: str = "{}"
    #: Request that created the service, as JSON.
    asked: str = "{}"
    #: ID of the artifact that the replicas use, or empty.
    artifact: str = ""
    replicas: int = 1
    stopped: bool = False
    deleted: bool = False
    #: Number of the service's restarts plus one. Replicas of earlier generations are replaced.
    generation: int = 1
    created: int = 0
    #: Number that the next replica gets.
    next: int = 1
    #: Number of consecutive failures of replicas.
    failures: int = 0
    retry_at: int = 0
    said: str = ""
    #: ID of the failed replica's job that is kept for its log, or empty.
    died: str = ""
    #: Time of the last request for the service.
    asked_at: int = 0
    needed_at: int = 0
    #: Number of requests for the service at all coordinators, including waiting requests.
    demand: int = 0
    #: Number of the replica that leads the current generation, or 0.
    leads: int = 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a runner about one of its replicas."""

    #: State of the replica: starting, ready, unhealthy or stopping.
    state: str
    why: str
    #: Time in milliseconds since 1970 at which this state began, by Redis time.
    since: int
    address: str
    port: int
    key: str = field(repr=False)
    worker: str
    #: Name of the runner's host.
    host: str
    #: Memory in bytes that the replica's processes use, or None if the runner does not report it.
    memory_bytes: int | None = None
    devices: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Replica:
    """Replica of a service, with the state of its job and its runner's report."""

    number: int
    job_id: str
    generation: int
    #: Time at which the replica was added.
    since: int
    stopping: int = 0
    #: State of the replica's job, or None if the job does not exist.
    job_state: str | None = None
    report: Report | None = None
    #: Number of requests that coordinators are currently forwarding to the replica.
    busy: int = 0


@dataclass(kw_only=True)
class Asked:
    """Number of requests to a model, of prompt tokens and of completion tokens."""

    requests: int = 0
    prompt: int = 0
    answer: int = 0
    #: Counts to add to the statistics of the last minute, keyed by name.
    figures: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class RecentUsage:
    """Statistics of a service over the last minute, collected from all coordinators."""

    #: Length in seconds of the period that the statistics cover. It is at most 70.
    seconds: float
    counts: Mapping[str, int]


def new_replica(service: Service, number: int, now: int) -> Replica:
    """Return a new replica. `now` is its creation time in milliseconds of Redis time."""
    return Replica(number=number, job_id=job_id(service.service_id, number), generation=service.generation, since=now)


def job_id(service_id: str, number: int) -> str:
    """Return the ID of a replica's job."""
    return f"v-{service_id}-{number}"


def parse_job_id(job: str) -> tuple[str, int]:
    """Return the service ID and the number of the replica with this job ID. For any other job, return "" and 0."""
    found = _JOB.fullmatch(job)
    return (found[1], int(found[2])) if found else ("", 0)


class Services(Part):
    """Stores services and their replicas in Redis."""

    def add(self, service: Service, actor: Actor = ANONYMOUS) -> tuple[str, str]:
        """Store a new service.

        Return (new, ID); otherwise store nothing and return (exists, name), (full, most), (missing, tenant) or
        (artifact, ID).
        """
        names = ("tenant", "name", "engine", "token", "job", "asked", "artifact", "replicas")
        fields = {name: getattr(service, name) for name in names} | {"stopped": 0}
        flat = [word for pair in fields.items() for word in pair]
        how, what = self._functions.run_acknowledged_texts(
            "add_service", service.service_id, MAX_SERVICES, *actor, *flat
        )
        return how, what

    def scale(self, tenant: str, name: str, replicas: int, actor: Actor = ANONYMOUS) -> bool:
        """Set the desired number of replicas. Return False if the service does not exist."""
        return bool(self._functions.run_acknowledged("change_service", tenant, name, "scale", replicas, *actor))

    def restart(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Replace all replicas of a service. Return False if the service does not exist."""
        return bool(self._functions.run_acknowledged("change_service", tenant, name, "restart", "", *actor))

    def stop(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Stop all replicas until a user scales or restarts the service. Return False if the service does not exist."""
        return bool(self._functions.run_acknowledged("change_service", tenant, name, "stop", "", *actor))

    def delete(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Delete a service and stop its replicas. Return False if the service does not exist.

        This also works if Redis is full. The name becomes free.
        """
        return bool(self._functions.run_acknowledged("change_service", tenant, name, "delete", "", *actor))

    def log_disclosure(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> None:
        """Record in the audit log that a user read the access key of a service."""
        self._functions.run_acknowledged("log_disclosure", "show service access", f"{tenant}/{name}", *actor)

    # -- leader methods --------------------------------------------------------------------------------------------

    def place(self, service_id: str, number: int, generation: int) -> bool:
        """Add a replica to a service. Return False if the service is stopped or the replica's number is wrong.

        Call this method before the replica's job is submitted.
        """
        return bool(self._functions.run("place_replica", service_id, number, generation))

    def retire(self, service_id: str, number: int) -> bool:
        """Stop sending requests to a replica. Return False if the replica does not exist."""
        return bool(self._functions.run("retire_replica", service_id, number))

    def end(
        self, service_id: str, replica: Replica, failures: int | None = None, retry_at: int = 0, said: str = ""
    ) -> bool:
        """Remove a replica whose job has ended.

        If it failed, `failures` is the number of consecutive failures, and no replica starts before `retry_at`.
        """
        counted = "" if failures is None else failures
        return bool(
            self._functions.run("end_replica", service_id, replica.number, replica.job_id, counted, retry_at, said)
        )

    def note(self, service_id: str, *, failures: int, said: str) -> bool:
        """Record the number of consecutive failures and a message for users.

        Return False if the service does not exist.
        """
        return bool(self._functions.run("note_service", service_id, "failures", failures, "said", said))

    def route(self, service_id: str, asked: str) -> bool:
        """Replace the stored request of a service, to change its route. Return False if the service does not exist."""
        return bool(self._functions.run("note_service", service_id, "asked", asked))

    def rescale(self, service_id: str, before: int, replicas: int, needed_at: int) -> bool:
        """Change the number of replicas because of the load. Return False if a user has scaled the service meanwhile.

        All replicas were last needed at `needed_at`.
        """
        return bool(self._functions.run("rescale_service", service_id, before, replicas, needed_at))

    def forget(self, service_id: str) -> bool:
        """Remove the record of a deleted service that has no replicas."""
        return bool(self._functions.run("forget_service", service_id))

    def failure(self, job: str) -> str:
        """Return the error message of a replica's program, or empty if the program did not fail."""
        row, error = self._functions.read(("HGET", keys.job_failures(job), "0"), ("HGET", keys.job(job), "error"))
        try:
            return str(json.loads(row)["error"]) if row else _text(error) or ""
        except (ValueError, KeyError, TypeError):
            return _text(error) or ""

    def leaving(self, workers: Sequence[str]) -> frozenset[str]:
        """Return the workers in this list that are draining."""
        rows = self._functions.read(*(("HGET", keys.worker(one), "drain") for one in workers))
        return frozenset(one for one, drains in zip(workers, rows, strict=True) if drains == b"1")

    def gone(self, workers: Sequence[str], now: int) -> frozenset[str]:
        """Return the workers in this list that sent no recent heartbeat. `now` is Redis time in milliseconds."""
        rows = self._functions.read(*(("ZSCORE", keys.WORKERS, one) for one in workers))
        return frozenset(one for one, until in zip(workers, rows, strict=True) if until is None or float(until) < now)

    # -- reports of runners and coordinators ------------------------------------------------------------------------

    def report(self, job: str, token: str, fields: Mapping[str, str | int]) -> bool:
        """Store a runner's report about a replica. Return False if `token` is not the token of the replica's lease."""
        flat = [word for pair in fields.items() for word in pair]
        return bool(self._functions.run("report_replica", job, token, REPORT_TTL_MS, *flat))

    def lead(self, job: str, token: str) -> int | None:
        """Return the number of the replica that leads its group. The first caller becomes the leader.

        Return None if the lease has another token.
        """
        service, number = parse_job_id(job)
        found = int(self._functions.run("lead_replica", job, token, service, number))
        return None if found < 0 else found

    def note_tunnel(self, worker: str, at: TunnelEnd) -> None:
        """Record the coordinator to which a runner has a tunnel. The last report is valid for _TUNNEL_SECONDS."""
        pipe = self._pipe()
        pipe.hset(keys.tunnel(worker), mapping={"url": at.url, "key": at.key, "host": at.host})
        pipe.expire(keys.tunnel(worker), _TUNNEL_SECONDS)
        pipe.execute()

    def tunnels(self, workers: Sequence[str]) -> dict[str, TunnelEnd]:
        """Return the coordinators to which runners have tunnels, keyed by runner. Runners without tunnels are
        omitted.
        """
        rows = self._functions.read(*(("HGETALL", keys.tunnel(one)) for one in workers))
        found = {worker: texts(row) for worker, row in zip(workers, rows, strict=True)}
        return {worker: TunnelEnd(**row) for worker, row in found.items() if row.keys() == {"url", "key", "host"}}

    def count_busy(self, coordinator: str, counts: Mapping[str, int]) -> None:
        """Record the number of requests that a coordinator is forwarding, for each replica's job."""
        pipe = self._pipe()
        for job, count in counts.items():
            pipe.hset(keys.replica_busy(job), coordinator, count)
            pipe.expire(keys.replica_busy(job), _BUSY_SECONDS)
        pipe.execute()

    def ask(self, coordinator: str, requests: Mapping[str, int], new: Collection[str]) -> int:
        """Record the number of a coordinator's requests for each service. Return the number of services that exist.

        A service in `new` has new requests, which wake it if it was scaled to zero.
        """
        flat = [word for one, count in requests.items() for word in (one, count, int(one in new))]
        return int(self._functions.run("ask_services", coordinator, _BUSY_SECONDS, *flat)) if flat else 0

    def count(self, coordinator: str, number: int, counts: Mapping[tuple[str, str, str], Asked]) -> bool:
        """Add requests and tokens to the usage of tenants and to statistics. Return False for a batch that was counted
        before.

        The keys of `counts` are (tenant, model, service ID). A coordinator numbers its batches.
        """
        flat = [
            word
            for (tenant, model, service), asked in counts.items()
            for word in (
                tenant,
                model,
                asked.requests,
                asked.prompt,
                asked.answer,
                service,
                json.dumps(asked.figures),
            )
        ]
        return bool(self._functions.run("count_inference", coordinator, number, *flat))

    # -- reads ------------------------------------------------------------------------------------------------------

    def all(self) -> list[Service]:
        """Return the services of all tenants, including services that are being deleted."""
        [ids] = self._functions.read(("SMEMBERS", keys.SERVICES))
        return self.by_ids([one.decode(errors="replace") for one in ids])

    def of_tenant(self, tenant: str) -> list[Service]:
        """Return a tenant's services, sorted by name."""
        [ids] = self._functions.read(("HVALS", keys.services_of(tenant)))
        found = self.by_ids([one.decode(errors="replace") for one in ids])
        return sorted(found, key=lambda one: one.name)

    def one(self, tenant: str, name: str) -> Service | None:
        """Return a service by its name, or None if it does not exist."""
        [known] = self._functions.read(("HGET", keys.services_of(tenant), name))
        return next(iter(self.by_ids([known.decode(errors="replace")])), None) if known else None

    def by_ids(self, ids: Sequence[str]) -> list[Service]:
        """Return services by ID, in order. Services that do not exist or are unreadable are omitted.

        Services that are being deleted are included.
        """
        commands = [
            each for one in ids for each in (("HGETALL", keys.service(one)), ("HVALS", keys.service_asked(one)))
        ]
        replies = self._replies(*commands)
        rows = zip(ids, zip(replies[::2], replies[1::2], strict=True), strict=True)
        found = ((one, (texts(row), _count(asked))) for one, (row, asked) in rows if row)
        return unreadable_entries.readable("service", found, lambda one, stored: _service(one, *stored))

    def replicas(self, ids: Sequence[str]) -> dict[str, list[Replica]]:
        """Return the replicas of services, with their jobs' states and their runners' reports."""
        rows = self._replies(*(("HGETALL", keys.service_replicas(one)) for one in ids))
        found = {one: _replicas(one, texts(row or ())) for one, row in zip(ids, rows, strict=True)}
        jobs = [replica.job_id for several in found.values() for replica in several]
        seen = self._seen(jobs)
        return {
            one: sorted(
                (with_job_state(replica, *seen[replica.job_id]) for replica in several), key=lambda each: each.number
            )
            for one, several in found.items()
        }

    def recent_usage(self, services: Sequence[Service], now: int) -> dict[str, RecentUsage]:
        """Return the statistics of the last minute, keyed by service ID. `now` is Redis time in milliseconds."""
        rows = self._replies(*(("HGETALL", keys.service_figures(one.service_id)) for one in services))
        return {
            one.service_id: _recent_usage(one, texts(row or ()), now) for one, row in zip(services, rows, strict=True)
        }

    def _replies(self, *commands: Sequence[str]) -> list[Any]:
        """Execute read commands atomically and return their replies. The reply is None if a key has the wrong type."""
        return unreadable_entries.replies_at_once(self._functions, *commands) if commands else []

    def _seen(self, jobs: Sequence[str]) -> dict[str, tuple[str | None, Report | None, int]]:
        commands = [
            command
            for job in jobs
            for command in (
                ("HGET", keys.job(job), "state"),
                ("HGETALL", keys.replica(job)),
                ("HVALS", keys.replica_busy(job)),
            )
        ]
        replies = self._replies(*commands)
        return {
            job: (_text(state), _readable_report(job, texts(report or ())), _count(busy))
            for job, state, report, busy in zip(jobs, replies[::3], replies[1::3], replies[2::3], strict=True)
        }


def with_job_state(replica: Replica, state: str | None, report: Report | None, busy: int) -> Replica:
    """Return a copy of a replica with the state of its job and other current facts."""
    return replace(replica, job_state=state, report=report, busy=busy)


def _recent_usage(service: Service, known: Mapping[str, str], now: int) -> RecentUsage:
    first, counts = now // SLOT_MS - SLOTS, Counter[str]()
    for name, count in known.items():
        slot, _, what = name.partition("|")
        if what and slot.isdigit() and int(slot) >= first and count.isdigit():
            counts[what] += int(count)
    covered = min(now - first * SLOT_MS, max(1000, now - service.created))
    return RecentUsage(seconds=covered / 1000, counts=counts)


def _text(value: bytes | None) -> str | None:
    return value.decode(errors="replace") if value else None


def _service(service_id: str, known: Mapping[str, str], demand: int) -> Service:
    leads = number(known.get(f"leads:{known.get('generation', '')}", ""))
    return record(Service, known, service_id=service_id, demand=demand, leads=leads)


def _replicas(service_id: str, stored: Mapping[str, str]) -> list[Replica]:
    """Return the replicas of a service that are readable."""
    rows = stored.items()
    return unreadable_entries.readable("service", rows, lambda name, text: _replica(service_id, name, text))


def _replica(service_id: str, name: str, text: str) -> Replica:
    generation, since, stopping = (int(word) for word in text.split("|"))
    return Replica(
        number=int(name),
        job_id=job_id(service_id, int(name)),
        generation=generation,
        since=since,
        stopping=stopping,
    )


def _count(counts: Sequence[bytes] | None) -> int:
    return sum(int(count) for count in counts or () if count.isdigit())


def _readable_report(job: str, known: Mapping[str, str]) -> Report | None:
    """Return the report of a replica, or None if it is missing or unreadable."""
    return next(iter(unreadable_entries.readable("service", [(job, known)], lambda _, row: _report(row))), None)


def _report(known: Mapping[str, str]) -> Report | None:
    if not known.get("state"):
        return None
    memory_bytes = number(known["memory_bytes"]) if "memory_bytes" in known else None
    devices = tuple(filter(None, known["devices"].split(";"))) if "devices" in known else None
    return record(Report, known, memory_bytes=memory_bytes, devices=devices)

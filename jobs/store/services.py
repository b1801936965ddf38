"""Services of tenants: what is wanted, the replicas that there are, and where each says that it answers.

The leader begins and ends replicas. Each step is one function that takes effect once: a replica has a number that no
other ever has, and its job is named after it, so that a leader that dies between two is followed by one that goes on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys
from jobs.store.server.functions import Part
from jobs.store.server.records import number, record, texts

#: Services of a tenant at most.
MAX_SERVICES = 100
#: Milliseconds for which a report of a replica counts. Runners repeat theirs every five seconds.
REPORT_TTL_MS = 60_000
_JOB = re.compile(r"v-([0-9a-f]+)-([1-9][0-9]{0,15})")
#: Seconds for which a coordinator's word counts that it has a tunnel; it repeats that every five.
_TUNNEL_SECONDS = 15
#: Seconds for which a coordinator's count of requests counts.
_BUSY_SECONDS = 10
#: Milliseconds of a slot of figures, and slots before this moment's that still count; count_inference.lua has both.
SLOT_MS, SLOTS = 10_000, 6


@dataclass(frozen=True, kw_only=True)
class TunnelEnd:
    """Coordinator to which a runner has a tunnel, as others reach it."""

    url: str
    #: What it lets in those by who come from other coordinators.
    key: str = field(repr=False)
    #: Name of its host.
    host: str


@dataclass(frozen=True, kw_only=True)
class Service:
    """Service as it is stored. Times are milliseconds since 1970 of Redis' clock."""

    service_id: str
    tenant: str
    name: str
    engine: str
    #: Id of the token with which it was made.
    token: str = ""
    #: The body of the submission of a replica, JSON.
    job: str = "{}"
    #: What its maker asked for, JSON.
    asked: str = "{}"
    #: Id of the artifact that its replicas have; empty: none.
    artifact: str = ""
    replicas: int = 1
    stopped: bool = False
    deleted: bool = False
    #: Counts restarts: replicas of an earlier one are replaced.
    generation: int = 1
    created: int = 0
    #: Number of the next replica.
    next: int = 1
    #: Deaths in a row, the time before which no replica begins, and why the last one died.
    failures: int = 0
    retry_at: int = 0
    said: str = ""
    #: Job of the replica that died last, which is kept for its log; empty: none.
    died: str = ""
    #: When it was asked last, and when all its replicas were needed last.
    asked_at: int = 0
    needed_at: int = 0
    #: Requests that coordinators have for it now, those that wait included.
    demand: int = 0
    #: Number of the replica that leads those of this generation; 0: none asked.
    leads: int = 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """Words of a runner about the replica that it runs."""

    #: starting, ready, unhealthy or stopping.
    state: str
    why: str
    #: Since when it is in this state, in milliseconds of Redis' clock.
    since: int
    address: str
    port: int
    key: str = field(repr=False)
    worker: str
    #: Name of the runner's host.
    host: str
    #: Memory of its processes, and what it computes on; None: its runner does not say.
    memory_bytes: int | None = None
    devices: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Replica:
    """Replica of a service."""

    number: int
    job_id: str
    generation: int
    #: When it was begun, and when it was taken out of the route; 0: it is in it.
    since: int
    stopping: int = 0
    #: State of its job; None: the job is not there.
    job_state: str | None = None
    report: Report | None = None
    #: Requests that coordinators have passed on to it and that have not ended.
    busy: int = 0


@dataclass(kw_only=True)
class Asked:
    """Requests to a model, and tokens of their prompts and answers."""

    requests: int = 0
    prompt: int = 0
    answer: int = 0
    #: What they add to the figures of the last minute, by name.
    figures: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Lately:
    """Figures of a service over its last minute, of all coordinators."""

    #: Time that they are of, 60 to 70 s; less while the service is younger.
    seconds: float
    counts: Mapping[str, int]


def begun(service: Service, number: int, now: int) -> Replica:
    """Return a replica that was begun now, in milliseconds of Redis' clock."""
    return Replica(number=number, job_id=job_id(service.service_id, number), generation=service.generation, since=now)


def job_id(service_id: str, number: int) -> str:
    """Return the id of the job of a replica."""
    return f"v-{service_id}-{number}"


def parts_of(job: str) -> tuple[str, int]:
    """Return the service and the number of a replica, by its job; of any other job, none and 0."""
    found = _JOB.fullmatch(job)
    return (found[1], int(found[2])) if found else ("", 0)


class Services(Part):
    """Stores services and their replicas."""

    def add(self, service: Service, actor: Actor = ANONYMOUS) -> tuple[str, str]:
        """Store a service.

        (new, id); else (exists, name), (full, most), (missing, tenant) or (artifact, id), and nothing is stored.
        """
        names = ("tenant", "name", "engine", "token", "job", "asked", "artifact", "replicas")
        fields = {name: getattr(service, name) for name in names} | {"stopped": 0}
        flat = [word for pair in fields.items() for word in pair]
        how, what = self._functions.kept_words("add_service", service.service_id, MAX_SERVICES, *actor, *flat)
        return how, what

    def scale(self, tenant: str, name: str, replicas: int, actor: Actor = ANONYMOUS) -> bool:
        """Want this many replicas; False when there is no such service."""
        return bool(self._functions.kept("change_service", tenant, name, "scale", replicas, *actor))

    def restart(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Replace all replicas; False when there is no such service."""
        return bool(self._functions.kept("change_service", tenant, name, "restart", "", *actor))

    def stop(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Want no replicas until it is scaled or restarted; False when there is no such service."""
        return bool(self._functions.kept("change_service", tenant, name, "stop", "", *actor))

    def delete(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> bool:
        """Free the name, and have the replicas ended; False when there is no such service. Works in a full Redis."""
        return bool(self._functions.kept("change_service", tenant, name, "delete", "", *actor))

    def note_shown(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> None:
        """Write into the audit log that what lets one into a service was shown."""
        self._functions.kept("log_shown", "show service access", f"{tenant}/{name}", *actor)

    # -- steps of the leader ----------------------------------------------------------------------------------------

    def place(self, service_id: str, number: int, generation: int) -> bool:
        """Note a replica whose job is submitted next; False when it is not the next number, or the service stops."""
        return bool(self._functions.run("place_replica", service_id, number, generation))

    def retire(self, service_id: str, number: int) -> bool:
        """Take a replica out of the route; False when it is gone."""
        return bool(self._functions.run("retire_replica", service_id, number))

    def end(
        self, service_id: str, replica: Replica, failures: int | None = None, retry_at: int = 0, said: str = ""
    ) -> bool:
        """Forget a replica whose job has ended; `failures`: it has died, and none begins before `retry_at`."""
        counted = "" if failures is None else failures
        return bool(
            self._functions.run("end_replica", service_id, replica.number, replica.job_id, counted, retry_at, said)
        )

    def note(self, service_id: str, *, failures: int, said: str) -> bool:
        """Note deaths in a row and what people should know; False when there is no such service."""
        return bool(self._functions.run("note_service", service_id, "failures", failures, "said", said))

    def route(self, service_id: str, asked: str) -> bool:
        """Replace what was asked for by what has requests come to it; False when there is no such service."""
        return bool(self._functions.run("note_service", service_id, "asked", asked))

    def rescale(self, service_id: str, before: int, replicas: int, needed_at: int) -> bool:
        """Want this many replicas by load, which were all needed then; False when it was scaled meanwhile."""
        return bool(self._functions.run("rescale_service", service_id, before, replicas, needed_at))

    def forget(self, service_id: str) -> bool:
        """Remove a deleted service that has no replicas any more."""
        return bool(self._functions.run("forget_service", service_id))

    def failure(self, job: str) -> str:
        """Return why the program of a replica failed, as its runner said it; empty where it said nothing."""
        row, error = self._functions.read(("HGET", keys.job_failures(job), "0"), ("HGET", keys.job(job), "error"))
        try:
            return str(json.loads(row)["error"]) if row else _text(error) or ""
        except (ValueError, KeyError, TypeError):
            return _text(error) or ""

    def leaving(self, workers: Sequence[str]) -> frozenset[str]:
        """Return those of the workers that are to take no new work."""
        rows = self._functions.read(*(("HGET", keys.worker(one), "drain") for one in workers))
        return frozenset(one for one, drains in zip(workers, rows, strict=True) if drains == b"1")

    def gone(self, workers: Sequence[str], now: int) -> frozenset[str]:
        """Return those of the workers whose heartbeats do not come any more. `now`: milliseconds of Redis' clock."""
        rows = self._functions.read(*(("ZSCORE", keys.WORKERS, one) for one in workers))
        return frozenset(one for one, until in zip(workers, rows, strict=True) if until is None or float(until) < now)

    # -- what runners and coordinators report -----------------------------------------------------------------------

    def report(self, job: str, token: str, fields: Mapping[str, str | int]) -> bool:
        """Keep what the holder of a lease says of the replica that it runs; False when the lease is another's."""
        flat = [word for pair in fields.items() for word in pair]
        return bool(self._functions.run("report_replica", job, token, REPORT_TTL_MS, *flat))

    def lead(self, job: str, token: str) -> int | None:
        """Return the number of the replica that leads its fellows; whoever asks first does. None: no lease of it."""
        service, number = parts_of(job)
        found = int(self._functions.run("lead_replica", job, token, service, number))
        return None if found < 0 else found

    def note_tunnel(self, worker: str, at: TunnelEnd) -> None:
        """Keep for some seconds to which coordinator a runner has a tunnel; the last one that says so counts."""
        pipe = self._pipe()
        pipe.hset(keys.tunnel(worker), mapping={"url": at.url, "key": at.key, "host": at.host})
        pipe.expire(keys.tunnel(worker), _TUNNEL_SECONDS)
        pipe.execute()

    def tunnels(self, workers: Sequence[str]) -> dict[str, TunnelEnd]:
        """Return the coordinators to which these runners have tunnels, as far as one said so lately."""
        rows = self._functions.read(*(("HGETALL", keys.tunnel(one)) for one in workers))
        found = {worker: texts(row) for worker, row in zip(workers, rows, strict=True)}
        return {worker: TunnelEnd(**row) for worker, row in found.items() if row.keys() == {"url", "key", "host"}}

    def count_busy(self, coordinator: str, counts: Mapping[str, int]) -> None:
        """Keep how many requests this coordinator has passed on, by job of the replica."""
        pipe = self._pipe()
        for job, count in counts.items():
            pipe.hset(keys.replica_busy(job), coordinator, count)
            pipe.expire(keys.replica_busy(job), _BUSY_SECONDS)
        pipe.execute()

    def ask(self, coordinator: str, requests: Mapping[str, int], new: Collection[str]) -> int:
        """Keep how many requests this coordinator has, by service; return how many services there are of them.

        Those with `new` requests wake where they sleep.
        """
        flat = [word for one, count in requests.items() for word in (one, count, int(one in new))]
        return int(self._functions.run("ask_services", coordinator, _BUSY_SECONDS, *flat)) if flat else 0

    def count(self, coordinator: str, number: int, counts: Mapping[tuple[str, str, str], Asked]) -> bool:
        """Add requests and tokens, by tenant, model and id of the service, to what tenants used and to the figures.

        False when this batch was added before: a coordinator gives each of its batches a number of its own.
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
        """Return the services of every tenant, those that are being deleted, too."""
        [ids] = self._functions.read(("SMEMBERS", keys.SERVICES))
        return self.by_ids([one.decode(errors="replace") for one in ids])

    def of_tenant(self, tenant: str) -> list[Service]:
        """Return a tenant's services by name."""
        [ids] = self._functions.read(("HVALS", keys.services_of(tenant)))
        found = self.by_ids([one.decode(errors="replace") for one in ids])
        return sorted(found, key=lambda one: one.name)

    def one(self, tenant: str, name: str) -> Service | None:
        """Return a service; None when there is none."""
        [known] = self._functions.read(("HGET", keys.services_of(tenant), name))
        return next(iter(self.by_ids([known.decode(errors="replace")])), None) if known else None

    def by_ids(self, ids: Sequence[str]) -> list[Service]:
        """Return those of the services that there are, in this order, those that are being deleted, too."""
        commands = [
            each for one in ids for each in (("HGETALL", keys.service(one)), ("HVALS", keys.service_asked(one)))
        ]
        replies = self._functions.read(*commands)
        return [
            _service(one, texts(row), sum(map(int, asked)))
            for one, row, asked in zip(ids, replies[::2], replies[1::2], strict=True)
            if row
        ]

    def replicas(self, ids: Sequence[str]) -> dict[str, list[Replica]]:
        """Return the replicas of services by the service's id, in their order, each with its job's state and report."""
        rows = self._functions.read(*(("HGETALL", keys.service_replicas(one)) for one in ids))
        found = {one: [_replica(one, *pair) for pair in texts(row).items()] for one, row in zip(ids, rows, strict=True)}
        jobs = [replica.job_id for several in found.values() for replica in several]
        seen = self._seen(jobs)
        return {
            one: sorted((seen_as(replica, *seen[replica.job_id]) for replica in several), key=lambda each: each.number)
            for one, several in found.items()
        }

    def lately(self, services: Sequence[Service], now: int) -> dict[str, Lately]:
        """Return the figures of services by their ids. `now`: milliseconds of Redis' clock."""
        rows = self._functions.read(*(("HGETALL", keys.service_figures(one.service_id)) for one in services))
        return {one.service_id: _lately(one, texts(row), now) for one, row in zip(services, rows, strict=True)}

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
        replies = self._functions.read(*commands)
        return {
            job: (_text(state), _report(texts(report)), sum(map(int, busy)))
            for job, state, report, busy in zip(jobs, replies[::3], replies[1::3], replies[2::3], strict=True)
        }


def seen_as(replica: Replica, state: str | None, report: Report | None, busy: int) -> Replica:
    """Return a replica with what is known of its job."""
    return replace(replica, job_state=state, report=report, busy=busy)


def _lately(service: Service, known: Mapping[str, str], now: int) -> Lately:
    first, counts = now // SLOT_MS - SLOTS, Counter[str]()
    for name, count in known.items():
        slot, _, what = name.partition("|")
        if what and slot.isdigit() and int(slot) >= first and count.isdigit():
            counts[what] += int(count)
    covered = min(now - first * SLOT_MS, max(1000, now - service.created))
    return Lately(seconds=covered / 1000, counts=counts)


def _text(value: bytes | None) -> str | None:
    return value.decode(errors="replace") if value else None


def _service(service_id: str, known: Mapping[str, str], demand: int) -> Service:
    leads = number(known.get(f"leads:{known.get('generation', '')}", ""))
    return record(Service, known, service_id=service_id, demand=demand, leads=leads)


def _replica(service_id: str, name: str, text: str) -> Replica:
    generation, since, stopping = (int(word) for word in text.split("|"))
    return Replica(
        number=int(name),
        job_id=job_id(service_id, int(name)),
        generation=generation,
        since=since,
        stopping=stopping,
    )


def _report(known: Mapping[str, str]) -> Report | None:
    if not known.get("state"):
        return None
    memory_bytes = number(known["memory_bytes"]) if "memory_bytes" in known else None
    devices = tuple(filter(None, known["devices"].split(";"))) if "devices" in known else None
    return record(Report, known, memory_bytes=memory_bytes, devices=devices)

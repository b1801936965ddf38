"""The lease protocol on a real Redis with a test clock, and the tests' own knowledge of the work."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from jobs import queues
from jobs.hosts import labels
from jobs.models import DEFAULT_TENANT, Device, Plan, Priority
from jobs.partial_reader import GatheredPartials
from jobs.store import Store, keys
from jobs.store.fleet import AGE_SECONDS, RESERVE_SECONDS, SweepCounts
from jobs.store.server import connection
from jobs.store.server.functions import PROGRAM_TTL_MS, Limits
from jobs.store.work import wakeups
from jobs.store.work.jobs import CapReached, NewJob
from jobs.store.work.leases import Finished, Grant, Merge
from jobs.store.work.slots import Held, Taken

Range: TypeAlias = tuple[int, int]

CLOCK = "local function now() return tonumber(redis.call('GET', 'test:clock')) end"
# This also works in a full Redis.
MOVE = "redis.call('DEL', 'spare') return redis.call('INCRBY', 'test:clock', ARGV[1])"
START = 1_700_000_000_000
DAY_MS = 86_400_000
#: Duration in milliseconds that exceeds every lease, slot, worker and backoff.
LONG = 100_000

# Returns the whole database in one reply; streams contain only entries newer than ARGV[1].
DUMP = """
local out = {}
for _, k in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', k).ok
  local value = ''
  if k == 'rq:job:wakeup' then value = 'wakeup'
  elseif kind == 'hash' then value = redis.call('HGETALL', k)
  elseif kind == 'zset' then value = redis.call('ZRANGE', k, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then value = redis.call('LRANGE', k, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', k)
  elseif kind == 'stream' then value = redis.call('XRANGE', k, '(' .. ARGV[1], '+')
  else value = redis.call('GET', k) end
  out[k] = value
end
return cjson.encode(out)
"""


def total_of(lo: int, hi: int) -> dict[str, int]:
    """Return the exact partial of units lo..hi-1 for any size."""
    return {"sum": (lo + hi - 1) * (hi - lo) // 2, "count": hi - lo}


def merge(partials: Iterable[dict[str, int]]) -> dict[str, int]:
    merged: Counter[str] = Counter({"sum": 0, "count": 0})
    for partial in partials:
        merged.update(partial)
    return dict(merged)


def encode(partial: dict[str, int]) -> bytes:
    return json.dumps(partial).encode()


def _pairs(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _unordered(value: Any) -> Any:
    """Return a hash independent of its order, which can differ between reads while Redis resizes its table."""
    return sorted(map(str, value)) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as described by its keys."""

    job_id: str
    fields: dict[str, str]
    #: Range of each token, and expiry of each token.
    leases: dict[str, Range]
    expiries: dict[str, int]
    free: list[Range]
    retry: dict[Range, int]
    dead: list[Range]
    parts: list[dict[str, int]]
    accumulator: dict[str, int] | None
    result: dict[str, int] | None
    #: Time before which leases of programs are not reclaimed; 0: they are reclaimed when they expire.
    spared: int = 0

    def number(self, name: str) -> int:
        return int(self.fields.get(name, 0))

    @property
    def state(self) -> str:
        return self.fields["state"]

    @property
    def queue(self) -> str:
        return self.fields["queue"]

    @property
    def tenant(self) -> str:
        return self.fields.get("tenant", DEFAULT_TENANT)

    @property
    def total(self) -> int:
        return self.number("total")

    @property
    def parents(self) -> dict[str, str]:
        """Return the jobs on which it depends, and the required outcome of each: ok or any."""
        named = {
            need: json.loads(self.fields.get(name, "[]")) for name, need in (("after_any", "any"), ("after", "ok"))
        }
        return {parent: need for need, those in named.items() for parent in those}

    def pieces(self) -> list[Range]:
        """Return the uncommitted ranges below the cursor."""
        return [*self.leases.values(), *self.free, *self.retry, *self.dead]

    def due(self, now: int) -> float:
        retries = [] if self.saturated(now) else self.retry.values()
        expiries = [max(at, self.spared) if at <= now else at for at in self.expiries.values()]
        return min([*expiries, *retries], default=float("inf"))

    def running(self, now: int) -> int:
        """Return the lanes that compute the job."""
        return sum(expiry > now for expiry in self.expiries.values())

    def saturated(self, now: int) -> bool:
        return 0 < self.number("max_running") <= (len(self.leases) if self.spared else self.running(now))

    @property
    def is_program(self) -> bool:
        return self.queue.startswith("runner.")

    def leasable(self, now: int) -> bool:
        left = self.number("cursor") < self.total or bool(self.free) or self.due(now) <= now
        return left and not self.saturated(now)


def _range(text: str) -> Range:
    lo, hi = text.split(":")[:2]
    return int(lo), int(hi)


class Snapshot:
    """A snapshot of all keys in Redis."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self.keys = keys
        self._zsets: dict[str, dict[str, int]] = {}
        self.now = int(keys["test:clock"])
        self.jobs = {job: self._job(job) for job in self.zset("ct:jobs")}
        self.slots: dict[str, tuple[str, int]] = {}
        for worker, text in self.hash("ct:slotjob").items():
            job, _, lanes = text.rpartition("|")
            self.slots[worker] = (job, int(lanes))

    def hash(self, key: str) -> dict[str, str]:
        return _pairs(list(self.keys[key])) if key in self.keys else {}

    def zset(self, key: str) -> dict[str, int]:
        """Return members and scores. Each key is parsed once, because some invariants read it for every job."""
        if key not in self.keys:  # most of them: a queue or a tenant without jobs has none
            return {}
        if key not in self._zsets:
            pairs = _pairs(list(self.keys[key]))
            self._zsets[key] = {member: int(float(score)) for member, score in pairs.items()}
        return self._zsets[key]

    def members(self, key: str) -> list[str]:
        return list(self.keys.get(key, ()))

    def json(self, key: str) -> Any:
        return json.loads(self.keys[key]) if key in self.keys else None

    def stream(self, key: str) -> list[tuple[str, dict[str, str]]]:
        return [(entry, _pairs(flat)) for entry, flat in self.keys.get(key, ())]

    def pending(self, queue: str) -> list[str]:
        return list(self.zset(f"ct:pending:{queue}"))

    @cached_property
    def _waiting(self) -> dict[str, str]:
        return {job: queue for queue in queues.ALL for job in self.pending(queue)}

    def waiting(self) -> dict[str, str]:
        """Return every pending job and its queue."""
        return self._waiting

    # -- graphs -----------------------------------------------------------------------------------------------------

    def is_bad(self, job: str) -> bool:
        """Return True for a job that will not be done unless it is retried."""
        return job not in self.jobs or self.jobs[job].state in ("failed", "cancelled")

    def verdict(self, parent: str, need: str) -> str:
        """Return met, waits or skip: the effect of a parent on a job with this requirement."""
        view = self.jobs.get(parent)
        ended = view is None or view.state in ("done", "failed", "cancelled", "skipped")
        if ended and (need == "any" or (view and view.state == "done")):
            return "met"
        if view and view.state == "skipped":
            return "skip" if self.is_bad(view.fields["root"]) else "waits"
        return "skip" if self.is_bad(parent) else "waits"

    # -- tenants ----------------------------------------------------------------------------------------------------

    def tenants(self) -> list[str]:
        return list(self.zset("ct:tenants"))

    def cap(self, tenant: str, name: str) -> int:
        """Return a tenant's max_lanes or max_jobs; 0 for none."""
        _, lanes, jobs = map(int, self.hash("ct:shares").get(tenant, "1|0|0").split("|"))
        return {"max_lanes": lanes, "max_jobs": jobs}[name]

    def left_today(self, tenant: str, kind: str = "sum") -> float:
        """Return how many units of a kind a tenant may still compute today."""
        caps = dict(item.split("=") for item in self.hash("ct:shares").get(f"{tenant}|caps", "").split(",") if item)
        used = self.hash(f"ct:usage:{tenant}").get(f"{self.now // DAY_MS}|units|{kind}", 0)
        most = caps.get(f"units|{kind}")
        return float("inf") if most is None else int(most) - int(used)

    def deferred(self) -> dict[str, str]:
        """Return every job that waits for the next day, with its tenant:kind."""
        names = [key.removeprefix("ct:deferred:") for key in self.keys if key.startswith("ct:deferred:")]
        return {job: name for name in names for job in self.zset(f"ct:deferred:{name}")}

    def size(self, job: str) -> int:
        """Return the stored bytes of a job as counted for the cap."""
        fields = self.jobs[job].fields
        return sum(len(fields.get(name, "")) for name in ("spec", "parameters", "notes", "after", "after_any")) + len(
            self.keys.get(keys.job_result(job), "")
        )

    def lanes_in_use(self, tenant: str) -> int:
        return sum(view.running(self.now) for view in self.jobs.values() if view.tenant == tenant)

    def is_capped(self, tenant: str) -> bool:
        """Return True if all permitted lanes are busy."""
        return bool(self.tenants()) and 0 < self.cap(tenant, "max_lanes") <= self.lanes_in_use(tenant)

    def eligible(self, queue: str) -> list[str]:
        """Pending jobs of a queue whose tenants may use another lane, and the GPU where that may take them.

        None of tenants that require labels: those ring no bells that stay.
        """
        capped = (
            set(self.members("ct:capped"))
            | labels.parse_required_labels(self.hash("ct:shares").get("|requires", "")).keys()
        )
        if not queue.startswith(("cpu.", "runner.")):
            capped |= {name.removeprefix("gpu:") for name in capped}
        return [job for job in self.pending(queue) if self.jobs[job].tenant not in capped]

    @cached_property
    def _unsupported(self) -> dict[str, str]:
        names = [key.removeprefix("ct:unsupported:") for key in self.keys if key.startswith("ct:unsupported:")]
        return {job: name for name in names for job in self.zset(f"ct:unsupported:{name}")}

    def unsupported(self) -> dict[str, str]:
        """Return every job that waits for a worker that supports it, with its queue:kind|version."""
        return self._unsupported

    def held(self, job: str) -> list[str]:
        return [worker for worker, (held, _) in self.slots.items() if held == job]

    def settled(self) -> dict[str, Any]:
        """Return the keys that a call without effect must leave as they are: all but the counter of stale calls."""
        return {key: _unordered(value) for key, value in self.keys.items() if key != "ct:outcomes"}

    def _spared(self) -> int:
        """As SWEEP and whoever reads its place find it."""
        grace = {name: int(value) for name, value in self.hash(keys.GRACE).items()}
        late = "swept" in grace and self.now - grace["swept"] > 3000
        until = self.now + PROGRAM_TTL_MS if late else grace.get("until", 0)
        return min(until, self.now + PROGRAM_TTL_MS) if until > self.now else 0

    def _job(self, job: str) -> JobView:
        lease = self.hash(keys.job_lease(job))
        return JobView(
            spared=self._spared() if self.hash(keys.job(job))["queue"].startswith("runner.") else 0,
            job_id=job,
            fields=self.hash(keys.job(job)),
            leases={token: _range(text) for token, text in lease.items()},
            expiries=self.zset(keys.job_leases(job)),
            free=[_range(text) for text in self.members(keys.job_free(job))],
            retry={_range(text): at for text, at in self.zset(keys.job_retry(job)).items()},
            dead=[_range(text) for text in self.members(keys.job_dead(job))],
            parts=[json.loads(text) for text in self.members(keys.job_parts(job))],
            accumulator=self.json(keys.job_accumulator(job)),
            result=self.json(keys.job_result(job)),
        )


@dataclass
class History:
    """Facts that the tests know about a job without querying Redis."""

    new: NewJob
    committed: list[Range] = field(default_factory=list)
    #: Facts from the job's events.
    states: list[str] = field(default_factory=list)
    done: int = 0
    started: bool = False
    #: For programs: number of failures of each unit since the last retry.
    failed: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Backup:
    """Copy of Redis' disk: every key with its remaining time, and the tests' knowledge at that time."""

    keys: dict[bytes, tuple[int, bytes]]
    known: dict[str, Any]


class Worker:
    """A process that calls the functions, or has stopped calling them."""

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.listened = queues.for_worker(device)
        self.job = ""
        self.born = 1


class Bench:
    """The functions, with a record of accepted units."""

    def __init__(self, url: str, *, limit: int = 1) -> None:
        self.client = connection.connect(url, retries=0, timeout=30)
        self.client.flushall()
        self.store = Store(self.client, clock=CLOCK, limits=Limits(limit, limit, 3))
        wakeups.create_wakeup_job(self.store)
        self._dump = self.client.register_script(DUMP)
        self.jobs: dict[str, History] = {}
        #: Job and range of every lease ever granted, keyed by token.
        self.granted: dict[str, tuple[str, Range]] = {}
        #: Wakeups that were taken and not replaced yet, and wakeups for helpers.
        self.lost: Counter[str] = Counter()
        self.extra: Counter[str] = Counter()
        self.last_event = "0-0"
        self._tokens = self._submitted = self.stepped_back = 0
        self.client.set("test:clock", START)

    def look(self) -> Snapshot:
        return Snapshot(json.loads(self._dump(args=[self.last_event])))

    def job(self, job: str) -> JobView:
        return self.look().jobs[job]

    def advance(self, ms: int) -> None:
        """Advance the clock; negative values step it back."""
        self.client.eval(MOVE, 0, ms)
        self.stepped_back += max(0, -ms)

    def new_token(self) -> str:
        """Return a reproducible token, because leases that expire together are reclaimed in the order of tokens."""
        self._tokens += 1
        return f"t{self._tokens:05}"

    def new_id(self) -> str:
        """Return a new job ID, which is unique even if Redis forgot the first one."""
        self._submitted += 1
        return f"j{self._submitted - 1}"

    # -- a Redis that loses its last writes -------------------------------------------------------------------------

    #: What the tests know of the work, which a job that Redis forgot must not be in. Tokens stay: lanes remember.
    _KNOWN = ("jobs", "lost", "extra", "last_event")

    def back_up(self) -> Backup:
        names = [name for name in self.client.keys("*") if name != b"test:clock"]
        pipe = self.client.pipeline()
        for name in names:
            pipe.pttl(name).dump(name)
        flat = pipe.execute()
        keys = {name: (max(ttl, 0), text) for name, ttl, text in zip(names, flat[::2], flat[1::2], strict=True)}
        return Backup(keys=keys, known={name: copy.deepcopy(getattr(self, name)) for name in self._KNOWN})

    def come_back(self, backup: Backup) -> None:
        """Restart Redis from its disk. Time and callers continue."""
        pipe = self.client.pipeline()
        pipe.delete(*[name for name in self.client.keys("*") if name != b"test:clock"])
        for name, (ttl, text) in backup.keys.items():
            pipe.restore(name, ttl, text)
        pipe.execute()
        for attribute, value in backup.known.items():
            setattr(self, attribute, copy.deepcopy(value))

    # -- submitting -------------------------------------------------------------------------------------------------

    def submit(self, total: int = 10, queue: str = "any.normal", job_id: str = "", **more: Any) -> str:
        """Submit a job and return its ID; see `new_job` for the arguments."""
        new = new_job(job_id or self.new_id(), total, queue, **more)
        [written] = self.store.jobs.submit([new])
        assert not isinstance(written, CapReached), written
        how, job = written
        if how == "new":
            self.jobs[job] = History(new)
        return job

    # -- bells ------------------------------------------------------------------------------------------------------

    def pop(self, listened: Sequence[str]) -> str:
        """Take a wakeup like RQ, and return its queue."""
        names = {f"rq:queue:{queue}": queue for queue in listened}
        popped: Any = self.client.lmpop(len(names), *names, direction="LEFT")
        if not popped:
            return ""
        queue = names[popped[0].decode()]
        self.lost[queue] += 1
        return queue

    # -- work -------------------------------------------------------------------------------------------------------

    def next(self, worker: str, listened: Sequence[str] = queues.ALL, **more: Any) -> Held | Taken | str:
        found = self.store.slots.next(worker, listened, **more)
        if isinstance(found, Taken):
            for job, token in found.jobs:
                self.granted[token] = (job, (0, self.jobs[job].new.plan.total))
        return found

    def hold(self, worker: str, listened: Sequence[str] = queues.ALL, lanes: int = 1, **more: Any) -> str:
        """Return the job that NEXT makes the worker hold; fail for any other answer."""
        found = self.next(worker, listened, lanes=lanes, **more)
        assert isinstance(found, Held), found
        return found.job_id

    def take(self, worker: str) -> Taken:
        """Return the small jobs that NEXT gives the worker; fail for any other answer."""
        found = self.next(worker)
        assert isinstance(found, Taken), found
        return found

    def lease(self, job: str, want: int = 1, worker: str = "w", token: str = "", **more: Any) -> Grant | str:
        answer = self.store.leases.lease(job, token or self.new_token(), want=want, worker=worker, **more)
        if isinstance(answer, Grant):
            self.granted[answer.token] = (job, (answer.lo, answer.hi))
        return answer

    def grant(self, job: str, want: int = 1, **more: Any) -> Grant:
        answer = self.lease(job, want, **more)
        assert isinstance(answer, Grant), answer
        return answer

    def commit(self, token: str, upto: int = 0, worker: str = "w", ms: int = 1, *, keep: bool = False) -> Merge:
        """Commit the units up to `upto`, or all. With `keep`, the lease continues with the others."""
        job, (lo, hi) = self.granted[token]
        upto = upto or hi
        done = self.store.leases.commit(
            job, token, upto, encode(total_of(lo, upto)), ms=ms, worker=worker, device="cpu", keep=keep, lo=lo
        )
        if done.merged:
            self.jobs[job].committed.append((lo, upto))
            if keep and upto < hi:
                self.granted[token] = (job, (upto, hi))
        return done

    def done1(self, token: str) -> bool:
        job, (lo, hi) = self.granted[token]
        finished = Finished(job_id=job, token=token, result=encode(total_of(lo, hi)), ms=1)
        [done] = self.store.leases.done1_all([finished], worker="w", device="cpu")
        if done:
            self.jobs[job].committed.append((lo, hi))
        return done

    def release(self, token: str) -> bool:
        return self.store.leases.release(self.granted[token][0], token)

    def crash(self, token: str) -> bool:
        return self.store.leases.crash(self.granted[token][0], token)

    def fail(self, token: str, error: str = "kernel raised") -> bool:
        return self.store.leases.fail(self.granted[token][0], token, error)

    def fail_unit(self, token: str, *, most: int = 1, wait_ms: int = 1000, row: str = "") -> bool:
        """Fail the first unit of a program's lease."""
        job, (lo, _) = self.granted[token]
        failed = self.store.leases.fail_unit(job, token, "exit 1", most=most, wait_ms=wait_ms, row=row, unit=lo)
        self.jobs[job].failed[lo] += failed
        return failed

    def split(self, token: str, at: int) -> bool:
        job, (lo, hi) = self.granted[token]
        done = self.store.leases.split(job, token, at)
        if done and at < hi:
            self.granted[token] = (job, (lo, at))
        return done

    def beat(self, token: str, upto: int = 0) -> int:
        job, (lo, _) = self.granted[token]
        return self.store.leases.heartbeat(job, token, upto or lo)

    # -- results ----------------------------------------------------------------------------------------------------

    def fold(self, job: str, limit: int = 256) -> bool:
        return self.fold_read(job, self.store.results.gather(job, limit))

    def fold_read(self, job: str, gathered: GatheredPartials) -> bool:
        """Fold the parts that were read, now or long ago."""
        texts = [gathered.accumulator, *gathered.parts]
        folded = merge(json.loads(text) for text in texts if text)
        return self.store.results.fold(job, gathered, encode(folded))

    def finish(self, job: str) -> bool:
        """Fold and store the result, like a worker that was told `finishing`."""
        if self.store.results.gather(job).parts:
            self.fold(job)
        return self.finish_read(job, self.store.results.gather(job))

    def finish_read(self, job: str, gathered: GatheredPartials) -> bool:
        return gathered.accumulator is not None and self.store.results.finish(job, gathered, gathered.accumulator)

    def sweep(self, age_seconds: float = AGE_SECONDS, reserve_seconds: float = RESERVE_SECONDS) -> SweepCounts:
        done = self.store.fleet.sweep(age_seconds, reserve_seconds)
        self.lost.clear()
        self.extra.clear()
        return done

    def wake(self) -> int:
        """Notify dependent jobs like the leader until none is left, and return their number."""
        woken = self.store.fleet.wake()
        count = woken.notified
        while woken.more:
            woken = self.store.fleet.wake()
            count += woken.notified
        return count

    # -- an honest worker -------------------------------------------------------------------------------------------

    def work(self, worker: str = "honest", *, turns: int = 1000, want: int = 2**53) -> None:
        """Compute all waiting work."""
        for _ in range(turns):
            found = self.next(worker)
            if isinstance(found, Held):
                self.serve(found.job_id, worker, want)
            elif isinstance(found, Taken):
                for _, token in found.jobs:
                    self.done1(token)
            else:
                return
        raise AssertionError(f"{worker} has not come to an end after {turns} turns")

    def work_through(self, worker: str = "honest") -> None:
        """Compute all waiting work and the work that depends on it, until no computable work is left."""
        for _ in range(100):
            self.work(worker)
            if not self.wake():
                return
        raise AssertionError("jobs are told of each other without end")

    def serve(self, job: str, worker: str, want: int = 2**53) -> None:
        """Lease the job's ranges until none is left."""
        while isinstance(answer := self.lease(job, want, worker), Grant):
            self.commit(answer.token, worker=worker)
        if answer == "finishing":
            self.finish(job)


def new_job(
    job: str,
    total: int,
    queue: str,
    *,
    grain: int = 1,
    offset: int = 0,
    small: bool = False,
    prefer: bool = False,
    key: str = "",
    digest: str = "",
    max_lease_seconds: float = 30.0,
    ttl_seconds: int = 3600,
    estimate_ms: int = 1000,
    kind: str = "sum",
    version: int = 1,
    max_running: int = 0,
    timeout_ms: int = 0,
    tenant: str = DEFAULT_TENANT,
    hold: bool = False,
    spec: dict[str, Any] | None = None,
    requirements: dict[str, Any] | None = None,
    unit_seconds: float | None = None,
    artifacts: tuple[str, ...] = (),
    notify: str = "",
    after: tuple[str, ...] = (),
    after_any: tuple[str, ...] = (),
) -> NewJob:
    plan = Plan(
        total=total,
        spec=spec or {},
        parameters={},
        grain=grain,
        offset=offset,
        cpu_seconds=1.0,
        max_lease_seconds=max_lease_seconds,
        requirements=requirements or {},
        unit_seconds=unit_seconds,
        artifacts=artifacts,
    )
    return NewJob(
        job_id=job,
        kind=kind,
        version=version,
        plan=plan,
        priority=queue.partition(".")[2] or Priority.NORMAL,
        device="any",
        queue=queue,
        prefer=prefer,
        small=small,
        estimate_ms=estimate_ms,
        ttl_seconds=ttl_seconds,
        idempotency=key,
        digest=digest,
        max_running=max_running,
        timeout_ms=timeout_ms,
        tenant=tenant,
        hold=hold,
        notify=notify,
        after=after,
        after_any=after_any,
    )

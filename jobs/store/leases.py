"""The scripts that own every fact about work, one method each. The contract is `docs/lease-protocol.md`.

Every script is atomic and idempotent and uses the server's clock, so a call may be repeated after a lost reply.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import redis
from redis.exceptions import NoScriptError

from jobs import errors, metrics, queues
from jobs.models import Plan, Spec

#: A redis.Redis; its own annotations are unions over every mode it can run in, which say nothing.
Client: TypeAlias = Any
RedisError = redis.exceptions.RedisError


class Refused(redis.exceptions.ResponseError):
    """Redis takes no writes for now: it cannot save, lacks replicas, or runs a script for too long."""


#: What a call raises while Redis cannot be reached or takes no writes; the call may be repeated.
Unreachable = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.MasterDownError,
    Refused,
)
#: Refusals by how they begin, wherever in an error's text: scripts and pipelines put words of their own before it.
_REFUSALS: dict[str, type[RedisError]] = {
    "OOM command": redis.exceptions.OutOfMemoryError,
    "READONLY You": redis.exceptions.ReadOnlyError,
    "LOADING Redis": redis.exceptions.BusyLoadingError,
    "MASTERDOWN Link": redis.exceptions.MasterDownError,
    "MISCONF ": Refused,
    "NOREPLICAS Not": Refused,
    "BUSY Redis": Refused,
}

PREFIX = "ct:"
LEASE_TTL_MS = 3000
SLOT_TTL_MS = 3000
WORKER_TTL_MS = 5000
LEADER_TTL_MS = 5000
GPU_TTL_MS = 5000
BEAT_SECONDS = 1.0
#: Longest wait for Redis' disk: shorter than the coordinator waits for a reply.
DISK_MS = 2500
#: Small jobs claimed in one script at most, a lane.
TAKE = 32

_FOLDER = Path(__file__).parent / "lua"


def key(job: str, part: str = "") -> str:
    return f"{PREFIX}job:{job}:{part}" if part else f"{PREFIX}job:{job}"


def new_token() -> str:
    """Random, never a counter: a rollback of Redis' log would issue a counter's value twice."""
    return secrets.token_hex(16)


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """What SUBMIT writes."""

    job_id: str
    kind: str
    version: int
    plan: Plan
    priority: str
    device: str
    queue: str
    #: gpu_preferred: may move to the any queue when no GPU worker lives.
    prefer: bool
    small: bool
    #: Estimated milliseconds of one lane's work.
    estimate_ms: int
    ttl_seconds: int
    #: owner:key, or empty.
    idempotency: str = ""
    #: Of the request's body; the same key with another body is a conflict.
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Held:
    """NEXT: this worker holds the job until it leaves."""

    job_id: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a lane needs to know of a job."""

    job_id: str
    kind: str
    spec: Spec
    queue: str
    total: int
    #: Units/s that a lane of this device probably reaches, from the kind's estimate and what was measured before.
    expected_rate: float
    #: Units/s by the kind's own estimate.
    nominal_rate: float


@dataclass(frozen=True, kw_only=True)
class Taken:
    """NEXT: small jobs, each wholly leased: (job, token) pairs, and what a lane needs to know of each."""

    jobs: tuple[tuple[str, str], ...]
    facts: tuple[Facts, ...]


@dataclass(frozen=True, kw_only=True)
class Grant:
    """LEASE: units lo..hi-1 belong to the token."""

    token: str
    lo: int
    hi: int


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A small job's result, encoded, and the milliseconds it took."""

    job_id: str
    token: str
    result: bytes
    ms: int
    #: As `marks.encode` writes them.
    marks: str = "[]"


@dataclass(frozen=True, kw_only=True)
class Committed:
    #: False: the token was stale; drop the work.
    merged: bool
    #: The last unit of the job is in; derive the result.
    finishing: bool = False
    #: Parts waiting to be folded.
    parts: int = 0


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """A job's accumulator and the parts beside it, read at one moment."""

    accumulator: bytes | None
    parts: tuple[bytes, ...]
    #: Units that they cover.
    done: int
    #: The frozen spec as JSON; None when there is no such job.
    spec: bytes | None

    @property
    def digest(self) -> str:
        """Names accumulator and parts by what they are, as the scripts do."""
        return _sha1("".join(_sha1(text) for text in (self.accumulator or b"", *self.parts)).encode())


def _sha1(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


#: What reading a broken entry raises; anything else is a fault of the program or of the connection.
Unreadable = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, AttributeError)


def wrong_type(error: object) -> bool:
    """True for Redis' answer that a key has another type than the command."""
    return isinstance(error, redis.exceptions.ResponseError) and "WRONGTYPE" in str(error)


def refusal(text: str) -> RedisError | None:
    """What an error's text says, as one of Unreachable, when it is Redis' refusal of any call or of any write."""
    for beginning, kind in _REFUSALS.items():
        place = text.find(beginning)
        if place == 0 or (place > 0 and text[place - 1] in " -"):
            return kind(text[place:])
    return None


def reason(error: Exception) -> str:
    """Of one of Unreachable, for people."""
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        return "redis is full; delete jobs that have ended, or raise its maxmemory"
    if isinstance(error, redis.exceptions.ResponseError):
        return f"redis takes no writes ({str(error)[:100]})"
    return f"redis cannot be reached ({type(error).__name__})"


def _sources(clock: str | None, limits: Mapping[str, int | str]) -> dict[str, str]:
    texts = {path.stem: path.read_text() for path in sorted(_FOLDER.glob("*.lua"))}
    prelude = texts.pop("prelude").replace("@CLOCK@", clock or texts["clock"])
    texts.pop("clock")
    for name, value in limits.items():
        prelude = prelude.replace(f"@{name}@", str(value))
    ending = texts.pop("ending")
    return {name: f"{prelude}\nlocal function script()\n{body}\nend\n{ending}" for name, body in texts.items()}


class Leases:
    """The lease protocol on one Redis.

    `clock` (Lua text defining now()) and the limits of expiries and errors are replaced by tests only.
    """

    def __init__(self, client: Client, *, clock: str | None = None, max_expiries: int = 3, max_errors: int = 3) -> None:
        self.client = client
        bounds = ", ".join(str(bound) for bound in metrics.SECONDS)
        names = ", ".join(f"'{name}'" for name in queues.ALL)
        limits: dict[str, int | str] = {
            "MAX_EXPIRIES": max_expiries, "MAX_ERRORS": max_errors, "BOUNDS": bounds, "QUEUES": names,
            "LEASE_TTL": LEASE_TTL_MS, "SLOT_TTL": SLOT_TTL_MS, "WORKER_TTL": WORKER_TTL_MS,
        }  # fmt: skip
        self._scripts = {name: client.register_script(text) for name, text in _sources(clock, limits).items()}

    def _run(self, name: str, *arguments: Any) -> Any:
        return self._scripts[name](args=list(arguments))

    def _words(self, name: str, *arguments: Any) -> list[str]:
        reply = self._run(name, *arguments)
        return [item.decode() if isinstance(item, bytes) else str(item) for item in reply]

    # -- submitting and steering ------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob]) -> list[tuple[str, str]]:
        """Writes jobs, each atomically with its bell. One (new|same|conflict, job_id) each.

        Where Redis refuses some and not all: (refused, why) for those. Raises Unreachable when it refuses all.
        """
        replies = self._many("submit", [_submit_arguments(job) for job in jobs])
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        for error in failed:
            if len(failed) == len(replies) or not isinstance(error, Unreachable):
                raise error
        return [
            ("refused", reason(reply)) if isinstance(reply, Exception) else (reply[0].decode(), reply[1].decode())
            for reply in replies
        ]

    def require_disk(self) -> None:
        """Refuses as Unavailable a Redis that cannot say what is on its disk; changes nothing."""
        try:
            self.client.waitaof(1, 0, 1)
        except redis.exceptions.ResponseError as error:
            raise errors.Unavailable(self._no_disk(str(error))) from error

    def _no_disk(self, said: str) -> str:
        if "unknown command" in said.lower():
            version = self.client.info("server")["redis_version"]
            why = f"needs Redis 7.2 or later for WAITAOF, and this is {version}: upgrade Redis"
        elif "appendonly" in said:
            why = (
                "needs Redis' log, which is off: redis-cli config set appendonly yes, and the same in its configuration"
            )
        else:
            why = f"cannot be kept, Redis says {said}: mend that"
        return f"SUBMIT_DURABLE {why}, or unset SUBMIT_DURABLE; nothing was submitted"

    def wait_for_disk(self) -> None:
        """Returns when Redis has all that was written before on its disk; Unavailable after DISK_MS.

        WAITAOF waits for writes of its own connection only: the log keeps their order, so one more write covers all.
        """
        pipe = self.client.pipeline(transaction=False)
        pipe.set(f"{PREFIX}durable", 1).waitaof(1, 0, DISK_MS)
        _, (local, _) = pipe.execute()
        if not local:
            after = f"{DISK_MS / 1000:g} s"
            raise errors.Unavailable(
                f"written, but not on Redis' disk after {after}: submit again with the same idempotency key"
            )

    def _many(self, name: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """One script many times in one round trip. An error stands in the place of its reply."""
        script = self._scripts[name]
        replies = self._pipelined(script.sha, calls)
        if not any(isinstance(reply, NoScriptError) for reply in replies):
            return replies
        self.client.script_load(script.script)
        return self._pipelined(script.sha, calls)

    def _pipelined(self, sha: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
        pipe = self.client.pipeline(transaction=False)
        for arguments in calls:
            pipe.evalsha(sha, 0, *arguments)
        return cast(list[Any], pipe.execute(raise_on_error=False))

    def cancel(self, job: str) -> list[str]:
        return self._words("cancel", job)

    def pause(self, job: str) -> list[str]:
        return self._words("pause", job)

    def resume(self, job: str) -> list[str]:
        return self._words("resume", job)

    def retry(self, job: str, version: int) -> list[str]:
        return self._words("retry", job, version)

    def delete(self, job: str) -> list[str]:
        return self._words("delete", job)

    def drain(self, worker: str, on: bool = True) -> bool:
        return self._words("drain", worker, int(on)) == ["ok"]

    # -- slots ------------------------------------------------------------------------------------------------------

    def next(
        self,
        worker: str,
        queues: Iterable[str],
        *,
        popped: str = "",
        bell: str = "",
        lanes: int = 1,
        take: int = TAKE,
        kinds: Mapping[str, int] | None = None,
    ) -> Held | Taken | str:
        """The best pending job for this worker, small ones up to `take` at once; ends the slot it had.

        Only jobs of `kinds`, the version of each kind's model that the worker computes; None: of any.

        Else the word none (no work) or draining (this worker must not work). `popped` and `bell`: the queue and the id
        of the bell that RQ has just taken.
        """
        tokens = json.dumps([new_token() for _ in range(take)])
        names = list(queues)
        listened = json.dumps(names)
        able = "" if kinds is None else json.dumps(dict(kinds))
        how, *rest = self._run("next", worker, popped, bell, lanes, LEASE_TTL_MS, SLOT_TTL_MS, listened, tokens, able)
        if how == b"hold":
            return Held(job_id=rest[0].decode())
        if how != b"take":
            return str(how.decode())
        taken = self._taken(rest)
        return taken if taken.jobs else self.next(worker, names, lanes=lanes, take=take, kinds=kinds)

    def _taken(self, words: list[Any]) -> Taken:
        """What NEXT took, without the jobs whose spec cannot be read: those are quarantined."""
        found = []
        for job, token, kind, spec, total, est_ms in (words[at : at + 6] for at in range(0, len(words), 6)):
            try:
                facts = _known(job.decode(), kind.decode(), spec, "", int(total), int(est_ms))
                found.append((facts, token.decode()))
            except Unreadable as error:
                self.quarantine(job, f"its spec: {error}")
        return Taken(
            jobs=tuple((facts.job_id, token) for facts, token in found), facts=tuple(facts for facts, _ in found)
        )

    def hold(self, worker: str) -> bool:
        return bool(self._run("hold", worker, SLOT_TTL_MS))

    def leave(self, worker: str) -> None:
        self._run("leave", worker)

    def facts(self, jobs: Sequence[str], device: str) -> list[Facts | None]:
        """What lanes of a device need to know of each job; None for one that is gone."""
        pipe = self.client.pipeline(transaction=False)
        for job in jobs:
            pipe.hmget(key(job), "kind", "spec", "queue", "total", "est_ms", "mode")
        pipe.hgetall(f"{PREFIX}pace")
        *rows, paces = pipe.execute(raise_on_error=False)
        return [self._facts(job, row, paces, device) for job, row in zip(jobs, rows, strict=True)]

    def _facts(self, job: str, row: Any, paces: Any, device: str) -> Facts | None:
        """None for a job that is gone, and for one that cannot be read, which is quarantined."""
        for reply in (row, paces):
            if isinstance(reply, Exception) and not wrong_type(reply):
                raise reply
        try:
            return _facts(job, row, {} if isinstance(paces, Exception) else paces, device)
        except Unreadable as error:
            self.quarantine(job, f"its spec: {error}")
            return None

    def waiting(self, listened: Iterable[str]) -> list[int]:
        """Jobs that wait for a worker, by queue."""
        pipe = self.client.pipeline(transaction=False)
        for queue in listened:
            pipe.zcard(f"{PREFIX}pending:{queue}")
        return cast(list[int], pipe.execute())

    # -- work -------------------------------------------------------------------------------------------------------

    def lease(
        self,
        job: str,
        token: str,
        *,
        want: int,
        least: int = 1,
        worker: str,
        lane: str = "0",
        rate: float = 0.0,
        higher: Iterable[str] = (),
    ) -> Grant | str:
        """A range, or the word wait, yield, finishing or gone. `want` and `least` in units, `rate` in units/s."""
        reply = self._words(
            "lease", job, token, want, least, LEASE_TTL_MS, worker, lane, f"{rate:.6g}", json.dumps(list(higher))
        )
        if reply[0] == "ok":
            return Grant(token=token, lo=int(reply[1]), hi=int(reply[2]))
        return reply[0]

    def beat(self, job: str, token: str, upto: int) -> int:
        """1 go on, 2 stop at the next chunk and commit, 0 drop the work."""
        return int(self._run("beat", job, token, upto, LEASE_TTL_MS))

    def commit(
        self, job: str, token: str, upto: int, partial: bytes, *, ms: int, worker: str, device: str, pace: float = 0.0,
        device_ms: int = 0, joules: float | None = None,
    ) -> Committed:  # fmt: skip
        """`ms` of the lane; `device_ms` and `joules` are the lease's share of a device that lanes share."""
        energy = "" if joules is None else str(round(joules * 1000))
        more = (f"{pace:.6g}", device_ms, energy)
        code, parts = self._run("commit", job, token, upto, partial, ms, worker, device, *more)
        return Committed(merged=code > 0, finishing=code == 2, parts=parts)

    def done1(self, job: str, token: str, result: bytes, *, ms: int, worker: str, device: str) -> bool:
        """Commits and finishes a job that one lease covers. False: stale or cancelled, drop it."""
        return self.done1_all([Finished(job_id=job, token=token, result=result, ms=ms)], worker=worker, device=device)[
            0
        ]

    def done1_all(self, finished: Sequence[Finished], *, worker: str, device: str) -> list[bool]:
        """DONE1 of many jobs in one round trip."""
        calls = [(one.job_id, one.token, one.result, one.ms, worker, device, one.marks) for one in finished]
        replies = self._many("done1", calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [bool(reply) for reply in replies]

    def release(self, job: str, token: str) -> bool:
        return bool(self._run("release", job, token))

    def crash(self, job: str, token: str) -> bool:
        return bool(self._run("crash", job, token))

    def fail(self, job: str, token: str, error: str) -> bool:
        jitter = secrets.randbelow(1000) / 1000
        return bool(self._run("fail", job, token, error[:2000], jitter))

    def read(self, *commands: Sequence[str]) -> list[Any]:
        """Replies of commands that only read, all at one moment, in a full Redis too. Raises the first error."""
        replies = self.replies(*commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def replies(self, *commands: Sequence[str]) -> list[Any]:
        """The same, with the errors in their places."""
        return cast(list[Any], self._run("read", json.dumps(commands)))

    # -- results ----------------------------------------------------------------------------------------------------

    def gather(self, job: str, limit: int = 256) -> Gathered:
        """The accumulator and up to `limit` parts, read at one moment."""
        parts_read = ("LRANGE", key(job, "parts"), "0", str(limit - 1))
        try:
            (done, spec), accumulator, parts = self.read(
                ("HMGET", key(job), "done", "spec"), ("GET", key(job, "acc")), parts_read
            )
            return Gathered(accumulator=accumulator, parts=tuple(parts), done=int(done or 0), spec=spec)
        except (redis.exceptions.ResponseError, ValueError) as error:
            if not isinstance(error, ValueError) and not wrong_type(error):
                raise
            self.quarantine(job, str(error))
            return Gathered(accumulator=None, parts=(), done=0, spec=None)

    def fold(self, job: str, gathered: Gathered, accumulator: bytes) -> bool:
        """Puts `accumulator` in the place of all that was gathered; False when that is no longer what is stored."""
        return bool(self._run("fold", job, gathered.digest, len(gathered.parts), accumulator))

    def finish(self, job: str, gathered: Gathered, result: bytes, marks: str = "[]") -> bool:
        """Stores the result of what was gathered and, in the same moment, its marks as `marks.encode` writes them."""
        return bool(self._run("finish", job, gathered.digest, result, marks))

    def abort(self, job: str, error: str) -> bool:
        return bool(self._run("abort", job, error[:2000]))

    def stumble(self, job: str, token: str, error: str) -> bool:
        """Says that a lane died over the job's result, once a token; True: it was one death too many."""
        return bool(self._run("stumble", job, token, error[:2000]))

    # -- what is broken ---------------------------------------------------------------------------------------------

    def quarantine(self, job: str | bytes, why: str) -> None:
        """Fails a job whose contents cannot be read, so that nobody works on it again."""
        self._run("quarantine", job, why[:500])

    def put_aside(self, name: str) -> None:
        """Empties the place of a key that is not a job's and holds what it must not."""
        self._run("aside", name)

    def reindex(self) -> int:
        """The leader's, after an index was put aside: puts every job back into all of them. Returns how many."""
        if not self._disturbed():
            return 0
        self.client.delete(f"{PREFIX}load")
        names = self.client.scan_iter(f"{PREFIX}job:*", count=1000)
        ids = [name[len(key("")) :] for name in names if name.count(b":") == 2]
        for at in range(0, len(ids), 100):
            self._run("reindex", *ids[at : at + 100])
        self.client.delete(f"{PREFIX}disturbed:kept")
        return len(ids)

    def _disturbed(self) -> bool:
        """True from when an index was put aside until `reindex` came to its end, whoever began it."""
        found, kept = f"{PREFIX}disturbed", f"{PREFIX}disturbed:kept"
        if self.client.exists(found):
            self.client.rename(found, kept)
        return bool(self.client.exists(kept))

    # -- marks --------------------------------------------------------------------------------------------------------

    def marks(self, name: str) -> dict[str, str]:
        """What finished jobs left under a mark: payload by range."""
        stored = self.client.hgetall(f"{PREFIX}mark:{name}")
        return {field.decode(errors="replace"): payload.decode(errors="replace") for field, payload in stored.items()}

    def count_marks(self, name: str) -> int:
        """Ranges stored under a mark."""
        return int(self.client.hlen(f"{PREFIX}mark:{name}"))

    def replace_marks(self, name: str, old: Sequence[str], new: Mapping[str, str]) -> None:
        """Puts joined ranges in the place of those that they cover. A reader sees the ones or the others."""
        gone = [field for field in old if field not in new]
        if gone:
            pipe = self.client.pipeline(transaction=True)
            pipe.hset(f"{PREFIX}mark:{name}", mapping=new).hdel(f"{PREFIX}mark:{name}", *gone).execute()

    # -- the fleet --------------------------------------------------------------------------------------------------

    def birth(self) -> str:
        """What tells a worker's process from others of its name; of a later one it sorts later. By Redis' clock."""
        seconds, micros = self.client.time()
        return f"{seconds * 1000 + micros // 1000:013d}-{secrets.token_hex(4)}"

    def heartbeat(
        self, worker: str, born: str, facts: Mapping[str, str | int | float], *, leaving: bool = False
    ) -> str:
        """A worker's sign of life: ok; drain, finish and take nothing new; taken, a later process has this name.

        `born` is what `birth` gave when the process began.
        """
        flat = [item for pair in facts.items() for item in pair]
        reply: bytes = self._run("worker", worker, born, 0 if leaving else WORKER_TTL_MS, *flat)
        return reply.decode()

    def audit(self, queues: Iterable[str]) -> tuple[int, int, int]:
        """The leader's round: slots reaped, jobs put back, finished jobs purged."""
        reaped, returned, purged = self._run("audit", json.dumps(list(queues)))
        return reaped, returned, purged

    def put_spans_away(self) -> int:
        """The leader's: spans of lanes that went on to nothing join the others; returns how many."""
        return int(self._run("spans"))

    def claim(self, gpu: str, worker: str) -> bool:
        """Takes or renews a GPU, by UUID, for five seconds; False: another worker has it."""
        return bool(self._run("claim", gpu, worker, GPU_TTL_MS))

    def give_up(self, gpu: str, worker: str) -> None:
        """Ends a claim, if it is still this worker's."""
        self._run("claim", gpu, worker, 0)

    def lead(self, candidate: str) -> bool:
        """Takes or renews the leadership for five seconds."""
        return bool(self._run("lead", candidate, LEADER_TTL_MS))


def _facts(job: str, row: list[bytes | None], paces: dict[bytes, bytes], device: str) -> Facts | None:
    if row[0] is None:
        return None
    kind, spec, queue, total, est_ms, mode = (value.decode() if value else "" for value in row)
    pace = _pace(paces.get(f"{kind}|{mode}|{device}".encode()))
    return _known(job, kind, spec, queue, int(total), int(est_ms), pace)


def _pace(stored: bytes | None) -> float:
    """1 where nothing was measured, or what is stored is no speed."""
    with contextlib.suppress(ValueError):
        pace = float(stored or 1.0)
        return pace if 0 < pace < float("inf") else 1.0
    return 1.0


def _known(job: str, kind: str, spec: str | bytes, queue: str, total: int, est_ms: int, pace: float = 1.0) -> Facts:
    nominal = total / max(est_ms / 1000, 1e-3)
    return Facts(
        job_id=job,
        kind=kind,
        spec=json.loads(spec),
        queue=queue,
        total=total,
        expected_rate=nominal * pace,
        nominal_rate=nominal,
    )


def _submit_arguments(job: NewJob) -> list[str | int | float]:
    plan = job.plan
    fields: dict[str, str | int | float] = {
        "kind": job.kind,
        "version": job.version,
        "mode": plan.mode,
        "spec": json.dumps(plan.spec, separators=(",", ":")),
        "parameters": json.dumps(plan.parameters, separators=(",", ":")),
        "notes": json.dumps(plan.notes),
        "priority": job.priority,
        "device": job.device,
        "prefer": int(job.prefer),
        "small": int(job.small),
        "total": plan.total,
        "grain": plan.grain,
        "offset": plan.offset,
        "est_ms": job.estimate_ms,
        "max_ms": int(plan.max_lease_seconds * 1000),
        "ttl_ms": job.ttl_seconds * 1000,
    }
    flat = [item for pair in fields.items() for item in pair]
    return [job.job_id, job.idempotency, job.digest, job.queue, *flat]

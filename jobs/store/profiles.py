"""Profiles of tenants: windows in which workers record the telemetry of hosts and devices, and what was recorded.

A profile is `recording`, then `collecting`: workers send their recordings, in parts that the leader takes out of Redis
and stores as files of the tenant; then `done`. A recording that comes later opens it once more. docs/profiles.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys
from jobs.store.server.connection import RedisError
from jobs.store.server.functions import Part
from jobs.store.server.records import number, record, texts
from jobs.store.work.bounds import Count, RecordingName

#: Names are part of those of artifacts: profile-NAME.
NAME = r"^[a-z0-9][a-z0-9._-]{0,55}$"
#: Samples a second; seconds that a profile lasts unless it is stopped before.
MAX_HZ, DEFAULT_HZ = 100, 10
MAX_SECONDS, DEFAULT_SECONDS = 86_400, 3600
#: Profiles that live at once, in the cluster and of a tenant; profiles of a tenant in all.
MAX_LIVE, MAX_LIVE_OF_TENANT, MAX_PROFILES = 4, 2, 1000
#: Profiles that live at once beside, because somebody recovers them.
MAX_COLLECTED = 16
#: Hosts that a profile may name, recordings that it may have.
MAX_HOSTS, MAX_RECORDINGS = 256, 4096
#: Bytes of a recording, on a host's disk and as it is sent.
MAX_BYTES = 2 << 30
#: Of a recording, as it is sent; parts that are in Redis at once, of a profile and of all.
PART_BYTES, PARTS_AT_ONCE, PARTS_OF_ALL = 8 << 20, 2, 16
#: A device is sampled by whoever has claimed it for so long; a recording is of the worker that was heard with it.
CLAIM_MS = 5000
#: A worker that was not heard for so long has lost its recording, until it is heard again.
SILENT_MS = 15_000
#: How often a recording is sent whose bytes are not those that its worker said.
MOST_TRIES = 3
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e9)]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Profile that lives, as workers hear of it."""

    profile_id: str
    #: recording or collecting
    state: str
    hz: int
    #: When it ends by itself, in milliseconds of Redis' clock.
    until: int
    #: Hosts that it is about; empty for all.
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A file of samples that a worker has, as it reports it."""

    #: In a body of JSON it is an object.
    __pydantic_config__ = ConfigDict(extra="forbid")

    #: WORKER.NUMBER, one of its profile.
    name: RecordingName
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$")]
    devices: Annotated[tuple[Annotated[str, Field(max_length=128)], ...], Field(max_length=65)]
    samples: Count = 0
    #: Samples whose time passed, or that could not be written.
    missed: Count = 0
    bytes: Count = 0
    #: Of the process that samples.
    cpu_seconds: Seconds = 0.0
    #: Seconds between its first sample and its last.
    seconds: Seconds = 0.0
    #: Why it ended; empty while it goes on.
    reason: Annotated[str, Field(max_length=64)] = ""
    #: Of what is sent: bytes and SHA-256; both, or 0 and empty before it is ready.
    size: Annotated[int, Field(strict=True, ge=0, le=MAX_BYTES)] = 0
    sha: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""

    def __post_init__(self) -> None:
        if bool(self.size) != bool(self.sha):
            raise ValueError("size and sha: a recording has both, or neither")

    def row(self) -> str:
        """Return what is stored of it for people, as JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in ("name", "size", "sha")})


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The answer to a report."""

    #: As of an order; done; gone, where there is no such profile.
    state: str
    #: Milliseconds of Redis' clock.
    now: int
    #: Devices that the worker samples.
    devices: tuple[str, ...]
    #: By recording: the number of the part to be sent; wait; kept, lost, other, full.
    wanted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KnownRecording:
    """A recording as the cluster knows it."""

    name: str
    worker: str
    #: Fields of `Recording.row`.
    row: Mapping[str, Any]
    #: When it was heard of last, in milliseconds of Redis' clock.
    heard: int
    size: int
    sha: str
    #: All of its parts are stored.
    whole: bool
    #: kept or lost; empty while it is neither.
    end: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile as it is stored. Times are milliseconds of Redis' clock; 0: not yet."""

    profile_id: str
    tenant: str
    name: str
    #: Who started it: tenant and token.
    actor: Actor
    state: str
    hz: int
    hosts: tuple[str, ...]
    job: str
    created: int
    until: int
    ended: int
    collecting: int
    artifact: str
    #: Why the leader cannot store what was recorded; empty: it can.
    trouble: str


class Profiles(Part):
    """Stores profiles, and what workers and the leader say of them."""

    def start(self, profile: Profile, seconds: int) -> tuple[str, str]:
        """Store a profile that records from now on.

        (new, id); else (exists, name), (full, most), (live, most) or (own, most), (missing, tenant).
        """
        fields = {
            "tenant": profile.tenant,
            "name": profile.name,
            "hz": profile.hz,
            "hosts": ",".join(profile.hosts),
            "job": profile.job,
            "seconds": seconds,
            "by_tenant": profile.actor[0],
            "by_token": profile.actor[1],
        }
        limits = (MAX_LIVE, MAX_LIVE_OF_TENANT, MAX_PROFILES)
        flat = [word for pair in fields.items() for word in pair]
        how, what = self._functions.kept_words("start_profile", profile.profile_id, *limits, *profile.actor, *flat)
        return how, what

    def stop(self, profile_id: str, actor: Actor = ANONYMOUS) -> bool:
        """Have what was recorded collected; False unless it records."""
        return bool(self._functions.kept("collect_profile", profile_id, "recording", *actor, "stop profile", 0))

    def recover(self, profile_id: str, actor: Actor = ANONYMOUS) -> bool:
        """Have what comes of it still collected; False while MAX_COLLECTED live already."""
        reply = self._functions.kept("collect_profile", profile_id, "done", *actor, "recover profile", MAX_COLLECTED)
        return int(reply) != -1

    def delete(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> tuple[str, str] | None:
        """Forget a profile; return its id and artifact, None when there is none. Works in a full Redis."""
        found = self._functions.kept_words("delete_profile", tenant, name, *actor)
        return (found[0], found[1]) if found else None

    def of_tenant(self, tenant: str) -> list[Profile]:
        """Return a tenant's profiles, newest first."""
        [reply] = self._functions.read(("HGETALL", keys.profiles_of(tenant)))
        found = self.read([word.decode(errors="replace") for word in reply[1::2]])
        return sorted(found, key=lambda one: -one.created)

    def one(self, tenant: str, name: str) -> Profile | None:
        """Return a profile; None when there is none."""
        [known] = self._functions.read(("HGET", keys.profiles_of(tenant), name))
        return next(iter(self.read([known.decode(errors="replace")])), None) if known else None

    def recordings(self, profile_id: str) -> list[KnownRecording]:
        """Return what is known of a profile's recordings, by name."""
        [reply] = self._functions.read(("HGETALL", keys.profile_recordings(profile_id)))
        return _recordings(texts(reply))

    def live(self) -> tuple[Order, ...] | None:
        """Return the profiles that live; None when that cannot be told: the heartbeat beside it must not fail."""
        try:
            return self.orders()
        except RedisError:
            return None

    def orders(self) -> tuple[Order, ...]:
        """Return the profiles that live."""
        stored = self._client.hgetall(keys.PROFILING)
        found = (_order(one.decode(errors="replace"), text.decode(errors="replace")) for one, text in stored.items())
        return tuple(order for order in found if order)

    # -- workers' ---------------------------------------------------------------------------------------------------

    def report(self, profile_id: str, worker: str, devices: Sequence[str], recordings: Sequence[Recording]) -> Reported:
        """Claim devices for CLAIM_MS, and say what was recorded; the answer says which are granted, what is wanted."""
        rows = (word for one in recordings for word in (one.name, one.row(), one.size, one.sha))
        state, now, granted, told = self._functions.run(
            "report_profile", profile_id, worker, CLAIM_MS, CLAIM_MS, MAX_RECORDINGS, len(devices), *devices, *rows
        )
        return Reported(
            state=state.decode(),
            now=int(now),
            devices=tuple(one.decode() for one in granted),
            wanted={name.decode(): what.decode() for name, what in told},
        )

    def add_part(self, profile_id: str, worker: str, recording: str, number: int, data: bytes) -> str:
        """Bring a part of a recording: stored; wait, while there are too many; gone: nobody wants it; size."""
        reply: bytes = self._functions.run(
            "add_profile_part", profile_id, worker, recording, number, PARTS_AT_ONCE, PARTS_OF_ALL, data
        )
        return reply.decode()

    # -- the leader's -----------------------------------------------------------------------------------------------

    def parts(self) -> list[tuple[str, str, int]]:
        """Return the parts that wait for the leader: profile, recording, number."""
        fields = (name.decode(errors="replace").split("|") for name in self._client.hkeys(keys.PROFILE_PARTS))
        return sorted((one[0], one[1], int(one[2])) for one in fields if len(one) == 3 and one[2].isdigit())

    def part(self, profile_id: str, recording: str, number: int) -> bytes | None:
        """Return the bytes of a part; None when it is gone."""
        data: bytes | None = self._client.hget(keys.PROFILE_PARTS, f"{profile_id}|{recording}|{number}")
        return data

    def keep_part(self, profile_id: str, recording: str, number: int, sha: str) -> None:
        """Note that a part is stored, unless it is to be sent anew."""
        self._functions.run("keep_profile_part", profile_id, recording, number, sha)

    def settle(self, profile_id: str, recording: str, how: str, sha: str) -> str:
        """Note that a recording is kept, or that it is to be sent again: kept; again; lost, after MOST_TRIES."""
        reply: bytes = self._functions.run("settle_recording", profile_id, recording, how, sha, MOST_TRIES)
        return reply.decode()

    def trouble(self, profile_id: str, why: str) -> None:
        """Note why recordings cannot be stored now."""
        if self._client.hget(keys.profile(profile_id), "state"):
            self._client.hset(keys.profile(profile_id), "trouble", why)

    def forget(self, profile_id: str) -> None:
        """Have workers hear no more of a profile."""
        self._client.hdel(keys.PROFILING, profile_id)

    def end(self, profile_id: str, artifact: str) -> bool:
        """Note that all that came is in an artifact, empty for nothing; False unless it was being collected."""
        return bool(self._functions.kept("end_profile", profile_id, artifact))

    def read(self, ids: Sequence[str]) -> list[Profile]:
        """Return those of these profiles that there are."""
        stored = self._functions.read(*(("HGETALL", keys.profile(one)) for one in ids))
        return [_profile(one, texts(fields)) for one, fields in zip(ids, stored, strict=True) if fields]


def _split(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _order(profile_id: str, text: str) -> Order | None:
    words = text.split("|")
    if len(words) != 4 or words[0] not in ("recording", "collecting"):
        return None
    hz = min(max(number(words[1]), 1), MAX_HZ)
    return Order(profile_id=profile_id, state=words[0], hz=hz, until=number(words[2]), hosts=_split(words[3]))


def _profile(profile_id: str, known: Mapping[str, str]) -> Profile:
    actor = Actor(known.get("by_tenant", ""), known.get("by_token", ""))
    return record(Profile, known, profile_id=profile_id, actor=actor, hosts=_split(known.get("hosts", "")))


def _recordings(stored: Mapping[str, str]) -> list[KnownRecording]:
    return [
        KnownRecording(
            name=name,
            worker=stored.get(f"{name}|by", ""),
            row=_row(text),
            heard=number(stored.get(f"{name}|at", "")),
            size=number(stored.get(f"{name}|size", "")),
            sha=stored.get(f"{name}|sha", ""),
            whole=_is_whole(stored, name),
            end=stored.get(f"{name}|end", ""),
        )
        for name, text in sorted(stored.items())
        if "|" not in name
    ]


def _is_whole(stored: Mapping[str, str], name: str) -> bool:
    count = -(-number(stored.get(f"{name}|size", "")) // PART_BYTES)
    return 0 < count <= len(_split(stored.get(f"{name}|parts", "")))


def _row(text: str) -> Mapping[str, Any]:
    try:
        row = json.loads(text)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}

"""Profiles of tenants: periods in which workers record measurements of hosts and devices.

A profile is `recording`, then `collecting`: workers send their recordings in parts, which the leader moves from Redis
into files of the tenant. Then it is `done`. A late recording makes it `collecting` again. See docs/profiles.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from jobs.models import ANONYMOUS, Actor
from jobs.store import keys, unreadable_entries
from jobs.store.server.connection import RedisError
from jobs.store.server.functions import Part
from jobs.store.server.records import number, record, texts
from jobs.store.work.bounds import Count, RecordingName

#: Pattern of profile names. The artifact of a profile is named profile-NAME.
NAME = r"^[a-z0-9][a-z0-9._-]{0,55}$"
#: Maximum and default number of samples per second.
MAX_HZ, DEFAULT_HZ = 100, 10
MAX_SECONDS, DEFAULT_SECONDS = 86_400, 3600
#: Maximum number of active profiles in the cluster and per tenant.
#: `MAX_PROFILES` is the maximum number of all profiles of a tenant.
MAX_LIVE, MAX_LIVE_OF_TENANT, MAX_PROFILES = 4, 2, 1000
#: Maximum number of active profiles with which late recordings of a finished profile are collected.
MAX_COLLECTED = 16
#: Maximum number of hosts, and of recordings, in one profile.
MAX_HOSTS, MAX_RECORDINGS = 256, 4096
#: Maximum size in bytes of one recording.
MAX_BYTES = 2 << 30
#: Size in bytes of the parts of a recording.
#: Redis stores at most `PARTS_AT_ONCE` parts per profile and `PARTS_OF_ALL` parts in total.
PART_BYTES, PARTS_AT_ONCE, PARTS_OF_ALL = 8 << 20, 2, 16
#: Milliseconds for which a worker's claim to record a device is valid.
CLAIM_MS = 5000
#: Milliseconds without a report after which a recording counts as lost until its worker reports again.
SILENT_MS = 15_000
#: Maximum number of attempts to send a recording, if the received bytes do not match its SHA-256.
MOST_TRIES = 3
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e9)]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Active profile, as reported to workers."""

    profile_id: str
    #: State of the profile: recording or collecting.
    state: str
    hz: int
    #: End of the profile in milliseconds since 1970, by Redis time.
    until: int
    #: Hosts that the profile covers. Empty means all hosts.
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recording:
    """File with samples, as its worker reports it."""

    #: Pydantic configuration: a JSON object without additional fields.
    __pydantic_config__ = ConfigDict(extra="forbid")

    #: Name in the form WORKER.NUMBER, which is unique within the profile.
    name: RecordingName
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$")]
    devices: Annotated[tuple[Annotated[str, Field(max_length=128)], ...], Field(max_length=65)]
    samples: Count = 0
    #: Number of samples that the worker took too late or could not write.
    missed: Count = 0
    bytes: Count = 0
    #: CPU time in seconds of the process that took the samples.
    cpu_seconds: Seconds = 0.0
    #: Seconds between the first and the last sample.
    seconds: Seconds = 0.0
    #: Reason for the end of the recording, or empty while it is running.
    reason: Annotated[str, Field(max_length=64)] = ""
    #: Size in bytes of the file to send. It is 0 until the file is ready.
    size: Annotated[int, Field(strict=True, ge=0, le=MAX_BYTES)] = 0
    sha: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""

    def __post_init__(self) -> None:
        if bool(self.size) != bool(self.sha):
            raise ValueError("size and sha must be set together")

    def row(self) -> str:
        """Return the fields that are displayed to users, as JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if name not in ("name", "size", "sha")})


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Response to a worker's report about a profile."""

    #: State of the profile, or `gone` if the profile does not exist.
    state: str
    #: Redis time in milliseconds.
    now: int
    #: Devices that the worker must sample.
    devices: tuple[str, ...]
    #: Response for each recording: the number of the part to send, or a state such as `wait` or `kept`.
    wanted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KnownRecording:
    """Recording of a profile, as stored in Redis."""

    name: str
    worker: str
    #: Fields that the worker reported.
    row: Mapping[str, Any]
    #: Time of the worker's last report in milliseconds since 1970, by Redis time.
    heard: int
    size: int
    sha: str
    #: True if all parts of the recording are stored.
    whole: bool
    #: Final state of the recording: kept or lost. Empty while it is not decided.
    end: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile of a tenant, as stored in Redis. Times are milliseconds since 1970, or 0 for events that have not
    happened.
    """

    profile_id: str
    tenant: str
    name: str
    #: Tenant and token with which the profile was started.
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
    #: Reason why the leader cannot store recordings, or empty.
    trouble: str


class Profiles(Part):
    """Stores profiles in Redis, with the reports of workers and of the leader."""

    def start(self, profile: Profile, seconds: int) -> tuple[str, str]:
        """Store a new profile, which starts recording immediately.

        Return (new, ID); otherwise (exists, name), (full, most), (live, most), (own, most) or (missing, tenant).
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
        how, what = self._functions.run_acknowledged_texts(
            "start_profile", profile.profile_id, *limits, *profile.actor, *flat
        )
        return how, what

    def stop(self, profile_id: str, actor: Actor = ANONYMOUS) -> bool:
        """Stop recording, and start to collect the recordings. Return False if the profile is not recording."""
        return bool(
            self._functions.run_acknowledged("collect_profile", profile_id, "recording", *actor, "stop profile", 0)
        )

    def recover(self, profile_id: str, actor: Actor = ANONYMOUS) -> bool:
        """Collect late recordings of a finished profile. Return False if MAX_COLLECTED profiles are active."""
        reply = self._functions.run_acknowledged(
            "collect_profile", profile_id, "done", *actor, "recover profile", MAX_COLLECTED
        )
        return int(reply) != -1

    def delete(self, tenant: str, name: str, actor: Actor = ANONYMOUS) -> tuple[str, str] | None:
        """Delete a profile. Return its ID and its artifact, or None if the profile does not exist.

        This also works if Redis is full.
        """
        found = self._functions.run_acknowledged_texts("delete_profile", tenant, name, *actor)
        return (found[0], found[1]) if found else None

    def of_tenant(self, tenant: str) -> list[Profile]:
        """Return a tenant's profiles, newest first."""
        [reply] = self._functions.read(("HGETALL", keys.profiles_of(tenant)))
        found = self.read([word.decode(errors="replace") for word in reply[1::2]])
        return sorted(found, key=lambda one: -one.created)

    def one(self, tenant: str, name: str) -> Profile | None:
        """Return a profile by its name, or None if it does not exist."""
        [known] = self._functions.read(("HGET", keys.profiles_of(tenant), name))
        return next(iter(self.read([known.decode(errors="replace")])), None) if known else None

    def recordings(self, profile_id: str) -> list[KnownRecording]:
        """Return a profile's recordings, sorted by name."""
        [reply] = self._functions.read(("HGETALL", keys.profile_recordings(profile_id)))
        return _recordings(texts(reply))

    def live(self) -> tuple[Order, ...] | None:
        """Return the active profiles. If Redis fails, return None, so that a heartbeat still succeeds."""
        try:
            return self.orders()
        except RedisError:
            return None

    def orders(self) -> tuple[Order, ...]:
        """Return the active profiles, in the form in which workers get them."""
        stored = self._client.hgetall(keys.PROFILING)
        found = (_order(one.decode(errors="replace"), text.decode(errors="replace")) for one, text in stored.items())
        return tuple(order for order in found if order)

    # -- worker methods --------------------------------------------------------------------------------------------

    def report(self, profile_id: str, worker: str, devices: Sequence[str], recordings: Sequence[Recording]) -> Reported:
        """Claim devices for CLAIM_MS milliseconds and report recordings. Return the granted devices and the parts to
        send.
        """
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
        """Store a part of a recording. Return `stored`, or the reason why the part was not stored.

        wait: too many parts are stored. gone: the part is not needed. size: the part has the wrong length.
        """
        reply: bytes = self._functions.run(
            "add_profile_part", profile_id, worker, recording, number, PARTS_AT_ONCE, PARTS_OF_ALL, data
        )
        return reply.decode()

    # -- leader methods --------------------------------------------------------------------------------------------

    def parts(self) -> list[tuple[str, str, int]]:
        """Return the parts of recordings that the leader has not stored yet, as (profile, recording, number)."""
        fields = (name.decode(errors="replace").split("|") for name in self._client.hkeys(keys.PROFILE_PARTS))
        return sorted((one[0], one[1], int(one[2])) for one in fields if len(one) == 3 and one[2].isdigit())

    def part(self, profile_id: str, recording: str, number: int) -> bytes | None:
        """Return the bytes of a recording's part, or None if the part does not exist."""
        data: bytes | None = self._client.hget(keys.PROFILE_PARTS, f"{profile_id}|{recording}|{number}")
        return data

    def keep_part(self, profile_id: str, recording: str, number: int, sha: str) -> None:
        """Record that a part of a recording is stored, unless it must be sent again."""
        self._functions.run("keep_profile_part", profile_id, recording, number, sha)

    def settle(self, profile_id: str, recording: str, how: str, sha: str) -> str:
        """Record that a recording is stored, or that it must be sent again.

        Return `kept`, `again`, or `lost` after MOST_TRIES attempts.
        """
        reply: bytes = self._functions.run("settle_recording", profile_id, recording, how, sha, MOST_TRIES)
        return reply.decode()

    def trouble(self, profile_id: str, why: str) -> None:
        """Record the reason why the leader cannot store recordings."""
        if self._client.hget(keys.profile(profile_id), "state"):
            self._client.hset(keys.profile(profile_id), "trouble", why)

    def forget(self, profile_id: str) -> None:
        """Stop reporting a profile to the workers."""
        self._client.hdel(keys.PROFILING, profile_id)

    def end(self, profile_id: str, artifact: str) -> bool:
        """Record the artifact that contains the recordings. Return False if the profile is not collecting.

        `artifact` is empty if there are no recordings.
        """
        return bool(self._functions.run_acknowledged("end_profile", profile_id, artifact))

    def read(self, ids: Sequence[str]) -> list[Profile]:
        """Return profiles by ID. Profiles that do not exist or are unreadable are omitted."""
        commands = [("HGETALL", keys.profile(one)) for one in ids]
        stored = unreadable_entries.replies_at_once(self._functions, *commands) if commands else []
        found = ((one, texts(fields)) for one, fields in zip(ids, stored, strict=True) if fields)
        return unreadable_entries.readable("profile", found, _profile)


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

"""Answers to the calls of workers, for the API's description."""

from __future__ import annotations

from typing import Any, Literal

from coordinator.schemas import Answer, required


class Registered(Answer):
    worker: str = required("The worker's name: that of its token.")
    born: str = required("Tells this process from others of its name; by Redis' clock.")


class WorkFacts(Answer):
    job_id: str
    kind: str
    spec: dict[str, Any]
    queue: str
    total: int
    expected_rate: float = required("Units/s that a lane of this device probably reaches.")
    nominal_rate: float = required("Units/s by the kind's own estimate.")
    tenant: str = required("Whose it is; empty for small jobs, as its priority.")
    priority: str
    traceparent: str = required(
        "Its place in a trace, as W3C has it; empty for small jobs, and for one that is in none."
    )
    tracestate: str = required("What vendors added to that, as W3C has it.")


class Work(Answer):
    how: Literal["hold", "take", "none", "draining"] = required(
        "hold: this worker has a slot for the job. take: small jobs, each wholly leased."
    )
    jobs: list[WorkFacts]
    leases: list[str] = required("take: the token of each job's lease.")


class WaitingCounts(Answer):
    waiting: list[int] = required("Jobs that wait, by queue, those the worker listens to first.")


class Granted(Answer):
    how: Literal["ok", "wait", "yield", "finishing", "gone"]
    lo: int = required("ok: units lo..hi-1 are the lease's.")
    hi: int
    errors: int = required("Times that unit lo failed.")


class Merged(Answer):
    merged: bool = required("False: the lease had ended, and the work is dropped.")
    finishing: bool = required("It was the last unit: derive the result.")
    parts: int = required("Parts that wait to be folded.")


class Ended(Answer):
    ended: bool = required("False: it had ended before, or others moved on.")


class AllEnded(Answer):
    ended: list[bool] = required("The same for each job, in order.")


class Beaten(Answer):
    word: Literal["ok", "drain", "taken"] = required("taken: a later process has this name, and this one must end.")
    leases: list[int] = required("For each lease: 1 go on, 2 stop at the next chunk and commit, 0 drop.")
    follow: list[str] = required("Jobs of these leases of which somebody follows a unit; of runners alone.")
    attach: list[list[str | int]] = required("[job, unit, id] of shells that are asked for beside these leases' units.")
    profiles: list[ProfileOrder] | None = required("Profiles that live; null: it cannot be told.")


class ProfileOrder(Answer):
    profile_id: str
    state: Literal["recording", "collecting"]
    hz: int
    until: int = required("When it ends by itself, in milliseconds since 1970 by Redis' clock.")
    hosts: list[str] = required("Hosts that it is about; empty: all.")


class Profiled(Answer):
    state: Literal["recording", "collecting", "done", "gone"]
    now: int = required("Milliseconds since 1970 by Redis' clock.")
    devices: list[str] = required("Those that this worker samples, for five seconds more.")
    wanted: dict[str, str] = required(
        "By recording: the number of the part to be sent; wait; kept, lost: it may be deleted; other: another worker"
        " has it; full: the profile has too many."
    )


class ProfilePart(Answer):
    how: Literal["stored", "wait", "gone", "size"] = required("wait: others are on their way; gone: nobody wants it.")


class Left(Answer):
    ended: bool


class Parts(Answer):
    accumulator: str | None = required("In base64, as the parts and the spec.")
    parts: list[str]
    more: bool = required("True: ask for those that follow, by `start`.")
    done: int = required("Units that all of them cover.")
    spec: str | None = required("null: there is no such job, or this worker does not hold it.")


class Claimed(Answer):
    claimed: bool = required("False: others have one of them, or go first.")
    wanted: str = required(
        "To a GPU worker: the highest priority of programs that wait for one of them; empty for none."
    )
    by: Literal["", "worker", "program", "wanted"] = required("Why not: who has one; wanted: programs wait for one.")


class Heard(Answer):
    follow: bool = required("False: nobody follows this unit.")


class Kept(Answer):
    artifact_id: str = required("SHA-256 of the manifest.")


class SecretValues(Answer):
    values: dict[str, str] = required("By name.")


class Leader(Answer):
    leads: bool = required("Whether it is the replica that asks.")
    job_id: str = required("Its job.")
    state: str = required("starting, ready, unhealthy or stopping.")
    address: str = required("Where it answers; empty before it has begun.")
    port: int
    key: str = required("Its key; empty before it has begun.")
    host: str = required("Its runner's host; empty before it has begun.")


class TakenAttachment(Answer):
    about: dict[str, Any] | None = required("command and terminal, as they were asked for; null: it is over.")


class AttachmentInput(Answer):
    state: Literal["running", "ended"] = required("ended: nobody wants the shell any more.")
    size: str = required("Rows and columns of the terminal; empty: as asked for.")
    closed: bool = required("Nothing comes after these bytes.")
    upto: int = required("Place behind these bytes.")
    chunks: list[list[str]] = required('["i", bytes in base64], in order.')


class AttachmentOutput(Answer):
    state: Literal["running", "ended"]
    upto: int = required("Bytes that were taken in all: go on there.")

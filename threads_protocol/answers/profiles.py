"""Responses about profiles."""

from __future__ import annotations

from typing import Annotated, Literal

from threads_protocol.answers.fields import Answer, Count, Id, Many, Moment, describe, one_of


class Recording(Answer):
    name: Annotated[str, describe("The worker that began it, and a number: its file in the artifact is NAME.jsonl.gz.")]
    worker: Annotated[str, describe("Who was heard with it last.")]
    host: str
    devices: Annotated[Many[str], describe("host:NAME and gpu:UUID.")]
    state: Annotated[
        str,
        one_of(Literal["recording", "silent", "sending", "kept", "lost"]),
        describe(
            "silent: its worker was not heard for 15 s; it may come back with it. lost: its bytes came home spoiled."
        ),
    ]
    samples: Count
    missed: Annotated[Count, describe("Samples whose moment passed, or that the disk did not take.")]
    seconds: Annotated[float, describe("From its first sample to its last.")]
    bytes: Count
    cpu_seconds: Annotated[float, describe("Of the process that samples.")]
    ended: Annotated[
        str | None, describe("stopped, time, full (its disk, or 2 GB), worker lost, killed; null while it goes on.")
    ]


class Profile(Answer):
    name: str
    id: str
    tenant: str
    state: Annotated[
        str,
        one_of(Literal["recording", "collecting", "done"]),
        describe("collecting: workers send what they recorded."),
    ]
    hz: Annotated[Count, describe("Samples a second.")]
    hosts: Annotated[Many[str], describe("Hosts that it is about; empty for all.")]
    job_id: Annotated[str | None, describe("The job with whose end it stops.")]
    created: Moment
    ends: Annotated[Moment, describe("When it stops by itself.")]
    ended: Annotated[Moment | None, describe("When it stopped.")]
    artifact_id: Annotated[Id | None, describe("Where the recordings are, also under the name profile-NAME.")]
    trouble: Annotated[str | None, describe("Why recordings cannot be stored now; it is tried again.")]
    samples: Annotated[Count, describe("Of all recordings.")]
    missed: Count
    bytes: Count
    recordings: Many[Recording]


class ProfileList(Answer):
    profiles: Annotated[Many[Profile], describe("Newest first.")]

"""Types of responses about profiles of hosts and GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from threads_protocol.answers.fields import Answer, Count, Id, Many, Moment, describe, one_of


class Recording(Answer):
    name: Annotated[
        str,
        describe(
            "Name of the recording: the worker that started it, and a number. Its file in the artifact "
            "is NAME.jsonl.gz."
        ),
    ]
    worker: Annotated[str, describe("Worker that last reported the recording.")]
    host: str
    devices: Annotated[Many[str], describe("Recorded devices, as host:NAME and gpu:UUID.")]
    state: Annotated[
        str,
        one_of(Literal["recording", "silent", "sending", "kept", "lost"]),
        describe(
            "silent: its worker has been silent for 15 s and may still return. lost: the uploaded bytes were corrupt."
        ),
    ]
    samples: Count
    missed: Annotated[Count, describe("Number of samples that were late or could not be written to disk.")]
    seconds: Annotated[float, describe("Seconds from the first to the last sample.")]
    bytes: Count
    cpu_seconds: Annotated[float, describe("CPU time of the sampling process.")]
    ended: Annotated[
        str | None, describe("stopped, time, full (its disk, or 2 GB), worker lost, or killed; null while recording.")
    ]


class Profile(Answer):
    name: str
    id: str
    tenant: str
    state: Annotated[
        str,
        one_of(Literal["recording", "collecting", "done"]),
        describe("collecting: workers are sending their recordings."),
    ]
    hz: Annotated[Count, describe("Samples per second.")]
    hosts: Annotated[Many[str], describe("Recorded hosts; empty for all.")]
    job_id: Annotated[str | None, describe("Job whose end stops the profile.")]
    created: Moment
    ends: Annotated[Moment, describe("Time when the profile stops automatically.")]
    ended: Annotated[Moment | None, describe("Time when the profile stopped.")]
    artifact_id: Annotated[Id | None, describe("Artifact with the recordings, also named profile-NAME.")]
    trouble: Annotated[str | None, describe("Why recordings cannot be stored now. The cluster retries.")]
    samples: Annotated[Count, describe("Total samples of all recordings.")]
    missed: Count
    bytes: Count
    recordings: Many[Recording]


class ProfileList(Answer):
    profiles: Annotated[Many[Profile], describe("Profiles, newest first.")]

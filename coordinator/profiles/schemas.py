"""Answers about profiles, for the API's description and the tests."""

from __future__ import annotations

from typing import Literal

from coordinator.schemas import Answer, required


class Recording(Answer):
    name: str = required("The worker that began it, and a number: its file in the artifact is NAME.jsonl.gz.")
    worker: str = required("Who was heard with it last.")
    host: str
    devices: list[str] = required("host:NAME and gpu:UUID.")
    state: Literal["recording", "silent", "sending", "kept", "lost"] = required(
        "silent: its worker was not heard for 15 s; it may come back with it. lost: its bytes came home spoiled."
    )
    samples: int
    missed: int = required("Samples whose moment passed, or that the disk did not take.")
    seconds: float = required("From its first sample to its last.")
    bytes: int
    cpu_seconds: float = required("Of the process that samples.")
    ended: str | None = required("stopped, time, full (its disk, or 2 GB), worker lost, killed; null while it goes on.")


class Profile(Answer):
    name: str
    id: str
    tenant: str
    state: Literal["recording", "collecting", "done"] = required("collecting: workers send what they recorded.")
    hz: int = required("Samples a second.")
    hosts: list[str] = required("Hosts that it is about; empty for all.")
    job_id: str | None = required("The job with whose end it stops.")
    created: str
    ends: str = required("When it stops by itself.")
    ended: str | None = required("When it stopped.")
    artifact_id: str | None = required("Where the recordings are, also under the name profile-NAME.")
    trouble: str | None = required("Why recordings cannot be stored now; it is tried again.")
    samples: int = required("Of all recordings.")
    missed: int
    bytes: int
    recordings: list[Recording]


class ProfileList(Answer):
    profiles: list[Profile] = required("Newest first.")

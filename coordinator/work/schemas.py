"""Answers to the calls of workers, for the API's description."""

from __future__ import annotations

from typing import Any, Literal

from coordinator.schemas import Answer, required


class Ended(Answer):
    ended: bool = required("False: it had ended before, or others moved on.")


class Followed(Answer):
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

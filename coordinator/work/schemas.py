"""Response schemas of the worker API, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from coordinator.schemas import Answer, required


class Ended(Answer):
    ended: bool = required("False if it had already ended.")


class Followed(Answer):
    follow: bool = required("Whether a client follows this unit.")


class Kept(Answer):
    artifact_id: str = required("SHA-256 of the manifest.")


class SecretValues(Answer):
    values: dict[str, str] = required("Secret values by name.")


class Leader(Answer):
    leads: bool = required("Whether the calling replica is the leader.")
    job_id: str = required("Job of the leading replica.")
    state: str = required("State of the leading replica: starting, ready, unhealthy or stopping.")
    address: str = required("IP address of the leading replica; empty before it has started.")
    port: int
    key: str = required("Bearer token for the leading replica; empty before it has started.")
    host: str = required("Host of the leading replica; empty before it has started.")


class TakenAttachment(Answer):
    about: dict[str, Any] | None = required("Requested command and terminal, or null if the request is no longer open.")


class AttachmentInput(Answer):
    state: Literal["running", "ended"] = required("ended if the client has disconnected, so the shell must exit.")
    size: str = required("Rows and columns of the terminal; empty if unchanged since the request.")
    closed: bool = required("Whether the input ends with these chunks.")
    upto: int = required("Offset after these chunks.")
    chunks: list[list[str]] = required('Pairs ["i", input in base64], in order.')


class AttachmentOutput(Answer):
    state: Literal["running", "ended"]
    upto: int = required("Total number of bytes accepted, which is the offset of the next call.")

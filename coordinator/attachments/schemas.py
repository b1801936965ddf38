"""Answers about attachments, for the API's description and the tests."""

from __future__ import annotations

from typing import Literal

from coordinator.schemas import Answer, required

State = Literal["asked", "running", "ended"]


class Attachment(Answer):
    """A shell was asked for; the runner begins it while the unit runs."""

    attachment_id: str
    job_id: str
    unit: int
    unit_state: str = required("running: it begins within about a second; waiting, retrying: once the unit runs.")


class Input(Answer):
    """Input was taken."""

    state: State
    upto: int = required("Bytes of input that were taken in all: go on there, also after a lost answer.")


class Output(Answer):
    """Output of a shell."""

    state: State
    exit: int | None = required("Its exit code; null while it runs, and where it did not end by itself.")
    reason: str = required("Why it ended, where not by itself: docs/attach.md lists them.")
    worker: str = required("The runner that has begun it; empty: none has.")
    unit_state: str = required("State of the unit while it is asked for; else empty.")
    upto: int = required("Place behind these bytes: ask for what comes after it, which lets go of what is before.")
    chunks: list[list[str]] = required('["o", bytes of stdout or of the terminal in base64] and ["e", ... of stderr].')

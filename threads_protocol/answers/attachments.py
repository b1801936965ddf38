"""Responses about attachments, which are shells in running programs."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from threads_protocol.answers.fields import Answer, Count, Many, describe, one_of

ShellState: TypeAlias = Annotated[str, one_of(Literal["asked", "running", "ended"])]


class Attachment(Answer):
    """A shell was requested. The runner starts it while the unit is running."""

    attachment_id: str
    job_id: str
    unit: Count
    unit_state: Annotated[
        str, describe("running: it begins within about a second; waiting, retrying: once the unit runs.")
    ]


class Input(Answer):
    """Input that the cluster accepted."""

    state: ShellState
    upto: Annotated[Count, describe("Bytes of input that were taken in all: go on there, also after a lost answer.")]


class Output(Answer):
    """Output of a shell."""

    state: ShellState
    exit: Annotated[int | None, describe("Its exit code; null while it runs, and where it did not end by itself.")]
    reason: Annotated[str, describe("Why it ended, where not by itself: docs/attach.md lists them.")]
    worker: Annotated[str, describe("The runner that has begun it; empty: none has.")]
    unit_state: Annotated[str, describe("State of the unit while it is asked for; else empty.")]
    upto: Annotated[
        Count, describe("Place behind these bytes: ask for what comes after it, which lets go of what is before.")
    ]
    chunks: Annotated[
        Many[Many[str]], describe('["o", bytes of stdout or of the terminal in base64] and ["e", ... of stderr].')
    ]

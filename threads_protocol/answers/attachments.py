"""Types of responses about attachments, which are shells in running programs."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from threads_protocol.answers.fields import Answer, Count, Many, describe, one_of

ShellState: TypeAlias = Annotated[str, one_of(Literal["asked", "running", "ended"])]


class Attachment(Answer):
    """A shell that a user requested. The runner starts it while the unit is running."""

    attachment_id: str
    job_id: str
    unit: Count
    unit_state: Annotated[
        str,
        describe(
            "State of the unit. If it is running, the shell starts within about a second; otherwise when the unit runs."
        ),
    ]


class Input(Answer):
    """Input for a shell that the cluster accepted."""

    state: ShellState
    upto: Annotated[
        Count, describe("Total bytes of input accepted. Continue at this offset, also after a lost response.")
    ]


class Output(Answer):
    """Output of a shell, and the shell's state."""

    state: ShellState
    exit: Annotated[
        int | None, describe("Exit code of the shell; null while it is running, and if the cluster ended it.")
    ]
    reason: Annotated[str, describe("Why the cluster ended the shell, as listed in docs/attach.md; else empty.")]
    worker: Annotated[str, describe("Runner that started the shell; empty if none has.")]
    unit_state: Annotated[str, describe("State of the unit while the shell has not started; else empty.")]
    upto: Annotated[
        Count, describe("Offset after these bytes. A request for this offset discards all output before it.")
    ]
    chunks: Annotated[
        Many[Many[str]],
        describe('Output chunks: ["o", base64 of stdout or of the terminal] and ["e", base64 of stderr].'),
    ]

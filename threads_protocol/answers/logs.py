"""Responses about logs that are followed."""

from __future__ import annotations

from typing import Annotated, Literal

from threads_protocol.answers.fields import Answer, Count, describe


class Output(Answer):
    """Consecutive bytes of a unit's output."""

    unit: Count
    attempt: Annotated[Count, describe("From 1 on; a unit that failed may be tried again.")]
    run: Annotated[
        str,
        describe(
            "Changes when the program is started again, for example after its worker died. Offsets then start at 0."
        ),
    ]
    offset: Annotated[Count, describe("Place of the first byte in all that this run of the program has written.")]
    stream: Literal["stdout", "stderr"]
    text: Annotated[str, describe("The bytes as UTF-8, with replacements.")]
    data: Annotated[str, describe("The bytes in base64.")]


class Dropped(Answer):
    """Output that was skipped because the program writes faster than 64 KiB/s or the reader is too slow."""

    bytes: Count


class End(Answer):
    """The unit has finished."""

    state: Annotated[
        str, describe("done or dead; failed or cancelled where its job has ended before it; deleted with its job.")
    ]
    exit: Annotated[int | None, describe("Exit code; null where it did not run.")]
    bytes: Annotated[Count, describe("Bytes of its log; 0 where it wrote nothing.")]

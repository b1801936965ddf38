"""Types of events in a live log: output, skipped output, and the end of the unit. Lines of the logs of many units."""

from __future__ import annotations

from typing import Annotated, Literal

from threads_protocol.answers.fields import Answer, Count, Many, describe
from threads_protocol.answers.jobs import UnitState


class Output(Answer):
    """Consecutive bytes of a unit's output."""

    unit: Count
    attempt: Annotated[Count, describe("Number of the attempt, from 1. A failed unit can be retried.")]
    run: Annotated[
        str,
        describe("Changes when the program is restarted, for example after its worker died. Offsets then start at 0."),
    ]
    offset: Annotated[Count, describe("Offset of the first byte in the output of this run of the program.")]
    stream: Literal["stdout", "stderr"]
    text: Annotated[str, describe("The bytes decoded as UTF-8, with replacement characters.")]
    data: Annotated[str, describe("The bytes in base64.")]


class Dropped(Answer):
    """Output that was skipped because the program writes faster than 64 KiB/s or the reader is too slow."""

    bytes: Count


class End(Answer):
    """The unit has finished."""

    state: Annotated[
        str, describe("done or dead; failed or cancelled if the job ended first; deleted if the job was deleted.")
    ]
    exit: Annotated[int | None, describe("Exit code; null if the unit did not run.")]
    bytes: Annotated[Count, describe("Size of the unit's log in bytes; 0 if it has none.")]


class LogLine(Answer):
    stream: Literal["stdout", "stderr"]
    text: Annotated[str, describe("The line decoded as UTF-8, with replacement characters. Long lines are cut.")]


class UnitExcerpt(Answer):
    """Lines of the log of one unit."""

    unit: Count
    state: UnitState
    lines: Many[LogLine]
    omitted: Annotated[Count, describe("Number of further lines: later matches, or earlier lines without a search.")]


class LogExcerpts(Answer):
    """Lines of the logs of many units, in the order of the units."""

    units: Annotated[Many[UnitExcerpt], describe("Units with at least one line.")]
    searched: Annotated[Count, describe("Number of units that were read.")]
    next: Annotated[Count | None, describe("First unit that was not read; null if all units were read.")]

"""Events of a log that is followed, for the API's description and the tests."""

from __future__ import annotations

from typing import Literal

from coordinator.schemas import Answer, required


class Output(Answer):
    """Bytes that a unit wrote in a row."""

    unit: int
    attempt: int = required("From 1 on; a unit that failed may be tried again.")
    run: str = required("Differs where the program was started again, as one whose worker died; offsets begin anew.")
    offset: int = required("Place of the first byte in all that this run of the program has written.")
    stream: Literal["stdout", "stderr"]
    text: str = required("The bytes as UTF-8, with replacements.")
    data: str = required("The bytes in base64.")


class Dropped(Answer):
    """Bytes that are not passed on: the program writes faster than 64 KiB/s, or the reader reads too slowly."""

    bytes: int


class End(Answer):
    """The unit has ended."""

    state: str = required("done or dead; failed or cancelled where its job has ended before it; deleted with its job.")
    exit: int | None = required("Exit code; null where it did not run.")
    bytes: int = required("Bytes of its log; 0 where it wrote nothing.")

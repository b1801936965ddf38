"""Client for shells in running units, over HTTP. Calls contain byte offsets, so they can be repeated safely."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from threads_cluster.client.connection import Connection
from threads_cluster.client.output import Stream
from threads_cluster.errors import UnexpectedAnswer
from threads_protocol.answers import attachments as attachment_answers

Json: TypeAlias = dict[str, Any]

#: Maximum number of input bytes per call.
MOST_BYTES = 16 << 10
#: Seconds for which a failing call is retried. The cluster closes a shell after 30 seconds without calls.
PATIENCE = 25.0
_STREAMS: dict[str, Stream] = {"o": "stdout", "e": "stderr"}


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """Size and type of the user's local terminal."""

    rows: int
    columns: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Output of a shell, and the shell's state."""

    #: State of the shell: asked, running or ended.
    state: str
    exit: int | None
    reason: str
    worker: str
    #: State of the unit, while the shell is waiting for the unit to start.
    unit_state: str
    upto: int
    pieces: list[tuple[Stream, bytes]]


class Attachment:
    """Shell in a running unit. The client chooses the shell's ID, so that a failed call can be repeated.

    `reading` and `typing` are the connections of two threads. `job_id` is already quoted for use in a path.
    """

    def __init__(self, reading: Connection, typing: Connection, job_id: str) -> None:
        self._reading, self._typing = reading, typing
        self._path = f"/api/jobs/{job_id}/attachments/{uuid.uuid4().hex}"
        self._typed = 0

    def ask(self, unit: int, command: Sequence[str] | None, terminal: Terminal | None) -> Json:
        """Request the shell, and return its record, which contains the state of the unit."""
        stated = {"rows": terminal.rows, "columns": terminal.columns, "name": terminal.name} if terminal else None
        body = {"unit": unit, "command": list(command) if command else None, "terminal": stated}
        row: Json = self._reading.ask("PUT", self._path, attachment_answers.Attachment, patience=PATIENCE, body=body)
        return row

    def read(self, after: int, wait_seconds: float) -> Shown:
        """Return the output after a byte offset. Wait up to `wait_seconds` for new output."""
        row: Json = self._reading.ask(
            "GET",
            f"{self._path}/output",
            attachment_answers.Output,
            patience=PATIENCE,
            extra_seconds=wait_seconds,
            after=str(after),
            wait_seconds=f"{wait_seconds:g}",
        )
        try:
            pieces = [(_STREAMS[stream], base64.b64decode(text, validate=True)) for stream, text in row["chunks"]]
        except (KeyError, ValueError, binascii.Error):
            raise UnexpectedAnswer(self._reading.url, "the output of the shell is invalid") from None
        if row["upto"] != after + sum(len(data) for _, data in pieces):
            raise UnexpectedAnswer(self._reading.url, "bytes of a shell's output are missing")
        return Shown(pieces=pieces, **{name: row[name] for name in _SHOWN})

    def write(self, data: bytes, *, closed: bool = False, size: tuple[int, int] | None = None) -> bool:
        """Send input and the size of the terminal to the shell. Return False if the shell has exited."""
        sizes = {"rows": size[0], "columns": size[1]} if size else {}
        while True:
            now = data[:MOST_BYTES]
            body = {"offset": self._typed, "data": base64.b64encode(now).decode(), **sizes}
            body["closed"] = closed and len(now) == len(data)
            wait = 10.0 if now else 0.0
            row = self._typing.ask(
                "POST",
                f"{self._path}/input",
                attachment_answers.Input,
                patience=PATIENCE,
                extra_seconds=wait,
                body=body,
                wait_seconds=f"{wait:g}",
            )
            if row["state"] == "ended":
                return False
            data, self._typed = data[max(0, row["upto"] - self._typed) :], max(self._typed, row["upto"])
            if not data:
                return True

    def leave(self, *, typing: bool = False) -> None:
        """Close the shell. With `typing`, use the connection of the thread that sends input."""
        (self._typing if typing else self._reading).ask("DELETE", self._path, patience=2.0)


_SHOWN = ("state", "exit", "reason", "worker", "unit_state", "upto")

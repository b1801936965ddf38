"""Client of the worker API for shells in running programs, used by runners."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from jobs.worker.api.api_calls import Api

#: Maximum size of one write in bytes.
MAX_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True)
class ShellInput:
    """Input for a shell, with the size of the user's terminal."""

    #: True if the shell must be closed.
    over: bool
    #: Terminal size in rows and columns, or an empty string for the initial size.
    size: str
    #: True if no input follows these bytes.
    closed: bool
    #: Offset in the input stream after these bytes.
    upto: int
    data: bytes


class ApiAttachments:
    """Client for shells (attachments) in programs that a runner executes. Thread-safe.

    Every call can be repeated. Methods raise CoordinatorAway and CoordinatorRejects.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def take(self, attachment: str, job: str, lease: str, unit: int) -> dict[str, Any] | None:
        """Claim a requested shell (attachment) in a unit of this lease. Return the request, or None if it has ended."""
        about = self._call(attachment, job, lease, "take", unit=unit)["about"]
        return dict(about) if about else None

    def read(
        self,
        attachment: str,
        job: str,
        lease: str,
        after: int,
        *,
        size: str = "",
        closed: bool = False,
        wait_seconds: float = 0.0,
    ) -> ShellInput:
        """Return the input of a shell after an offset, and wait if there is no input yet.

        The call returns when there is input, the request has changed, or `wait_seconds` have passed.
        """
        found = self._call(
            attachment,
            job,
            lease,
            "input",
            after=after,
            size=size,
            closed=closed,
            wait_seconds=wait_seconds,
            seconds=wait_seconds,
        )
        data = b"".join(base64.b64decode(text) for _, text in found["chunks"])
        return ShellInput(
            over=found["state"] == "ended",
            size=str(found["size"]),
            closed=bool(found["closed"]),
            upto=int(found["upto"]),
            data=data,
        )

    def write(
        self, attachment: str, job: str, lease: str, offset: int, stream: str, data: bytes, *, wait_seconds: float = 0.0
    ) -> int | None:
        """Send output that starts at `offset`; `stream` is o (stdout) or e (stderr).

        Returns the offset up to which the coordinator accepted the output, or None if the attachment has ended. The
        coordinator accepts nothing while too much output waits for the reader.
        """
        text = base64.b64encode(data).decode()
        done = self._call(
            attachment,
            job,
            lease,
            "output",
            offset=offset,
            stream=stream,
            data=text,
            wait_seconds=wait_seconds,
            seconds=wait_seconds,
        )
        return None if done["state"] == "ended" else int(done["upto"])

    def end(self, attachment: str, job: str, lease: str, code: int | None, reason: str) -> None:
        """Report that a shell has exited or could not be started."""
        self._call(attachment, job, lease, "end", exit=code, reason=reason[:500])

    def _call(
        self, attachment: str, job: str, lease: str, name: str, *, seconds: float = 0.0, **body: Any
    ) -> dict[str, Any]:
        path = f"jobs/{job}/attachments/{attachment}/{name}"
        return self._api.call(path, {"lease": lease, **body}, slower_seconds=seconds)

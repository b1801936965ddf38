"""Shells beside running programs over the worker API, for the runner that runs them: begin, read, write, end."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from jobs.worker.api.api_calls import Api

#: Bytes of one write at most.
MAX_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True)
class Typed:
    """Bytes that were typed, and the terminal of who types."""

    #: Nobody wants the shell any more.
    over: bool
    #: Rows and columns; empty: as asked for.
    size: str
    #: Nothing comes after these bytes.
    closed: bool
    #: Place behind these bytes.
    upto: int
    data: bytes


class ApiAttachments:
    """Attachments beside units of a runner's leases; thread-safe. Raises CoordinatorAway and CoordinatorRejects.

    Each call may be repeated.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def take(self, attachment: str, job: str, lease: str, unit: int) -> dict[str, Any] | None:
        """Begin one beside a unit of this lease; return what was asked for, or None when it is over."""
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
    ) -> Typed:
        """Return what was typed after a place, once there is something, what is known has changed, or time is over."""
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
        return Typed(
            over=found["state"] == "ended",
            size=str(found["size"]),
            closed=bool(found["closed"]),
            upto=int(found["upto"]),
            data=data,
        )

    def write(
        self, attachment: str, job: str, lease: str, offset: int, stream: str, data: bytes, *, wait_seconds: float = 0.0
    ) -> int | None:
        """Pass on what a shell wrote from a place on, o or e; return how far it was taken, None when it is over.

        Nothing is taken while too much waits for its reader.
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
        """Say that a shell has ended, or was not begun."""
        self._call(attachment, job, lease, "end", exit=code, reason=reason[:500])

    def _call(
        self, attachment: str, job: str, lease: str, name: str, *, seconds: float = 0.0, **body: Any
    ) -> dict[str, Any]:
        path = f"jobs/{job}/attachments/{attachment}/{name}"
        return self._api.call(path, {"lease": lease, **body}, slower_seconds=seconds)

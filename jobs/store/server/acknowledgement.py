"""Acknowledged writes: a call returns only after Redis replicas or disks have stored its writes.

WAIT and WAITAOF cover the writes of the same connection. The waiting command is therefore in the same pipeline as the
writes: another connection could reach a server without these writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobs.store import keys
from jobs.store.server.connection import Unacknowledged

#: Maximum wait in milliseconds, which is shorter than the coordinator's timeout for a reply.
WAIT_MS = 2500


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """Servers that must have stored a write before the call returns. By default, only the master."""

    #: Number of replicas that must have stored the write.
    replicas: int = 0
    #: True if the write must be on the disks of the master and of the replicas. Requires Redis 7.2.
    disk: bool = False
    #: True if an earlier call may have made the same write. The call then waits for that write, too.
    repeatable: bool = field(default=True)

    def __bool__(self) -> bool:
        return self.disk or self.replicas > 0

    def ask(self, pipe: Any) -> None:
        """Add a WAIT or WAITAOF command to a pipeline. Pass the reply of this command to `check`."""
        if self.repeatable:  # A full Redis rejects this additional write
            pipe.set(keys.DURABLE, 1)
        if self.disk:
            pipe.waitaof(1, self.replicas, WAIT_MS)
        else:
            pipe.wait(self.replicas, WAIT_MS)

    def check(self, reply: Any) -> None:
        """Raise Unacknowledged if too few servers have stored the write."""
        if isinstance(reply, Exception):
            raise reply
        local, replicas = reply if self.disk else (1, reply)
        if self.disk and not local:
            raise Unacknowledged(_unknown("the write is not on Redis' disk"))
        if replicas < self.replicas:
            raise Unacknowledged(_unknown(f"only {replicas} of {self.replicas} replicas have the write"))


def _unknown(why: str) -> str:
    return (
        f"written, but {why} after {WAIT_MS / 1000:g} s, so the write may be lost: send the request again; "
        "repeat a submission with the same idempotency key"
    )

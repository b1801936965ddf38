"""Acknowledged writes: a call returns only after replicas, or Redis' disk, have what it wrote.

Redis waits for the writes of the same connection. The waiting command is therefore in the same pipeline as the writes:
another connection could reach a server that never had them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobs.store import keys
from jobs.store.server.connection import Unacknowledged

#: Longest wait in milliseconds. Shorter than the coordinator waits for a reply.
WAIT_MS = 2500


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """Servers that must have a write before the call counts as done. By default only the master."""

    #: Number of replicas that must have it.
    replicas: int = 0
    #: Whether the disks of the master and these replicas must have it. Needs Redis 7.2.
    disk: bool = False
    #: Whether the call may find its work done by another connection. A further write then makes Redis wait for that,
    #: too.
    repeatable: bool = field(default=True)

    def __bool__(self) -> bool:
        return self.disk or self.replicas > 0

    def ask(self, pipe: Any) -> None:
        """Add the waiting commands to a pipeline. `check` takes the reply of the last one."""
        if self.repeatable:  # a full Redis refuses it, and then what the call itself wrote is waited for
            pipe.set(keys.DURABLE, 1)
        if self.disk:
            pipe.waitaof(1, self.replicas, WAIT_MS)
        else:
            pipe.wait(self.replicas, WAIT_MS)

    def check(self, reply: Any) -> None:
        """Raise Unacknowledged if too few servers have the write."""
        if isinstance(reply, Exception):
            raise reply
        local, replicas = reply if self.disk else (1, reply)
        if self.disk and not local:
            raise Unacknowledged(_unknown("it is not on Redis' disk"))
        if replicas < self.replicas:
            raise Unacknowledged(_unknown(f"{replicas} of {self.replicas} replicas have it"))


def _unknown(why: str) -> str:
    return (
        f"written, but {why} after {WAIT_MS / 1000:g} s, so that it is unknown whether it will last: send it again, "
        "a submit with the same idempotency key"
    )

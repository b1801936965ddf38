"""Acknowledged writes: a call is answered only when replicas, or Redis' disk, have what it wrote.

Redis waits for what the asking connection wrote. So the command that waits goes with the writes in one pipeline: on
another connection it could ask a server that never had them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobs.store import keys
from jobs.store.server.connection import Unacknowledged

#: Longest wait: shorter than the coordinator waits for a reply.
WAIT_MS = 2500


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """Servers that must have a write before the call counts as done. By default nothing: the master alone."""

    #: Replicas that must have it.
    replicas: int = 0
    #: The master's disk must have it, and those of the replicas; needs Redis 7.2.
    disk: bool = False
    #: The call may find that another connection did its work: a further write makes Redis wait for that, too.
    repeatable: bool = field(default=True)

    def __bool__(self) -> bool:
        return self.disk or self.replicas > 0

    def ask(self, pipe: Any) -> None:
        """Add the commands that wait; `check` takes the reply of the last one."""
        if self.repeatable:  # a full Redis refuses it, and then what the call itself wrote is waited for
            pipe.set(keys.DURABLE, 1)
        if self.disk:
            pipe.waitaof(1, self.replicas, WAIT_MS)
        else:
            pipe.wait(self.replicas, WAIT_MS)

    def check(self, reply: Any) -> None:
        """Raise Unacknowledged when the reply of Redis is too little."""
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

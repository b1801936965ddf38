"""Redis' append-only file, the AOF: whether Redis keeps one, and its rewriting."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobs.store import keys, skipped
from jobs.store.server.connection import ResponseError
from jobs.store.server.functions import Part


class AofState(NamedTuple):
    """State of the file, as INFO describes it."""

    #: Redis still reads it, and says meanwhile that it is off.
    loading: bool
    enabled: bool
    #: A rewrite runs, or will as soon as Redis has ended a snapshot.
    rewriting: bool
    #: The last rewrite since Redis' start failed.
    failed: bool
    #: The last write to the file failed: Redis refuses writes until one succeeds.
    unwritten: bool = False


class RewriteRefused(Exception):
    """Redis does not rewrite its file: the user may not ask for it, or Redis cannot fork, or has no such command."""


class Aof(Part):
    """Asks Redis about its append-only file, and to rewrite it."""

    def cause(self) -> str:
        """Return a text that is another one after each start of Redis, and after it has refused writes for its disk.

        Empty where Redis does not say.
        """
        pipe = self._pipe()
        pipe.info("server")
        pipe.info("errorstats")
        server, refused = pipe.execute()
        run_id, times = str(server.get("run_id", "")), refused.get("errorstat_MISCONF", {}).get("count", 0)
        return f"{run_id}:{times}" if run_id and times else run_id

    def state(self) -> AofState:
        """Return the state of the file."""
        info: dict[str, Any] = self._client.info("persistence")
        return AofState(
            loading=bool(info.get("loading")),
            enabled=bool(info.get("aof_enabled")),
            rewriting=bool(info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")),
            failed=info.get("aof_last_bgrewrite_status") == "err",
            unwritten=info.get("aof_last_write_status") == "err",
        )

    def rewrite(self) -> None:
        """Begin a rewrite, in a process that Redis forks. RewriteRefused when Redis does not."""
        try:
            self._client.execute_command("BGREWRITEAOF")
        except ResponseError as error:
            if "in progress" not in str(error):
                raise RewriteRefused(str(error)) from error

    def rewritten(self) -> str:
        """Return the `cause` for which the file was last rewritten for good; empty: none."""
        [cause] = skipped.replies(self._pipe().get(keys.REWRITTEN))
        return cause.decode(errors="replace") if cause else ""

    def note_rewritten(self, cause: str) -> None:
        """Let every later leader know that the file was rewritten for this `cause`."""
        self._client.set(keys.REWRITTEN, cause)

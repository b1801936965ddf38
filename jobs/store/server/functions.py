"""Client for calls of this project's Redis functions.

Every function is atomic, idempotent and uses Redis time, so a call can be repeated after a lost reply.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from jobs import metrics, queues, releases
from jobs.store import keys
from jobs.store.server.acknowledgement import Acknowledgement
from jobs.store.server.connection import (
    Client,
    Denied,
    Full,
    FullWithoutFunctions,
    IncompatibleRelease,
    LibraryMissing,
    LoadDenied,
    NameTaken,
    ResponseError,
    wrong_type,
    wrong_type_of,
)
from jobs.store.server.library import Library, Setting, make_library

LEASE_TTL_MS = 3000
#: Duration of program leases in milliseconds. A disconnected runner can reconnect within this time.
PROGRAM_TTL_MS = 30_000
SLOT_TTL_MS = 3000
#: Duration in milliseconds of a GPU worker's claim to a GPU.
GPU_TTL_MS = 5000
#: Duration in milliseconds of a runner's claim to a GPU.
#: The claim is long, because a disconnected runner can suspend programs for ten minutes.
PROGRAM_GPU_TTL_MS = PROGRAM_TTL_MS + 620_000
WORKER_TTL_MS = 5000
#: Maximum number of stored spans. Up to this number, spans are dropped only by age.
SPANS_KEPT = 20_000


#: Functions that a full Redis rejects, mapped to alternatives that add no data.
WHEN_FULL = {"lease": "lease_when_full", "submit": "submit_when_full"}


@dataclass(frozen=True)
class Limits:
    """Limits of retries: lane deaths per range, errors per range, and ranges per retry call."""

    expiries: int = 3
    errors: int = 3
    #: Maximum number of a program's ranges that one retry call moves. Moving them takes a few milliseconds.
    retried: int = 1000


LIMITS = Limits()


class Functions:
    """Calls of the Redis functions through one client.

    `run_acknowledged` waits until `replicas` Redis replicas have its writes. Only tests set `clock` (Lua text that
    defines now()) and `limits`.
    """

    def __init__(
        self,
        client: Client,
        *,
        replicas: int = 0,
        loads: bool = True,
        clock: str | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.client = client
        self.replicas = replicas
        self._loads = loads
        self.library: Library = make_library(settings_of(limits), clock)
        self._is_release_checked = False

    def function(self, name: str) -> str:
        """Return the full name that a function has in Redis."""
        return self.library.function(name)

    def load(self) -> None:
        """Load the function library into Redis, and record this release there.

        Raises LibraryMissing or LoadDenied if this process is not allowed to load it, IncompatibleRelease if this
        release cannot use the data, NameTaken if another library has a function with the same name, or
        FullWithoutFunctions.
        """
        stored = self._check_release()
        if not self._loads:
            raise LibraryMissing(self.library.name)
        self._load_library()
        after = releases.OWN.stored_after(stored)
        if after != stored:
            self.client.set(keys.RELEASE, str(after))

    def _check_release(self) -> releases.Stored | None:
        """Return the release that Redis records. Raises IncompatibleRelease if this release cannot work with it."""
        text = self.client.get(keys.RELEASE)
        stored = releases.Stored.parse(text.decode()) if text else None
        if obstacle := releases.OWN.store_obstacle(stored, loads=self._loads):
            raise IncompatibleRelease(obstacle)
        self._is_release_checked = True
        return stored

    def _load_library(self) -> None:
        try:
            self.client.execute_command("FUNCTION LOAD", "REPLACE", self.library.text)
        except Denied as error:
            raise LoadDenied(self.library.name) from error
        except Full as error:
            raise FullWithoutFunctions(self.library.name) from error
        except ResponseError as error:
            if "already exists" in str(error):
                raise NameTaken(self.library.name, str(error)) from error
            raise

    def run(self, name: str, *arguments: Any) -> Any:
        """Call a Redis function and return its reply."""
        [reply] = self._call(name, [arguments], None)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run_texts(self, name: str, *arguments: Any) -> list[str]:
        """Call a Redis function and return its reply as a list of strings."""
        return _texts(self.run(name, *arguments))

    def run_acknowledged(self, name: str, *arguments: Any, repeatable: bool = True) -> Any:
        """Call a Redis function, and return its reply after enough replicas have stored its writes. Raises
        Unacknowledged.

        With `repeatable`, replicas must also have the writes of an earlier call that the reply may describe.
        """
        asked = Acknowledgement(replicas=self.replicas, repeatable=repeatable)
        if not asked:
            return self.run(name, *arguments)
        [reply] = self.many(name, [arguments], asked)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run_acknowledged_texts(self, name: str, *arguments: Any) -> list[str]:
        """Call a function with `run_acknowledged`, and return its reply as a list of strings."""
        return _texts(self.run_acknowledged(name, *arguments))

    def many(self, name: str, calls: Sequence[Sequence[Any]], asked: Acknowledgement | None = None) -> list[Any]:
        """Call one Redis function many times in one round trip. The reply to a failed call is an exception.

        Raises Unacknowledged if the servers in `asked` lack the writes.
        """
        return self._call(name, calls, asked)

    def _call(self, name: str, calls: Sequence[Sequence[Any]], asked: Acknowledgement | None) -> list[Any]:
        replies = self._call_with_library(name, calls, asked)
        full = [at for at, reply in enumerate(replies) if isinstance(reply, Full)] if name in WHEN_FULL else []
        if full:
            served = self._call_with_library(WHEN_FULL[name], [calls[at] for at in full], asked)
            for at, reply in zip(full, served, strict=True):
                replies[at] = reply
        return replies

    def _call_with_library(self, name: str, calls: Sequence[Sequence[Any]], asked: Acknowledgement | None) -> list[Any]:
        """Make the calls. If the server lacks the library, for example after a failover, load the library first."""
        if not self._is_release_checked:
            self._check_release()
        replies = self._send(name, calls, asked)
        if any(_is_missing(reply) for reply in replies):
            self.load()
            replies = self._send(name, calls, asked)
        answers = replies[: len(calls)]
        if asked and not all(isinstance(reply, Exception) for reply in answers):
            asked.check(replies[-1])
        return answers

    def _send(self, name: str, calls: Sequence[Sequence[Any]], asked: Acknowledgement | None) -> list[Any]:
        function = self.function(name)
        if len(calls) == 1 and not asked:  # For one call, a pipeline needs twice the CPU time.
            try:
                return [self.client.execute_command("FCALL", function, 0, *calls[0])]
            except ResponseError as error:
                return [error]
        pipe = self.client.pipeline(transaction=False)
        for arguments in calls:
            pipe.fcall(function, 0, *arguments)
        if asked:
            asked.ask(pipe)
        return cast(list[Any], pipe.execute(raise_on_error=False))

    def read(self, *commands: Sequence[str]) -> list[Any]:
        """Execute read commands atomically and return their replies. Raises the first error.

        This also works if Redis is full.
        """
        replies = self.replies(*commands) if commands else []
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                raise wrong_type_of(command) if wrong_type(reply) else reply
        return replies

    def replies(self, *commands: Sequence[str]) -> list[Any]:
        """Execute read commands atomically and return their replies. The reply to a failed command is an exception."""
        return cast(list[Any], self.run("read", json.dumps(commands)))


def _texts(reply: Sequence[Any]) -> list[str]:
    return [item.decode() if isinstance(item, bytes) else str(item) for item in reply]


def _is_missing(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and "Function not found" in str(reply)


def settings_of(limits: Limits) -> dict[str, Setting]:
    """Return the values of the constant SETTINGS in the Lua library."""
    return {
        "max_expiries": limits.expiries,
        "max_errors": limits.errors,
        "retried_ranges": limits.retried,
        "bounds": metrics.SECONDS,
        "bound_names": [str(bound) for bound in metrics.SECONDS],
        "queues": queues.ALL,
        "lease_ttl_ms": LEASE_TTL_MS,
        "program_ttl_ms": PROGRAM_TTL_MS,
        "kernel_claim_ttl_ms": GPU_TTL_MS,
        "program_claim_ttl_ms": PROGRAM_GPU_TTL_MS,
        "slot_ttl_ms": SLOT_TTL_MS,
        "worker_ttl_ms": WORKER_TTL_MS,
        "spans_kept": SPANS_KEPT,
    }


class Part:
    """Base class of the parts of a Store. The parts share one function library and one Redis client."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    @property
    def _client(self) -> Client:
        return self._functions.client

    def now_ms(self) -> int:
        """Return the current Redis time in milliseconds since 1970."""
        seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def _pipe(self) -> Any:
        """Return a pipeline without MULTI, because a full Redis rejects MULTI."""
        return self._client.pipeline(transaction=False)

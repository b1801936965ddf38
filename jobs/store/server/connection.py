"""Connections to Redis and the errors that say that it cannot serve. The only module that imports redis."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.connection import DefaultParser
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool, SentinelManagedConnection
from redis.sentinel import Sentinel as SentinelClient

from jobs.network import redis_address

#: A redis.Redis; its own annotations are unions over every mode it can run in, which say nothing.
Client: TypeAlias = Any
RedisError = redis.exceptions.RedisError
#: Redis' rules do not let this user do that.
Denied = redis.exceptions.NoPermissionError
ResponseError = redis.exceptions.ResponseError
#: Redis has no memory for what a call would add.
Full = redis.exceptions.OutOfMemoryError
SilenceError = redis.exceptions.TimeoutError


class Refused(redis.exceptions.ResponseError):
    """Redis takes no writes for now: it cannot save, lacks replicas, has a broken key, or runs a function too long."""


class Silent(redis.exceptions.ConnectionError):
    """Redis has not answered for some time; the connection may still look whole."""


class TooOld(redis.exceptions.ResponseError):
    """Redis has no functions, which came with version 7."""

    def __init__(self, _answer: str) -> None:
        super().__init__("redis is older than 7 and cannot run this version: upgrade to Redis or Valkey 7 or later")


class LibraryMissing(redis.exceptions.ConnectionError):
    """Redis has not the functions of this version, and this user may not load them."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"redis has no functions of this version ({library}), and only coordinators load them: start a coordinator"
            " of the same version"
        )


class LoadDenied(LibraryMissing):
    """Redis has not the functions of this version, and its rules do not let this coordinator load them."""

    def __init__(self, library: str) -> None:
        redis.exceptions.ConnectionError.__init__(
            self,
            f"redis has no functions of this version ({library}), and the user of REDIS_URL may not load them: allow it"
            " +function|load, as `python -m jobs.store.acl` prints it for coordinators",
        )


class CoordinatorAway(redis.exceptions.ConnectionError):
    """The coordinator of WORKER_API cannot be reached, or cannot serve now; the call may be repeated."""

    def __init__(self, detail: str, pause_seconds: float) -> None:
        super().__init__(detail)
        #: After which it is worth another try.
        self.pause_seconds = pause_seconds


class CoordinatorRejects(redis.exceptions.ResponseError):
    """The coordinator of WORKER_API does not take what a call holds; repeated, it is rejected again."""

    def __init__(self, detail: str, status: int = 0, field: str = "") -> None:
        super().__init__(detail)
        #: HTTP status of the answer, and the field that it names; 0 and empty where there is none.
        self.status = status
        self.field = field


class Unacknowledged(redis.exceptions.ConnectionError):
    """A write was made, and too few have it; the message says which and what to do."""


#: Errors of a call while Redis cannot be reached or takes no writes; the call may be repeated.
Unreachable = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    Full,
    redis.exceptions.MasterDownError,
    Refused,
    TooOld,
)
#: Those of a server that is not the master, or not yet: another connection may find it.
Replaced = (
    redis.exceptions.ConnectionError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    Refused,
)
#: Refusals by how they begin, wherever in an error's text: functions and pipelines put words of their own before it.
_REFUSALS: dict[str, type[RedisError]] = {
    "OOM command": Full,
    "OOM allow-oom": Full,
    "READONLY You": redis.exceptions.ReadOnlyError,
    "READONLY Can": redis.exceptions.ReadOnlyError,
    "LOADING Redis": redis.exceptions.BusyLoadingError,
    "LOADING Valkey": redis.exceptions.BusyLoadingError,
    "MASTERDOWN Link": redis.exceptions.MasterDownError,
    "MISCONF ": Refused,
    "NOREPLICAS Not": Refused,
    "BUSY Redis": Refused,
    "BUSY Valkey": Refused,
    # SUBMIT while the indexes wait to be rebuilt; the key that was broken follows.
    "DAMAGED ": Refused,
    # Of a call that waits, when its server becomes a replica.
    "UNBLOCKED force": Refused,
    "unknown command `FCALL": TooOld,
    "unknown command `FUNCTION": TooOld,
}
#: A refusal after Redis could not write, with the system's word for why.
_UNWRITTEN = re.compile(r"MISCONF .*(?:Errors writing to the AOF file|AOF error): (.*?)(?: script: .*)?$", re.DOTALL)
#: Errors whose text says in words for people what Redis lacks.
_EXPLAINED = (TooOld, LibraryMissing, Unacknowledged)
#: A name that was not resolved; getaddrinfo's numbers are negative, those of connections are not.
_NAMELESS = re.compile(r"Error -\d+ connecting")
#: Errors of reading a broken entry; anything else is a fault of the program or of the connection.
Unreadable = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, AttributeError)

#: The kernel notices a peer that neither answers nor resets: after 5 s of silence, three probes 2 s apart.
KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))
    if hasattr(socket, name)
}


#: Seconds for which a sentinel is waited for.
SENTINEL_SECONDS = 1.0


def wrong_type(error: object) -> bool:
    """Return True for Redis' answer that a key has another type than the command."""
    return isinstance(error, redis.exceptions.ResponseError) and "WRONGTYPE" in str(error)


def refusal(text: str) -> RedisError | None:
    """Return the error of Unreachable that a text is: Redis' refusal of any call or of any write; None for others."""
    for beginning, error in _REFUSALS.items():
        place = text.find(beginning)
        if place == 0 or (place > 0 and text[place - 1] in " -"):
            return error(text[place:])
    return None


def reason(error: Exception) -> str:
    """Return one of Unreachable in words for people, without Redis' address."""
    if isinstance(error, _EXPLAINED):
        return str(error)
    if isinstance(error, Full):
        return "redis is full; delete jobs that have ended, or raise its maxmemory"
    if isinstance(error, redis.exceptions.BusyLoadingError):
        return "redis has just started and reads its data"
    if isinstance(error, redis.exceptions.ResponseError):
        return _refused(str(error))
    if isinstance(error, MasterNotFoundError):
        return "redis has no master now: no sentinel of REDIS_URL that answers names one"
    if isinstance(error, redis.exceptions.AuthenticationError):
        return "redis cannot be reached: it refuses the password of REDIS_URL"
    if isinstance(error, redis.exceptions.TimeoutError):
        return "redis cannot be reached: it does not answer in time"
    return f"redis cannot be reached: {_unreachable(error)}"


def _refused(text: str) -> str:
    if unwritten := _UNWRITTEN.search(text):
        return f"redis cannot write its append-only file ({unwritten[1]}): make room on its disk, see df -h"
    if text.startswith("DAMAGED"):
        key = text.partition(" ")[2]
        return (
            f"the key {key} in redis is broken, so no jobs are accepted; its operator rebuilds the indexes with"
            " python -m jobs.store.reindex"
        )
    if text.startswith("BUSY"):
        return "redis runs a function that does not end; its operator stops it with FUNCTION KILL"
    return f"redis takes no writes ({text[:100]})"


def _unreachable(error: Exception) -> str:
    if "Connection refused" in str(error):
        return "nothing listens at REDIS_URL"
    if _NAMELESS.match(str(error)):
        return "the name in REDIS_URL has no address, as when the container of Redis does not run"
    if "Connection closed by server" in str(error):
        return "it has closed the connection, as when it stops"
    return type(error).__name__


def away(error: Exception) -> str:
    """Return one of Unreachable in words for the log of a worker."""
    said = isinstance(error, (CoordinatorAway, *_EXPLAINED))
    return str(error) if said else f"redis cannot be reached: {error}"


def pause(error: Exception, seconds: float) -> float:
    """Return the seconds before another try: those that one of Unreachable names itself, else `seconds`."""
    return error.pause_seconds if isinstance(error, CoordinatorAway) else seconds


class ReplyParser(DefaultParser):  # type: ignore[misc,valid-type]
    """Names Redis' refusals however they are wrapped: in a script's error, and without a name of the library."""

    @classmethod
    def parse_error(cls, response: str) -> Exception:
        """Return the error of Redis' text, a refusal under its own name."""
        return refusal(response) or super().parse_error(response)


class SentinelServers(SentinelClient):
    """Asks sentinels in turn, the one first that named the master last.

    A list of them is replaced and never changed: threads that look for a master at once would lose some of it.
    """

    def discover_master(self, service_name: str) -> tuple[Any, Any]:
        """Return host and port of the master by the first sentinel that knows one; MasterNotFoundError."""
        asked = self.sentinels
        for sentinel in asked:
            try:
                masters: Any = sentinel.sentinel_masters()
                state = masters.get(service_name)
                usable = state and self.check_master_state(state, service_name)  # type: ignore[no-untyped-call]
            except (RedisError, *Unreadable):  # something else may listen there
                continue
            if usable:
                self.sentinels = [sentinel, *(each for each in asked if each is not sentinel)]
                return state["ip"], state["port"]
        raise MasterNotFoundError(f"no sentinel names a master for {service_name}")

    def doubt(self) -> None:
        """Ask another one first from now on: a sentinel that is cut off names a master of before."""
        self.sentinels = [*self.sentinels[1:], *self.sentinels[:1]]


class _MasterConnection(SentinelManagedConnection):
    """Ends when its server has lost its replicas or is busy: another may be the master by now.

    Whenever the server is not what a sentinel said, another sentinel is asked for the next connection.
    """

    def connect_to(self, address: tuple[Any, Any]) -> None:
        """Connect to the server that a sentinel named."""
        try:
            super().connect_to(address)  # type: ignore[no-untyped-call]
        except Unreachable:
            self._doubt()
            raise

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Return the next reply. After NOREPLICAS or BUSY, connect to the master that sentinels name.

        Whatever keeps it from being read ends the connection, as of one without sentinels: the library would leave it
        open, and the next command would take that reply for its own.
        """
        options.setdefault("disconnect_on_error", True)
        try:
            return super().read_response(*arguments, **options)
        except (Refused, redis.exceptions.ConnectionError) as error:
            if any(code in str(error) for code in ("NOREPLICAS", "BUSY")):
                self.disconnect()  # type: ignore[no-untyped-call]
                self._doubt()
            elif "is now a slave" in str(error):  # the library's words; it has disconnected
                self._doubt()
            raise

    def _doubt(self) -> None:
        self.connection_pool.sentinel_manager.doubt()


def connect(url: str, *, retries: int = 3, timeout: float | None = 5.0) -> Client:
    """Return a client of the Redis at `url`; `timeout` in seconds a reply.

    `retries` repeats whole commands: 0 for RQ, whose writes are not idempotent.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": 3,
        "socket_timeout": timeout,
        "health_check_interval": 10,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.1, cap=1), retries),
        "parser_class": ReplyParser,
        # A worker may not name its library to the server.
        "driver_info": None,
        "retry_on_error": [redis.exceptions.BusyLoadingError, redis.exceptions.ReadOnlyError],
    }
    if not url.startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": KEEPALIVE}
    redis_address.check(url)
    if url.startswith(redis_address.SENTINELS):
        return _of_sentinels(redis_address.sentinels(url), options)
    return redis.Redis.from_url(url, **options)


def _of_sentinels(place: redis_address.Sentinels, options: dict[str, Any]) -> Client:
    """Return a client of the master: each new connection asks the sentinels, in turn, which server that is."""
    asking = {
        "username": place.sentinel_user,
        "password": place.sentinel_password,
        "socket_timeout": SENTINEL_SECONDS,
        "driver_info": None,
        # The next sentinel is asked instead.
        "retry": Retry(NoBackoff(), 0),
    }
    sentinel: Any = SentinelServers(place.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    master: Client = sentinel.master_for(
        place.service,
        db=place.database,
        username=place.user,
        password=place.password,
        connection_class=_MasterConnection,
        **options,
    )
    return master


@dataclass(frozen=True, kw_only=True)
class Server:
    """Address of a server, and the commands with which a new connection begins."""

    host: str
    port: int
    greeting: tuple[tuple[str, ...], ...]


def server_of(client: Client) -> Server | None:
    """Return the server to which a client connects next; None if the connection has TLS or is no TCP connection.

    Sentinels are asked which server is the master. Raises one of Unreachable.
    """
    pool, options = client.connection_pool, client.get_connection_kwargs()
    if issubclass(pool.connection_class, redis.SSLConnection) or "path" in options:
        return None
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    if isinstance(pool, SentinelConnectionPool):
        host, port = pool.get_master_address()  # type: ignore[no-untyped-call]
    return Server(host=host, port=int(port), greeting=tuple(_greeting(options)))


def _greeting(options: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """List the commands that log a connection in and choose its database."""
    if options.get("password"):
        yield ("AUTH", options.get("username") or "default", options["password"])
    if options.get("db"):
        yield ("SELECT", str(options["db"]))


def error_of(text: str) -> Exception:
    """Return the error that a text of Redis is."""
    return ReplyParser.parse_error(text)

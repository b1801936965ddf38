"""Connections to Redis, and errors that mean that it cannot serve. The only module that imports redis."""

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

#: A redis.Redis. Its own annotations are unions of all its modes, which are useless here.
Client: TypeAlias = Any
RedisError = redis.exceptions.RedisError
#: Redis' ACL does not allow this user to do that.
Denied = redis.exceptions.NoPermissionError
ResponseError = redis.exceptions.ResponseError
#: Redis has no memory for what a call would add.
Full = redis.exceptions.OutOfMemoryError
SilenceError = redis.exceptions.TimeoutError


class Refused(redis.exceptions.ResponseError):
    """Redis refuses writes: it cannot save, lacks replicas, has a broken key, or a function does not return."""


class Silent(redis.exceptions.ConnectionError):
    """Redis did not answer for some time. The connection may still look intact."""


class TooOld(redis.exceptions.ResponseError):
    """Redis has no functions, which need version 7."""

    def __init__(self, _answer: str) -> None:
        super().__init__("Redis is older than version 7 and has no functions. Upgrade to Redis or Valkey 7 or later.")


class LibraryMissing(redis.exceptions.ConnectionError):
    """Redis lacks this version's functions, and this user may not load them."""

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
    """The coordinator of WORKER_API cannot be reached or cannot serve now. The call may be repeated."""

    def __init__(self, detail: str, pause_seconds: float) -> None:
        super().__init__(detail)
        #: Seconds after which a repetition may succeed.
        self.pause_seconds = pause_seconds


class CoordinatorRejects(redis.exceptions.ResponseError):
    """The coordinator of WORKER_API rejects the contents of a call, and would do so again."""

    def __init__(self, detail: str, status: int = 0, field: str = "") -> None:
        super().__init__(detail)
        #: HTTP status of the answer, and the field that it names; 0 and empty if there is none.
        self.status = status
        self.field = field


class Unacknowledged(redis.exceptions.ConnectionError):
    """A write was made, but too few servers have it. The message says which and what to do."""


#: Errors of a call if Redis cannot be reached or refuses writes. The call may be repeated.
Unreachable = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    Full,
    redis.exceptions.MasterDownError,
    Refused,
    TooOld,
)
#: Errors of a server that is not, or not yet, the master. Another connection may reach the master.
Replaced = (
    redis.exceptions.ConnectionError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    Refused,
)
#: Refusals by their first words. Functions and pipelines put their own words before these.
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
    # SUBMIT until the indexes are rebuilt. The broken key follows.
    "DAMAGED ": Refused,
    # A blocked call when its server becomes a replica.
    "UNBLOCKED force": Refused,
    "unknown command `FCALL": TooOld,
    "unknown command `FUNCTION": TooOld,
}
#: A refusal after Redis could not write, with the system's reason.
_UNWRITTEN = re.compile(r"MISCONF .*(?:Errors writing to the AOF file|AOF error): (.*?)(?: script: .*)?$", re.DOTALL)
#: Errors whose message already tells users what is missing.
_EXPLAINED = (TooOld, LibraryMissing, Unacknowledged)
#: A host name that was not resolved. Error numbers of getaddrinfo are negative, those of connections are not.
_NAMELESS = re.compile(r"Error -\d+ connecting")
#: Errors from parsing a broken entry. Any other error is a bug or a connection error.
Unreadable = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, AttributeError)

#: Detection of dead peers by the kernel: after 5 s of silence, three probes 2 s apart.
KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))
    if hasattr(socket, name)
}


#: Timeout of a sentinel in seconds.
SENTINEL_SECONDS = 1.0


def wrong_type(error: object) -> bool:
    """Return whether this is Redis' error for a key with another type than the command."""
    return isinstance(error, redis.exceptions.ResponseError) and "WRONGTYPE" in str(error)


def refusal(text: str) -> RedisError | None:
    """Return the error among Unreachable for Redis' message, or None for any other message."""
    for beginning, error in _REFUSALS.items():
        place = text.find(beginning)
        if place == 0 or (place > 0 and text[place - 1] in " -"):
            return error(text[place:])
    return None


def reason(error: Exception) -> str:
    """Describe an error among Unreachable for users, without Redis' address."""
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
    """Describe an error among Unreachable for a worker's log."""
    said = isinstance(error, (CoordinatorAway, *_EXPLAINED))
    return str(error) if said else f"redis cannot be reached: {error}"


def pause(error: Exception, seconds: float) -> float:
    """Return the seconds before a repetition: those that the error names, else `seconds`."""
    return error.pause_seconds if isinstance(error, CoordinatorAway) else seconds


class ReplyParser(DefaultParser):  # type: ignore[misc,valid-type]
    """Recognizes refusals of Redis also inside a function's error and if redis-py has no class for them."""

    @classmethod
    def parse_error(cls, response: str) -> Exception:
        """Return the error for Redis' message."""
        return refusal(response) or super().parse_error(response)


class SentinelServers(SentinelClient):
    """Asks sentinels in turn, first the one that named the master last.

    The list of sentinels is replaced instead of changed, since threads may read it concurrently.
    """

    def discover_master(self, service_name: str) -> tuple[Any, Any]:
        """Return host and port of the master according to the first sentinel that knows it. Raise MasterNotFoundError
        if none does.
        """
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
        """Ask another sentinel first from now on: one that is cut off names a former master."""
        self.sentinels = [*self.sentinels[1:], *self.sentinels[:1]]


class _MasterConnection(SentinelManagedConnection):
    """Disconnects when its server has lost its replicas or is busy, since another server may be the master by now.

    If the server is not what a sentinel reported, the next connection asks another sentinel first.
    """

    def connect_to(self, address: tuple[Any, Any]) -> None:
        """Connect to the server that a sentinel named."""
        try:
            super().connect_to(address)  # type: ignore[no-untyped-call]
        except Unreachable:
            self._doubt()
            raise

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Return the next reply. Disconnect after NOREPLICAS or BUSY, so that sentinels are asked for the master.

        Any failure to read disconnects, as without sentinels: redis-py would leave the connection open, and the next
        command would get this reply.
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
    """Return a client of the Redis at `url`. `timeout` is in seconds for each reply.

    `retries` repeats whole commands. It must be 0 for RQ, whose writes are not idempotent.
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
    """Return a client of the master. Each new connection asks the sentinels which server that is."""
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
    """Address of a server, and the first commands of a new connection."""

    host: str
    port: int
    greeting: tuple[tuple[str, ...], ...]


def server_of(client: Client) -> Server | None:
    """Return the server to which a client connects next; None if the connection uses TLS or a Unix socket.

    Asks sentinels for the master. Raises an error among Unreachable.
    """
    pool, options = client.connection_pool, client.get_connection_kwargs()
    if issubclass(pool.connection_class, redis.SSLConnection) or "path" in options:
        return None
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    if isinstance(pool, SentinelConnectionPool):
        host, port = pool.get_master_address()  # type: ignore[no-untyped-call]
    return Server(host=host, port=int(port), greeting=tuple(_greeting(options)))


def _greeting(options: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the commands that authenticate a connection and select its database."""
    if options.get("password"):
        yield ("AUTH", options.get("username") or "default", options["password"])
    if options.get("db"):
        yield ("SELECT", str(options["db"]))


def error_of(text: str) -> Exception:
    """Return the error for a message of Redis."""
    return ReplyParser.parse_error(text)

"""Connections to Redis, and the errors if Redis is unavailable. Only this module imports the library redis."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.connection import DefaultParser
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool, SentinelManagedConnection
from redis.sentinel import Sentinel as SentinelClient

from jobs.network import redis_address

#: Client of the library redis. The library's type annotations cover all modes of the client, so they do not help here.
Client: TypeAlias = Any
RedisError = redis.exceptions.RedisError
#: Error if the Redis user lacks permission for a command.
Denied = redis.exceptions.NoPermissionError
ResponseError = redis.exceptions.ResponseError
#: Error if Redis is out of memory and rejects additions.
Full = redis.exceptions.OutOfMemoryError
SilenceError = redis.exceptions.TimeoutError


class Refused(redis.exceptions.ResponseError):
    """Redis rejects writes: it cannot save, lacks replicas, has a broken key, or is blocked by a function."""


class Silent(redis.exceptions.ConnectionError):
    """Redis has not replied for some time, although the connection can look intact."""


class UnsupportedRedis(redis.exceptions.ResponseError):
    """The Redis server does not support functions. They require version 7."""

    def __init__(self, _answer: str) -> None:
        super().__init__("Redis is older than version 7 and has no functions. Upgrade to Redis or Valkey 7 or later.")


class LibraryMissing(redis.exceptions.ConnectionError):
    """Redis lacks the functions of this version, and this process is not allowed to load them."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"redis lacks the functions of this version ({library}), and only coordinators load them:"
            " start a coordinator of the same version"
        )


class LoadDenied(LibraryMissing):
    """Redis lacks the functions of this version, and this coordinator's Redis user is not allowed to load them."""

    def __init__(self, library: str) -> None:
        redis.exceptions.ConnectionError.__init__(
            self,
            f"redis lacks the functions of this version ({library}), and the user in REDIS_URL may not load them:"
            " grant +function|load, as `python -m jobs.store.acl` prints it for coordinators",
        )


class NameTaken(LibraryMissing):
    """Redis lacks the functions of this version, because another library has a function with the same name."""

    def __init__(self, library: str, why: str) -> None:
        redis.exceptions.ConnectionError.__init__(
            self,
            f"redis lacks the functions of this version ({library}), because another library uses one of their names"
            f" ({why}): find it with FUNCTION LIST and remove it with FUNCTION DELETE",
        )


class IncompatibleRelease(LibraryMissing):
    """This version cannot use the data in Redis, or does not work together with the coordinators."""

    def __init__(self, obstacle: str) -> None:
        redis.exceptions.ConnectionError.__init__(self, obstacle)


class FullWithoutFunctions(Full):
    """Redis lacks the functions of this version, and has no memory for them."""

    def __init__(self, library: str) -> None:
        super().__init__(
            f"redis is full and has no memory for the functions of this version ({library}): raise its maxmemory, or"
            " delete finished jobs with a coordinator of the earlier version"
        )


class CoordinatorAway(redis.exceptions.ConnectionError):
    """The coordinator at WORKER_API is unreachable or unavailable. The call can be repeated."""

    def __init__(self, detail: str, pause_seconds: float) -> None:
        super().__init__(detail)
        #: Seconds after which the call can be repeated.
        self.pause_seconds = pause_seconds


class CoordinatorRejects(redis.exceptions.ResponseError):
    """The coordinator at WORKER_API rejects a call because of its contents. Repeating the call would fail, too."""

    def __init__(self, detail: str, status: int = 0, field: str = "") -> None:
        super().__init__(detail)
        #: HTTP status of the response, or 0 if there is none.
        self.status = status
        self.field = field


class Unacknowledged(redis.exceptions.ConnectionError):
    """Redis executed a write, but too few servers have stored it. The message contains the reason and a remedy."""


#: Errors of calls while Redis is unreachable or rejects writes. Such calls can be repeated.
Unreachable = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    Full,
    redis.exceptions.MasterDownError,
    Refused,
    UnsupportedRedis,
)
#: Errors of a Redis server that is not the master. A new connection can reach the master.
Replaced = (
    redis.exceptions.ConnectionError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    Refused,
)
#: Exceptions for Redis' error messages, keyed by the start of the message. Pipelines put a prefix before a message.
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
    # Redis returns this error for submissions until an operator rebuilds the indexes.
    "DAMAGED ": Refused,
    # A blocked call gets this error if its server becomes a replica.
    "UNBLOCKED force": Refused,
    "unknown command `FCALL": UnsupportedRedis,
    "unknown command `FUNCTION": UnsupportedRedis,
}
#: Pattern of Redis' error after a failed write to its append-only file. It captures the system's reason.
_UNWRITTEN = re.compile(r"MISCONF .*(?:Errors writing to the AOF file|AOF error): (.*?)(?: script: .*)?$", re.DOTALL)
#: Errors whose message already contains the remedy.
_EXPLAINED = (UnsupportedRedis, LibraryMissing, FullWithoutFunctions, Unacknowledged)
#: Pattern of an error for a host name that cannot be resolved. Connection errors have no minus sign.
_NAMELESS = re.compile(r"Error -\d+ connecting")
#: Errors that mean invalid data. Any other error is a bug or a connection error.
Unreadable = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, AttributeError)

#: TCP keepalive: after 5 seconds of silence, the kernel sends three probes, 2 seconds apart.
KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))
    if hasattr(socket, name)
}


#: Timeout in seconds for a reply from a Sentinel.
SENTINEL_SECONDS = 1.0


def wrong_type(error: object) -> bool:
    """Return True if the error means that a key has the wrong type for a command."""
    return isinstance(error, redis.exceptions.ResponseError) and "WRONGTYPE" in str(error)


def wrong_type_of(command: Sequence[Any]) -> ResponseError:
    """Return an error that names the command and its key, whose type does not match."""
    return ResponseError(f"WRONGTYPE {' '.join(map(str, command[:2]))}: another type of key")


def refusal(text: str) -> RedisError | None:
    """Return the exception that matches Redis' error message, or None."""
    for beginning, error in _REFUSALS.items():
        place = text.find(beginning)
        if place == 0 or (place > 0 and text[place - 1] in " -"):
            return error(text[place:])
    return None


def reason(error: Exception) -> str:
    """Describe for users why Redis is unavailable, without the address of Redis."""
    if isinstance(error, _EXPLAINED):
        return str(error)
    if isinstance(error, Full):
        return "redis is full; delete finished jobs, or raise its maxmemory"
    if isinstance(error, redis.exceptions.BusyLoadingError):
        return "redis has just started and is loading its data"
    if isinstance(error, redis.exceptions.ResponseError):
        return _refused(str(error))
    if isinstance(error, MasterNotFoundError):
        return "redis has no master: no reachable Sentinel in REDIS_URL reports one"
    if isinstance(error, redis.exceptions.AuthenticationError):
        return "redis cannot be reached: it rejects the password in REDIS_URL"
    if isinstance(error, redis.exceptions.TimeoutError):
        return "redis cannot be reached: it does not reply in time"
    return f"redis cannot be reached: {_unreachable(error)}"


def _refused(text: str) -> str:
    if unwritten := _UNWRITTEN.search(text):
        return f"redis cannot write its append-only file ({unwritten[1]}): free space on its disk, see df -h"
    if text.startswith("DAMAGED"):
        key = text.partition(" ")[2]
        return (
            f"the key {key} in redis is broken, so no jobs are accepted; an operator must rebuild the indexes with"
            " python -m jobs.store.reindex"
        )
    if text.startswith("BUSY"):
        return "redis is blocked by a function that does not return; an operator must stop it with FUNCTION KILL"
    return f"redis rejects writes ({text[:100]})"


def _unreachable(error: Exception) -> str:
    if "Connection refused" in str(error):
        return "no server is listening at REDIS_URL"
    if _NAMELESS.match(str(error)):
        return "the host name in REDIS_URL cannot be resolved; is the Redis container running?"
    if "Connection closed by server" in str(error):
        return "it closed the connection, for example because it is stopping"
    return type(error).__name__


def describe_for_log(error: Exception) -> str:
    """Describe for a worker's log why Redis is unavailable."""
    said = isinstance(error, (CoordinatorAway, *_EXPLAINED))
    return str(error) if said else f"redis cannot be reached: {error}"


def pause(error: Exception, seconds: float) -> float:
    """Return the seconds to wait before a call is repeated. `seconds` is the default for errors without a wait time."""
    return error.pause_seconds if isinstance(error, CoordinatorAway) else seconds


class ReplyParser(DefaultParser):  # type: ignore[misc,valid-type]
    """Parser of Redis' replies that maps error messages to exceptions, even for errors inside functions."""

    @classmethod
    def parse_error(cls, response: str) -> Exception:
        """Return the exception for an error message of Redis."""
        return refusal(response) or super().parse_error(response)


class _Redis(redis.Redis):
    """Client that names the key if its type does not match the command. Redis does not name it."""

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        """Execute a command and return its reply."""
        try:
            return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if wrong_type(error) and arguments[0] != "FCALL":
                raise wrong_type_of(arguments) from error
            raise


class SentinelServers(SentinelClient):
    """Client of several Sentinels that looks up the master. It starts with the Sentinel that answered last.

    The list of Sentinels is replaced, never modified, because threads read it concurrently.
    """

    def discover_master(self, service_name: str) -> tuple[Any, Any]:
        """Return host and port of the master, from the first Sentinel that knows the master.

        Raises MasterNotFoundError if no Sentinel knows it.
        """
        asked = self.sentinels
        for sentinel in asked:
            try:
                masters: Any = sentinel.sentinel_masters()
                state = masters.get(service_name)
                usable = state and self.check_master_state(state, service_name)  # type: ignore[no-untyped-call]
            except (RedisError, *Unreadable):  # Another service may be listening at this address
                continue
            if usable:
                self.sentinels = [sentinel, *(each for each in asked if each is not sentinel)]
                return state["ip"], state["port"]
        raise MasterNotFoundError(f"no Sentinel reports a master for {service_name}")

    def doubt(self) -> None:
        """Query the current Sentinel last from now on, because an isolated Sentinel reports a former master."""
        self.sentinels = [*self.sentinels[1:], *self.sentinels[:1]]


class _MasterConnection(SentinelManagedConnection):
    """Connection that closes if its server may no longer be the master: the server lost its replicas or is busy.

    If the server is not the master that a Sentinel reported, the next connection asks another Sentinel first.
    """

    def connect_to(self, address: tuple[Any, Any]) -> None:
        """Connect to the Redis server that a Sentinel reported."""
        try:
            super().connect_to(address)  # type: ignore[no-untyped-call]
        except Unreachable:
            self._doubt()
            raise

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Return the next reply. After some errors, disconnect, so that the next call asks Sentinel for the master.

        The errors are NOREPLICAS and BUSY. Any failed read disconnects, too. By default, redis-py keeps the connection
        open, and the next command would receive this reply.
        """
        options.setdefault("disconnect_on_error", True)
        try:
            return super().read_response(*arguments, **options)
        except (Refused, redis.exceptions.ConnectionError) as error:
            if any(code in str(error) for code in ("NOREPLICAS", "BUSY")):
                self.disconnect()  # type: ignore[no-untyped-call]
                self._doubt()
            elif "is now a slave" in str(error):  # redis-py has already closed the connection.
                self._doubt()
            raise

    def _doubt(self) -> None:
        self.connection_pool.sentinel_manager.doubt()


def connect(url: str, *, retries: int = 3, timeout: float | None = 5.0) -> Client:
    """Return a client for the Redis server at `url`. `timeout` is the maximum wait for a reply in seconds.

    `retries` is the number of repetitions of a command. It must be 0 for RQ, whose writes are not idempotent.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": 3,
        "socket_timeout": timeout,
        "health_check_interval": 10,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.1, cap=1), retries),
        "parser_class": ReplyParser,
        # The Redis permissions of workers do not include CLIENT SETINFO.
        "driver_info": None,
        "retry_on_error": [redis.exceptions.BusyLoadingError, redis.exceptions.ReadOnlyError],
    }
    if not url.startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": KEEPALIVE}
    redis_address.check(url)
    if url.startswith(redis_address.SENTINELS):
        return _of_sentinels(redis_address.sentinels(url), options)
    return _Redis.from_url(url, **options)


def _of_sentinels(place: redis_address.Sentinels, options: dict[str, Any]) -> Client:
    """Return a client of the Redis master. Each new connection asks a Sentinel for the master's address."""
    asking = {
        "username": place.sentinel_user,
        "password": place.sentinel_password,
        "socket_timeout": SENTINEL_SECONDS,
        "driver_info": None,
        # If a Sentinel fails, the client asks the next Sentinel without retries.
        "retry": Retry(NoBackoff(), 0),
    }
    sentinel: Any = SentinelServers(place.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    master: Client = sentinel.master_for(
        place.service,
        redis_class=_Redis,
        db=place.database,
        username=place.user,
        password=place.password,
        connection_class=_MasterConnection,
        **options,
    )
    return master


@dataclass(frozen=True, kw_only=True)
class Server:
    """Address of a Redis server, and the first commands that a new connection sends."""

    host: str
    port: int
    greeting: tuple[tuple[str, ...], ...]


def server_of(client: Client) -> Server | None:
    """Return the server to which the client connects next. Return None for TLS and Unix sockets.

    This asks Sentinel for the master. Raises an error in Unreachable.
    """
    pool, options = client.connection_pool, client.get_connection_kwargs()
    if issubclass(pool.connection_class, redis.SSLConnection) or "path" in options:
        return None
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    if isinstance(pool, SentinelConnectionPool):
        host, port = pool.get_master_address()  # type: ignore[no-untyped-call]
    return Server(host=host, port=int(port), greeting=tuple(_greeting(options)))


def _greeting(options: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the commands that authenticate a new connection and select its database."""
    if options.get("password"):
        yield ("AUTH", options.get("username") or "default", options["password"])
    if options.get("db"):
        yield ("SELECT", str(options["db"]))


def error_of(text: str) -> Exception:
    """Return the exception for an error message of Redis."""
    return ReplyParser.parse_error(text)

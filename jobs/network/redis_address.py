"""Parser of REDIS_URL, which is the address of one Redis server or of several Sentinels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

#: Valid prefixes of REDIS_URL.
SERVERS = ("redis://", "rediss://", "unix://")
SENTINELS = "redis+sentinel://"
#: Default port of Sentinel.
SENTINEL_PORT = 26379
_EXAMPLE = "redis+sentinel://USER:PASSWORD@one:26379,two:26379,three:26379/mymaster/0"
_SERVER = "redis://USER:PASSWORD@HOST:6379/0"
_ESCAPE = "in a password, write / ? # @ [ and % as %2F %3F %23 %40 %5B and %25"
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:@\s]+)(?::(?P<port>\d{1,5}))?")
_OPTIONS = frozenset({"service", "sentinel_user", "sentinel_password"})


class UnusableAddress(ValueError):
    """REDIS_URL is invalid. The message says why, contains a valid example, and never contains a password."""


@dataclass(frozen=True, kw_only=True)
class Sentinels:
    """Addresses of Sentinels, the name of the Redis master that they monitor, and the credentials for both."""

    hosts: tuple[tuple[str, int], ...]
    service: str
    database: int = 0
    user: str | None = None
    password: str | None = None
    #: Credentials for the Sentinels. If the URL contains none, they are the same as for Redis.
    sentinel_user: str | None = None
    sentinel_password: str | None = None


def check(url: str) -> None:
    """Raise UnusableAddress if `url` is not a valid Redis URL."""
    if url.startswith(SENTINELS):
        sentinels(url)
    elif not url.startswith(SERVERS):
        begin = ", ".join((*SERVERS, SENTINELS))
        raise UnusableAddress(f"REDIS_URL must start with one of {begin}: write {_SERVER} or {_EXAMPLE}")
    elif not url.startswith("unix://"):
        _check_server(url)


def _check_server(url: str) -> None:
    """Check the URL of a single Redis server. Errors of the Redis library are not shown, because they contain
    passwords.
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and re.fullmatch(r"/?|/[0-9]{1,9}", parts.path)
    except ValueError:
        usable = False
    if not usable:
        raise UnusableAddress(f"REDIS_URL does not contain HOST:PORT/DATABASE: write {_SERVER}; {_ESCAPE}")


def sentinels(url: str) -> Sentinels:
    """Parse `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/[service][/database]`.

    Service and database can be swapped. Raises UnusableAddress.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # The text of the exception contains the password
        raise _address_error(f"is invalid ({_ESCAPE})") from None
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = (unquote(part) for part in credentials.partition(":"))
    options = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(options.keys() - _OPTIONS):
        raise _address_error(f"has the unknown option {unknown[0]}; valid options are {', '.join(sorted(_OPTIONS))}")
    service, database = _parse_path(parts.path)
    own = {name: options[name][0] for name in ("sentinel_user", "sentinel_password") if name in options}
    asked = own or {"sentinel_user": user, "sentinel_password": password}
    return Sentinels(
        hosts=tuple(_host(host) for host in hosts.split(",")),
        service=service or options.get("service", ["mymaster"])[0],
        database=database,
        user=user or None,
        password=password or None,
        sentinel_user=asked.get("sentinel_user") or None,
        sentinel_password=asked.get("sentinel_password") or None,
    )


def _host(text: str) -> tuple[str, int]:
    matched = _HOST.fullmatch(text)
    port = int(matched["port"] or SENTINEL_PORT) if matched else 0
    if matched is None or not 1 <= port <= 65535:
        raise _address_error("contains a Sentinel address that is not HOST:PORT")
    return matched["host"].strip("[]"), port


def _parse_path(path: str) -> tuple[str, int]:
    """Parse the path of a Sentinel URL. Return the service name, or "" if it is missing, and the database number."""
    words = [unquote(word) for word in path.strip("/").split("/") if word]
    numbers = [word for word in words if word.isascii() and word.isdigit()]
    names = [word for word in words if word not in numbers]
    if len(numbers) > 1 or len(names) > 1:
        raise _address_error("must name exactly one Sentinel master and one database number")
    return (names or [""])[0], int((numbers or ["0"])[0])


def _address_error(why: str) -> UnusableAddress:
    return UnusableAddress(f"REDIS_URL {why}: write {_EXAMPLE}")

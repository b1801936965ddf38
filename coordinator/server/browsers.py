"""Requests of browsers: whether one came over TLS, whose page sent it, and what its cookies are called."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from jobs import errors
from jobs.network import exposure
from threads_protocol.numbers import short


def is_tls(connection: HTTPConnection) -> bool:
    """Return True where the browser speaks TLS, here or to the proxy in front."""
    # nginx sets the header. Who adds it by hand only makes a cookie that needs TLS.
    return connection.url.scheme in ("https", "wss") or connection.headers.get("x-forwarded-proto", "") == "https"


def is_readable(connection: HTTPConnection) -> bool:
    """Return True where what is sent crosses a network unencrypted."""
    return not is_tls(connection) and not exposure.is_loopback(exposure.host_name(connection.headers.get("host", "")))


def cookie_name(connection: HTTPConnection, what: str) -> str:
    """Return a cookie's name. It has the port, since all ports of a host share a jar of cookies."""
    port = connection.headers.get("host", "").rpartition(":")[2]
    prefix = "__Host-" if is_tls(connection) else ""
    return f"{prefix}{what}{f'_{port}' if port.isascii() and port.isdigit() else ''}"


def check_origin(connection: HTTPConnection) -> None:
    """Raise Forbidden for a request of a page of another origin; the port counts."""
    origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
    schemes = ("https",) if is_tls(connection) else ("http", "https")  # TLS may end at a proxy that does not say so
    if origin and origin.lower() not in [f"{scheme}://{host.lower()}" for scheme in schemes]:
        raise errors.Forbidden(f"a page from {short(origin, 80)} asks {short(host, 80)}", field="Origin")


def is_of_own_page(connection: HTTPConnection) -> bool:
    """Return False where the browser says that a page of another origin has it ask."""
    return connection.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")

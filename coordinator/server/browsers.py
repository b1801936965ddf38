"""Check requests from browsers for TLS and for the origin of the page, and name cookies."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from jobs import errors
from jobs.network import exposure
from threads_protocol.numbers import short


def is_tls(connection: HTTPConnection) -> bool:
    """Return True if the browser uses TLS to this server or to the proxy in front of it."""
    # nginx sets the header. A client that forges it only gets a cookie that requires TLS.
    return connection.url.scheme in ("https", "wss") or connection.headers.get("x-forwarded-proto", "") == "https"


def is_readable(connection: HTTPConnection) -> bool:
    """Return True if the request crosses a network unencrypted."""
    return not is_tls(connection) and not exposure.is_loopback(exposure.host_name(connection.headers.get("host", "")))


def cookie_name(connection: HTTPConnection, name: str) -> str:
    """Return the full name of a cookie. It contains the port, because all ports of a host share their cookies."""
    port = connection.headers.get("host", "").rpartition(":")[2]
    prefix = "__Host-" if is_tls(connection) else ""
    return f"{prefix}{name}{f'_{port}' if port.isascii() and port.isdigit() else ''}"


def check_origin(connection: HTTPConnection) -> None:
    """Raise Forbidden if a page of another origin sent the request. A different port is a different origin."""
    origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
    # A proxy that terminates TLS can omit X-Forwarded-Proto.
    schemes = ("https",) if is_tls(connection) else ("http", "https")
    if origin and origin.lower() not in [f"{scheme}://{host.lower()}" for scheme in schemes]:
        raise errors.Forbidden(
            f"a page from {short(origin, 80)} cannot send requests to {short(host, 80)}", field="Origin"
        )


def is_of_own_page(connection: HTTPConnection) -> bool:
    """Return False if the browser reports that a page of another origin sent the request."""
    return connection.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")

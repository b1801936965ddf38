"""The cookie of a browser that is logged in, and what keeps other pages from using it.

A cookie is sent to every port of its host, and to pages of every port: whoever listens on another port is given it. So
a cookie alone opens nothing. Every request with it needs the session's CSRF token in a header, which the page keeps in
the storage of its origin, port included, and an Origin, where there is one, that is exactly the Host it asks.
"""

from __future__ import annotations

from fastapi import Request, Response

from jobs import errors, exposure
from jobs.numbers import short
from jobs.store.tokens import SESSION_MS

CSRF_HEADER = "X-CSRF-Token"


def read(request: Request) -> str:
    """Return the session's cookie; empty when there is none."""
    return request.cookies.get(_name(request), "") if "cookie" in request.headers else ""


def put(request: Request, response: Response, text: str) -> None:
    """Set the cookie: for this host, no script, and no other site."""
    response.set_cookie(
        _name(request), text, max_age=SESSION_MS // 1000, path="/", secure=_is_tls(request), httponly=True,
        samesite="strict",
    )  # fmt: skip


def remove(request: Request, response: Response) -> None:
    """End the cookie."""
    response.delete_cookie(_name(request), path="/", secure=_is_tls(request), httponly=True, samesite="strict")


def check_origin(request: Request) -> None:
    """Raise Forbidden for a request of a page of another origin; the port counts."""
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    schemes = ("https",) if _is_tls(request) else ("http", "https")  # TLS may end at a proxy that does not say so
    if origin and origin.lower() not in [f"{scheme}://{host.lower()}" for scheme in schemes]:
        raise errors.Forbidden(f"a page from {short(origin, 80)} asks {short(host, 80)}", field="Origin")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise errors.Forbidden("a page from elsewhere cannot use this login", field="Sec-Fetch-Site")


def check_transport(request: Request) -> None:
    """Raise Forbidden where what is typed would travel unencrypted over a network."""
    host = exposure.host_name(request.headers.get("host", ""))
    if not _is_tls(request) and not exposure.is_loopback(host):
        detail = f"logging in to {short(host, 80)} needs TLS (https://): the token would cross the network readable"
        raise errors.Forbidden(detail, field="Host")


def _is_tls(request: Request) -> bool:
    # nginx sets the header. Who adds it by hand only makes a cookie that needs TLS.
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


def _name(request: Request) -> str:
    """Return the cookie's name. It has the port, since clusters on ports of one host share a jar of cookies."""
    port = request.headers.get("host", "").rpartition(":")[2]
    prefix = "__Host-" if _is_tls(request) else ""
    return f"{prefix}cluster_session{f'_{port}' if port.isascii() and port.isdigit() else ''}"

"""The cookie of a browser that is logged in, and what keeps other pages from using it.

A cookie is sent to every port of its host, and to pages of every port: whoever listens on another port is given it. So
a cookie alone opens nothing. Every request with it needs the session's CSRF token in a header, which the page keeps in
the storage of its origin, port included, and an Origin, where there is one, that is exactly the Host it asks.
"""

from __future__ import annotations

from fastapi import Request, Response

from coordinator.server import browsers
from jobs import errors
from jobs.network import exposure
from jobs.store.tenancy.tokens import SESSION_MS
from threads_protocol.numbers import short

CSRF_HEADER = "X-CSRF-Token"


def read(request: Request) -> str:
    """Return the session's cookie; empty when there is none."""
    return request.cookies.get(_name(request), "") if "cookie" in request.headers else ""


def put(request: Request, response: Response, text: str) -> None:
    """Set the cookie: for this host, no script, and no other site."""
    response.set_cookie(
        _name(request),
        text,
        max_age=SESSION_MS // 1000,
        path="/",
        secure=browsers.is_tls(request),
        httponly=True,
        samesite="strict",
    )


def remove(request: Request, response: Response) -> None:
    """End the cookie."""
    response.delete_cookie(_name(request), path="/", secure=browsers.is_tls(request), httponly=True, samesite="strict")


def check_origin(request: Request) -> None:
    """Raise Forbidden for a request of a page of another origin; the port counts."""
    browsers.check_origin(request)
    if not browsers.is_of_own_page(request):
        raise errors.Forbidden("a page from elsewhere cannot use this login", field="Sec-Fetch-Site")


def check_transport(request: Request) -> None:
    """Raise Forbidden where what is typed would travel unencrypted over a network."""
    if browsers.is_readable(request):
        host = short(exposure.host_name(request.headers.get("host", "")), 80)
        detail = f"logging in to {host} needs TLS (https://): the token would cross the network readable"
        raise errors.Forbidden(detail, field="Host")


def _name(request: Request) -> str:
    return browsers.cookie_name(request, "cluster_session")

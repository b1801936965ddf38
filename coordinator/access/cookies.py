"""Session cookies of browsers, and their protection against cross-site requests.

Browsers send a cookie to every port of its host, so a server on another port can read it. Therefore the cookie alone
authenticates no request. A request must also send the session's CSRF token in a header. The page keeps that token in
the storage of its origin, which includes the port. If the request has an Origin header, it must match the Host header.
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
    """Return the session cookie, or an empty string if the request has none."""
    return request.cookies.get(_name(request), "") if "cookie" in request.headers else ""


def put(request: Request, response: Response, text: str) -> None:
    """Set the session cookie for this host only. Scripts and other sites cannot use the cookie."""
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
    """Delete the session cookie."""
    response.delete_cookie(_name(request), path="/", secure=browsers.is_tls(request), httponly=True, samesite="strict")


def check_origin(request: Request) -> None:
    """Raise Forbidden if a page of another origin sent the request. A different port is a different origin."""
    browsers.check_origin(request)
    if not browsers.is_of_own_page(request):
        raise errors.Forbidden("a page of another origin cannot use this login", field="Sec-Fetch-Site")


def check_transport(request: Request) -> None:
    """Raise Forbidden if the token would cross a network unencrypted."""
    if browsers.is_readable(request):
        host = short(exposure.host_name(request.headers.get("host", "")), 80)
        detail = (
            f"cannot log in to {host} without TLS, because the token would cross the network unencrypted; use https://"
        )
        raise errors.Forbidden(detail, field="Host")


def _name(request: Request) -> str:
    return browsers.cookie_name(request, "cluster_session")

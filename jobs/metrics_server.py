"""Serve a registry's metrics to Prometheus over HTTP; with METRICS_TOKEN set, only to those that send it.

Without it, who listens on loopback answers to loopback's names and ALLOWED_HOSTS alone: a page whose name was made to
resolve to this machine reads nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Container, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

from jobs import exposure
from jobs.settings import Settings

_Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


def serve(registry: CollectorRegistry, settings: Settings) -> Callable[[], None]:
    """Listen at BIND and METRICS_PORT, and return what stops it. OSError when the port is taken."""
    guarded = bool(settings.metrics_token) or exposure.is_loopback(settings.bind)
    # Full only when its guard stands: a scrape in between finds nothing.
    server, thread = start_http_server(
        settings.metrics_port, settings.bind, CollectorRegistry() if guarded else registry
    )
    if settings.metrics_token:
        server.set_app(_with_token(settings.metrics_token, make_wsgi_app(registry)))
    elif guarded:
        server.set_app(_under_own_names(exposure.allowed_hosts(settings), make_wsgi_app(registry)))

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _with_token(token: str, app: _Wsgi) -> _Wsgi:
    wanted = f"Bearer {token}".encode()

    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if hmac.compare_digest(environ.get("HTTP_AUTHORIZATION", "").encode(), wanted):
            return app(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"send Authorization: Bearer METRICS_TOKEN; in prometheus.yml: authorization: credentials_file\n"]

    return guarded


def _under_own_names(hosts: Container[str], app: _Wsgi) -> _Wsgi:
    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        name = exposure.host_name(environ.get("HTTP_HOST", ""))
        if exposure.is_loopback(name) or name in hosts:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"metrics on loopback answer to its names: set METRICS_TOKEN, or name the host in ALLOWED_HOSTS\n"]

    return guarded

"""HTTP server of metrics: `/metrics` for Prometheus, and `/api/v1/query?query=NAME` for the values of one name.

If METRICS_TOKEN is set, requests need it as a bearer token.

Without METRICS_TOKEN, a server on loopback accepts only the host names of loopback and ALLOWED_HOSTS. This prevents DNS
rebinding: a web page cannot read the metrics through a name that resolves to this machine.
"""

from __future__ import annotations

import hmac
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Container, Iterable
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.utils import floatToGoString

from jobs.network import exposure
from jobs.settings import Settings

#: Pattern of the names of metrics.
_NAME = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
_Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Suppress the access log."""


def listen(settings: Settings) -> socket.socket:
    """Open the listening socket of the metrics server. Raises OSError if the port is in use."""
    place = (settings.bind or None, settings.metrics_port)
    family, _, _, _, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, dualstack_ipv6=both)


def serve(registry: CollectorRegistry, settings: Settings, listener: socket.socket | None = None) -> Callable[[], None]:
    """Start the metrics server, and return a function that stops it. Without `listener`, open a new socket.

    Raises OSError if the port is in use.
    """
    listener = listener or listen(settings)
    server = ThreadingWSGIServer(listener.getsockname()[:2], _QuietHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = listener.getsockname()[:2]
    server.setup_environ()
    server.set_app(_restrict_access(settings, _route(registry)))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _route(registry: CollectorRegistry) -> _Wsgi:
    exposition = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = exposition(environ, start_response)
            return answer
        if path == "/api/v1/query":
            return _answer_query(registry, environ, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"this port serves /metrics and /api/v1/query?query=NAME\n"]

    return app


def _answer_query(registry: CollectorRegistry, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer an instant query for one name with its current values, in the format of Prometheus' HTTP API."""
    name = parse_qs(environ.get("QUERY_STRING", "")).get("query", [""])[0].strip()
    if _NAME.fullmatch(name):
        status, data = "200 OK", {"resultType": "vector", "result": _values(registry, name)}
        answer: dict[str, Any] = {"status": "success", "data": data}
    else:
        why = f"query must be the name of one metric, without labels or functions; got {name[:100]!r}"
        status, answer = "400 Bad Request", {"status": "error", "errorType": "bad_data", "error": why}
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


def _values(registry: CollectorRegistry, name: str) -> list[dict[str, Any]]:
    now = time.time()
    return [
        {
            "metric": {"__name__": name, **sample.labels},
            "value": [now, _to_text(sample.value)],
        }
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    ]


def _to_text(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text.removesuffix(".0")


def _restrict_access(settings: Settings, app: _Wsgi) -> _Wsgi:
    if settings.metrics_token:
        return _require_token(settings.metrics_token, app)
    return _require_known_host(exposure.allowed_hosts(settings), app) if exposure.is_loopback(settings.bind) else app


def _require_token(token: str, app: _Wsgi) -> _Wsgi:
    wanted = f"Bearer {token}".encode()

    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if hmac.compare_digest(environ.get("HTTP_AUTHORIZATION", "").encode(), wanted):
            return app(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"send Authorization: Bearer METRICS_TOKEN; in prometheus.yml: authorization: credentials_file\n"]

    return guarded


def _require_known_host(hosts: Container[str], app: _Wsgi) -> _Wsgi:
    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        name = exposure.host_name(environ.get("HTTP_HOST", ""))
        if exposure.is_loopback(name) or name in hosts:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [
            b"metrics on loopback accept only its host names: set METRICS_TOKEN, or add the host to ALLOWED_HOSTS\n"
        ]

    return guarded

"""Reject requests that a foreign web page sends through a local browser.

A browser lets any page send requests to any address, including loopback. If the cluster requires a token, a foreign
page lacks it. Otherwise, three headers identify a foreign page: Origin, Sec-Fetch-Site, and a foreign Host. The Host is
foreign if the page made its own domain name resolve to this machine (DNS rebinding).
"""

from __future__ import annotations

from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.services.gateway import error_forms
from jobs import errors
from jobs.network import exposure
from jobs.settings import Settings
from threads_protocol.numbers import short

#: Paths of health checks. Probes use the IP address as Host, and the responses contain no secrets.
_PROBE_PATHS = frozenset({"/health", "/ready"})
#: Prefixes of paths that accept binary files.
_FILE_PATHS = ("/api/artifacts", "/api/files/", "/api/file-bundle", "/api/worker/jobs/")
#: Prefixes of paths that accept workflows.
#: Media types of YAML.
_WORKFLOW_PATHS, _YAML_TYPES = ("/api/workflows",), ("application/yaml", "application/x-yaml", "text/yaml")
_ADVICE = "set CLUSTER_TOKEN for the coordinator, or add the host to its ALLOWED_HOSTS"


class Admission:
    """ASGI middleware that rejects requests from foreign pages."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._needs_token = exposure.needs_token(settings)
        self._hosts = exposure.allowed_hosts(settings)
        self._is_allowed = lru_cache(256)(self._check_authority)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except errors.ClusterError as error:
                await error_forms.build_error_response(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            _check_type(scope["path"], headers.get(b"content-type", b"").decode("latin-1"))
        if not self._needs_token and scope["path"] not in _PROBE_PATHS:
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            self._check_origin(headers, scope["method"])

    def _check_host(self, host: str) -> None:
        if not self._is_allowed(host):
            detail = f"a cluster without a token accepts only loopback host names; got the host {short(host, 80)}"
            raise errors.Forbidden(f"{detail}: {_ADVICE}", field="Host")

    def _check_origin(self, headers: dict[bytes, bytes], method: str) -> None:
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not self._is_allowed(origin.partition("://")[2]):
            detail = f"a cluster without a token accepts no requests from pages of {short(origin, 80)}"
            raise errors.Forbidden(f"{detail}: {_ADVICE}", field="Origin")
        if headers.get(b"sec-fetch-site") == b"cross-site" and not _is_navigation(headers, method):
            detail = "a cluster without a token accepts no requests from pages of other sites"
            raise errors.Forbidden(f"{detail}: {_ADVICE}", field="Sec-Fetch-Site")

    def _check_authority(self, authority: str) -> bool:
        name = exposure.host_name(authority)
        return name in self._hosts or exposure.is_loopback(name)


def _is_navigation(headers: dict[bytes, bytes], method: str) -> bool:
    """Return True if the user followed a link. The page with the link cannot read the response."""
    is_document = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    return method == "GET" and is_document


def _check_type(path: str, content_type: str) -> None:
    """Raise UnsupportedMediaType unless the body is JSON, or YAML or a file on the paths that accept them.

    A foreign page cannot send these types without a preflight request.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if path.startswith(_WORKFLOW_PATHS) and media_type in _YAML_TYPES:
        return
    expected = "application/octet-stream" if path.startswith(_FILE_PATHS) else "application/json"
    if media_type not in (expected, "application/json"):
        got = short(content_type, 80) if content_type else "none"
        raise errors.UnsupportedMediaType(
            f"a body needs the header Content-Type: {expected}; got {got}", field="Content-Type"
        )

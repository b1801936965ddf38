"""Admission of requests: those that a foreign web page sends through a browser of this machine are refused.

A browser sends requests of any page to any address, loopback included. Where a token is needed, such a page lacks
it. Where none is, what tells it apart are its Origin, its Sec-Fetch-Site, and a Host that is not ours, when its own
name was made to resolve to this machine.
"""

from __future__ import annotations

from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.services.gateway import error_forms
from jobs import errors
from jobs.network import exposure
from jobs.settings import Settings
from threads_protocol.numbers import short

#: Probes ask by an address, and learn nothing.
_PROBED = frozenset({"/health", "/ready"})
#: Beginnings of paths that take bytes of files.
_BYTES = ("/api/artifacts", "/api/files/", "/api/file-bundle", "/api/worker/jobs/")
#: Paths that take texts of workflows, and the types of those besides JSON.
_WORKFLOWS, _YAML = ("/api/workflows",), ("application/yaml", "application/x-yaml", "text/yaml")
_OUT = "set CLUSTER_TOKEN for the coordinator, or name the host in its ALLOWED_HOSTS"


class Admission:
    """ASGI layer that answers refused requests itself, and passes all others on untouched."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._needs_token = exposure.needs_token(settings)
        self._hosts = exposure.allowed_hosts(settings)
        self._is_ours = lru_cache(256)(self._looked_up)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except errors.ClusterError as error:
                await error_forms.refused(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            _check_type(scope["path"], headers.get(b"content-type", b"").decode("latin-1"))
        if not self._needs_token and scope["path"] not in _PROBED:
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            self._check_origin(headers, scope["method"])

    def _check_host(self, host: str) -> None:
        if not self._is_ours(host):
            detail = f"a cluster without a token answers to loopback names alone, not to the host {short(host, 80)}"
            raise errors.Forbidden(f"{detail}: {_OUT}", field="Host")

    def _check_origin(self, headers: dict[bytes, bytes], method: str) -> None:
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not self._is_ours(origin.partition("://")[2]):
            detail = f"a cluster without a token takes no requests of pages from {short(origin, 80)}"
            raise errors.Forbidden(f"{detail}: {_OUT}", field="Origin")
        if headers.get(b"sec-fetch-site") == b"cross-site" and not _is_visit(headers, method):
            detail = "a cluster without a token takes no requests of pages from elsewhere"
            raise errors.Forbidden(f"{detail}: {_OUT}", field="Sec-Fetch-Site")

    def _looked_up(self, authority: str) -> bool:
        name = exposure.host_name(authority)
        return name in self._hosts or exposure.is_loopback(name)


def _is_visit(headers: dict[bytes, bytes], method: str) -> bool:
    """Return True for a link that somebody followed: the page with the link sees nothing of the answer."""
    shown = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    return method == "GET" and shown


def _check_type(path: str, given: str) -> None:
    """Refuse bodies other than JSON, YAML of workflows, and bytes of files.

    A foreign page can send any of them only after a preflight.
    """
    kind = given.partition(";")[0].strip().lower()
    if path.startswith(_WORKFLOWS) and kind in _YAML:
        return
    wanted = "application/octet-stream" if path.startswith(_BYTES) else "application/json"
    if kind not in (wanted, "application/json"):
        detail = f"a body needs the header Content-Type: {wanted}; got {short(given, 80) if given else 'none'}"
        raise errors.UnsupportedMediaType(detail, field="Content-Type")

"""Serve the web pages from a folder in clusters without nginx, with the same headers as nginx."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

#: Security headers, the same as in nginx/conf/headers.conf. A test compares them.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: Content types, the same as in web/nginx.conf. System types can be wrong, and browsers then reject modules.
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".txt": "text/plain",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
#: Suffixes of compressed files from the build, by content encoding. The smallest file comes first.
COMPRESSED = {"br": ".br", "gzip": ".gz"}
#: Page at the path /.
HOME = "cluster.html"
#: Prefixes of the API's paths.
_API_PATHS = ("/api", "/v1", "/join", "/health", "/ready")
_METHODS = ("GET", "HEAD")
_ZERO_WEIGHT = re.compile(r"q=0(\.0*)?")


class Files(StaticFiles):
    """Static files of a folder that can be built after the server has started."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self.config_checked = True

    async def get_response(self, path: str, scope: Scope) -> Response:
        path = HOME if path == "." else path
        if scope["method"] not in _METHODS:
            await super().get_response(path, {**scope, "method": "HEAD"})  # raises 404 if the page does not exist
            raise HTTPException(405)
        answer = await super().get_response(path, scope)
        answer.headers.update(HEADERS)
        # Files under /assets/ have a checksum in their names, so their content never changes.
        is_immutable = path.startswith(f"assets{os.sep}") and answer.status_code in (200, 206, 304)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_immutable else "no-cache"
        return answer

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        encoding, file, status = _select_file(Path(full_path), stat_result, Headers(scope=scope))
        answer = super().file_response(file, status, scope, status_code)
        if isinstance(answer, FileResponse):
            kind = TYPES.get(Path(full_path).suffix.lower(), "application/octet-stream")
            text = kind.startswith("text/") or kind in ("application/json", "image/svg+xml")
            answer.headers["Content-Type"] = f"{kind}; charset=utf-8" if text else kind
            if encoding:
                answer.headers["Content-Encoding"] = encoding
        answer.headers["Vary"] = "Accept-Encoding"
        return answer


def _select_file(plain: Path, plain_status: os.stat_result, headers: Headers) -> tuple[str, Path, os.stat_result]:
    """Return the content encoding, path and status of the file to send: a compressed file if one is acceptable."""
    accepted = _accepted_encodings(headers.get("accept-encoding", ""))
    # Byte ranges refer to the uncompressed file.
    for encoding, suffix in COMPRESSED.items() if "range" not in headers else ():
        if encoding not in accepted:
            continue
        compressed = plain.with_name(plain.name + suffix)
        with suppress(OSError):
            status = compressed.lstat()
            # A compressed file that is older than the plain file comes from an earlier build.
            if stat.S_ISREG(status.st_mode) and status.st_mtime >= plain_status.st_mtime:
                return encoding, compressed, status
    return "", plain, plain_status


def _accepted_encodings(header: str) -> set[str]:
    """Return the names in an Accept-Encoding header, except those with q=0."""
    names = (each.partition(";") for each in header.lower().split(","))
    return {name.strip() for name, _, weight in names if not _ZERO_WEIGHT.fullmatch(weight.replace(" ", ""))}


class Pages(Mount):
    """Mount for all paths outside the API, so that a wrong method on an API path still returns 405."""

    def __init__(self, folder: Path) -> None:
        super().__init__("", app=Files(folder), name="pages")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        path = scope["path"]
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in _API_PATHS):
            return Match.NONE, {}
        return (match if scope["method"] in _METHODS else Match.PARTIAL), child

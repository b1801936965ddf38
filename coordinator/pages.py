"""Pages served from a folder, with the headers that nginx would add, for clusters without nginx."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.responses import FileResponse, Response
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

#: The same as in nginx/conf/headers.conf; a test compares them.
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
#: Not the machine's: a module whose type is wrong does not run. As in web/nginx.conf.
TYPES = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".txt": "text/plain",
    ".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}  # fmt: skip
#: Paths that are the API's.
_TAKEN = ("/api", "/health", "/ready")


class Files(StaticFiles):
    """Static files, read when they are asked for, so that the folder can be built later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self.config_checked = True

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers.update(HEADERS)
        # Files under /assets/ have a checksum in their names.
        lasting = path.startswith(f"assets{os.sep}") and answer.status_code in (200, 206, 304)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable" if lasting else "no-cache"
        return answer

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        if isinstance(answer, FileResponse):
            kind = TYPES.get(Path(full_path).suffix.lower(), "application/octet-stream")
            text = kind.startswith("text/") or kind in ("application/json", "image/svg+xml")
            answer.headers["Content-Type"] = f"{kind}; charset=utf-8" if text else kind
        return answer


class Pages(Mount):
    """Mount for every path that is not the API's. A wrong method of an API path stays a 405 of that path."""

    def __init__(self, folder: Path) -> None:
        super().__init__("", app=Files(folder), name="pages")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        path = scope["path"]
        if any(path == taken or path.startswith(f"{taken}/") for taken in _TAKEN):
            return Match.NONE, {}
        return match, child

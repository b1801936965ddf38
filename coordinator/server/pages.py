"""Pages served from a folder, with the headers that nginx would add, for clusters without nginx."""

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
#: Endings of packed files that a build leaves beside the plain ones, by what HTTP calls them; the smallest first.
PACKED = {"br": ".br", "gzip": ".gz"}
#: Paths that are the API's.
_TAKEN = ("/api", "/v1", "/health", "/ready")
_METHODS = ("GET", "HEAD")
_NOTHING = re.compile(r"q=0(\.0*)?")


class Files(StaticFiles):
    """Static files, read when they are asked for, so that the folder can be built later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self.config_checked = True

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["method"] not in _METHODS:
            await super().get_response(path, {**scope, "method": "HEAD"})  # raises 404 if there is no such page
            raise HTTPException(405)
        answer = await super().get_response(path, scope)
        answer.headers.update(HEADERS)
        # Files under /assets/ have a checksum in their names.
        lasting = path.startswith(f"assets{os.sep}") and answer.status_code in (200, 206, 304)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable" if lasting else "no-cache"
        return answer

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        coding, sent, facts = _packed(Path(full_path), stat_result, Headers(scope=scope))
        answer = super().file_response(sent, facts, scope, status_code)
        if isinstance(answer, FileResponse):
            kind = TYPES.get(Path(full_path).suffix.lower(), "application/octet-stream")
            text = kind.startswith("text/") or kind in ("application/json", "image/svg+xml")
            answer.headers["Content-Type"] = f"{kind}; charset=utf-8" if text else kind
            if coding:
                answer.headers["Content-Encoding"] = coding
        answer.headers["Vary"] = "Accept-Encoding"
        return answer


def _packed(plain: Path, facts: os.stat_result, headers: Headers) -> tuple[str, Path, os.stat_result]:
    """Return the coding of what is sent, its file and what is known of it: packed where there is such a file."""
    taken = _codings(headers.get("accept-encoding", ""))
    # Parts of a packed file would be parts of something else.
    for coding, end in PACKED.items() if "range" not in headers else ():
        if coding not in taken:
            continue
        packed = plain.with_name(plain.name + end)
        with suppress(OSError):
            found = packed.lstat()
            # One that is older than the file was left by another build.
            if stat.S_ISREG(found.st_mode) and found.st_mtime >= facts.st_mtime:
                return coding, packed, found
    return "", plain, facts


def _codings(accepted: str) -> set[str]:
    """Return the names in an Accept-Encoding that are not refused by q=0."""
    names = (each.partition(";") for each in accepted.lower().split(","))
    return {name.strip() for name, _, weight in names if not _NOTHING.fullmatch(weight.replace(" ", ""))}


class Pages(Mount):
    """Mount for every path that is not the API's. A wrong method of an API path stays a 405 of that path."""

    def __init__(self, folder: Path) -> None:
        super().__init__("", app=Files(folder), name="pages")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        path = scope["path"]
        if any(path == taken or path.startswith(f"{taken}/") for taken in _TAKEN):
            return Match.NONE, {}
        return (match if scope["method"] in _METHODS else Match.PARTIAL), child

"""A coordinator application without a server, with a real Redis and an artifact folder, and its client."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from coordinator import app
from coordinator.artifacts.cleanup_task import ArtifactCleanupTask
from coordinator.artifacts.trees import Trees
from jobs.models import ANONYMOUS
from jobs.settings import Settings
from jobs.store import Store
from jobs.store.server import connection
from threads_cluster.client import api

TOKEN = "a-long-secret-of-the-tests"
HEAD = '{"artifact":1}'


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest_of(*rows: list[Any]) -> bytes:
    """Return a manifest with these lines in their order."""
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return "".join(f"{line}\n" for line in (HEAD, *lines)).encode()


class Bridge(httpx.BaseTransport):
    """Synchronous client of the application, which records all requests."""

    def __init__(self, application: Any) -> None:
        self.http_transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        self.asked: list[httpx.Request] = []
        #: Called before each request; can raise an exception.
        self.before: Callable[[httpx.Request], None] = lambda _request: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.before(request)
        request.read()
        self.asked.append(request)
        return asyncio.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        answer = await self.http_transport.handle_async_request(copy)
        body = b"".join([piece async for piece in answer.stream])  # type: ignore[union-attr]
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)


class Bench:
    """A coordinator that stores artifacts in a folder or at a URL."""

    def __init__(self, redis_url: str, folder: Path | str, **settings: Any) -> None:
        self.store = Store(connection.connect(redis_url))
        self.folder = Path(folder)
        self.url = f"file://{folder}" if isinstance(folder, Path) else folder
        self.settings = Settings(redis_url=redis_url, cluster_token=TOKEN, artifact_url=self.url, **settings)
        self.app = app.create(self.settings)
        self.bridge = Bridge(self.app)
        self.client = api.Cluster("http://127.0.0.1", TOKEN, transport=self.bridge, patience=0)
        self.trees: Trees = self.app.state.coordinator.cluster.artifacts

    def close(self) -> None:
        self.client.close()
        self.store.client.close()

    def ask(
        self, method: str, path: str, body: Any = None, octets: bytes | None = None, token: str = TOKEN, **headers: Any
    ) -> httpx.Response:
        kind = "application/json" if octets is None else "application/octet-stream"
        content = octets if octets is not None else None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {token}", "Content-Type": kind, **headers}
        with httpx.Client(transport=self.bridge, base_url="http://127.0.0.1") as http:
            return http.request(method, path, content=content, headers=sent)

    def token(self, tenant: str, *scopes: str) -> str:
        """Create a tenant and return a token for it."""
        self.ask("PUT", f"/api/tenants/{tenant}", {"weight": 1})
        body = {"name": "test", "scopes": list(scopes or ("read", "submit")), "tenant": tenant}
        return str(self.ask("POST", "/api/tokens", body).json()["token"])

    def put_file(self, data: bytes, **more: Any) -> httpx.Response:
        """Upload a small file."""
        return self.ask("PUT", f"/api/files/{sha_of(data)}/parts/0?size={len(data)}", octets=data, **more)

    def commit(self, *rows: list[Any], name: str = "", **more: Any) -> httpx.Response:
        return self.ask("POST", f"/api/artifacts?name={name}", octets=manifest_of(*rows), **more)

    def missing(self, *shas: str, **more: Any) -> list[str]:
        answer = self.ask("POST", "/api/missing-files", {"hashes": list(shas)}, **more)
        found: list[str] = answer.json()["missing"]
        return found

    def sent(self, method: str, part: str) -> list[httpx.Request]:
        """Return the requests whose path contains this text."""
        return [one for one in self.bridge.asked if one.method == method and part in one.url.path]

    # -- time and the leader ----------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Move all due times into the past by some seconds."""
        for name in ("loose", "uploads", "unowned"):
            for member, _ in self.store.client.zscan_iter(f"ct:{name}"):
                self.store.client.zincrby(f"ct:{name}", -1000 * seconds, member)

    def collect(self) -> None:
        """Run one round of the leader."""
        ArtifactCleanupTask(self.store, Trees(self.store, self.settings)).run_once()

    def objects(self, tenant: str = "default") -> int:
        """Return the tenant's objects on disk."""
        return sum(path.is_file() for path in (self.folder / tenant).rglob("*"))

    def sums(self, tenant: str = "default") -> tuple[int, int, int, int]:
        """Return the files and bytes that artifacts refer to, and the unreferenced ones."""
        found = self.store.files.sums().get(tenant)
        return (found.stored_files, found.stored_bytes, found.loose_files, found.loose_bytes) if found else (0, 0, 0, 0)

    def delete(self, artifact: str) -> None:
        self.trees.delete("default", artifact, ANONYMOUS)

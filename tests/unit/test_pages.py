"""Tests the pages that a coordinator serves: types, headers, caching, and no access outside their folder."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from fastapi import FastAPI

from coordinator import app
from coordinator.server import pages
from jobs.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class Client:
    """Sends requests to an application without a server, with unchanged paths, which httpx would normalize."""

    def __init__(self, served: FastAPI) -> None:
        self.served = served

    def request(self, method: str, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return asyncio.run(self._ask(method, path, headers or {}))

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers)

    async def _ask(self, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
        async def app_with_the_path(scope: Any, receive: Any, send: Any) -> None:
            await self.served({**scope, "path": unquote(path), "raw_path": path.encode()}, receive, send)

        transport = httpx.ASGITransport(app=app_with_the_path)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, "/", headers=headers)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Return a client of a coordinator whose Redis does not answer, because pages need no Redis."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "secret.txt").write_text("not a page")
    dist = folder / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text("<!doctype html><title>Threads</title>")
    (dist / "cluster.html").write_text("<!doctype html><title>Cluster</title>")
    (dist / "favicon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (dist / "assets" / "index-abc123.js").write_text("export {};")
    (dist / "assets" / "index-abc123.css").write_text("body {}")
    (dist / "apiary.html").write_text("bees")
    (dist / "docs").mkdir()
    (dist / "docs" / "index.html").write_text("<!doctype html><title>Documentation</title>")
    (dist / "docs" / "access.html").write_text("<!doctype html><title>Access</title>")
    (dist / "docs" / "search.json").write_text("{}")
    (dist / "leak.txt").symlink_to(folder / "secret.txt")
    chosen = Settings(pages_dir=str(dist), redis_url="redis://127.0.0.1:1/0", metrics_port=0)
    return Client(app.create(chosen))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/cluster.html", "text/html; charset=utf-8"),
        ("/favicon.svg", "image/svg+xml; charset=utf-8"),
        ("/assets/index-abc123.js", "text/javascript; charset=utf-8"),
        ("/assets/index-abc123.css", "text/css; charset=utf-8"),
        ("/apiary.html", "text/html; charset=utf-8"),
        ("/docs/", "text/html; charset=utf-8"),
        ("/docs/access.html", "text/html; charset=utf-8"),
        ("/docs/search.json", "application/json; charset=utf-8"),
    ],
)
def test_a_page_has_its_type_and_the_fronts_headers(client: Client, path: str, kind: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    for name, value in pages.HEADERS.items():
        assert answer.headers[name] == value
    lasting = path.startswith("/assets/")
    assert answer.headers["cache-control"] == ("public, max-age=31536000, immutable" if lasting else "no-cache")


def test_the_first_page_is_the_cluster_page(client: Client) -> None:
    assert client.get("/").text == client.get("/cluster.html").text
    assert "<title>Threads" in client.get("/index.html").text


def test_the_address_of_the_documentation_gets_its_slash(client: Client) -> None:
    """Links on the documentation's pages are relative."""
    answer = client.get("/docs")
    assert answer.status_code == 307 and answer.headers["location"].endswith("/docs/")


def test_the_headers_are_those_of_the_front() -> None:
    text = (ROOT / "nginx/conf/headers.conf").read_text()
    sent = {
        name: value.strip('"')
        for name, value in re.findall(r'^add_header (\S+) (".*"|\S+) always;$', text, re.MULTILINE)
    }
    own = {name: value for name, value in sent.items() if not value.startswith("$")}
    assert own == pages.HEADERS


def test_the_types_are_those_of_the_web_image() -> None:
    text = (ROOT / "web/nginx.conf").read_text()
    [block] = re.findall(r"types \{\n(.*?)\}", text, re.DOTALL)
    types = {
        f".{end}": kind for kind, *ends in (line.rstrip(";").split() for line in block.split("\n")[:-1]) for end in ends
    }
    assert {end: types[end] for end in pages.TYPES} == pages.TYPES


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/../../secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/leak.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/assets/%00",
        "/nothing.html",
        "/assets/nothing.js",
    ],
)
def test_nothing_outside_the_folder_is_read(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "not a page" not in answer.text and "root:" not in answer.text


def test_a_file_is_not_sent_twice(client: Client) -> None:
    etag = client.get("/cluster.html").headers["etag"]
    again = client.get("/cluster.html", headers={"If-None-Match": etag})
    assert again.status_code == 304 and not again.content
    assert again.headers["x-content-type-options"] == "nosniff"


PLAIN = "export const figures = [1, 2, 3];\n" * 100


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, Client]:
    """Return a script with compressed versions, as a build creates them, and one without."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (tmp_path / "index.html").write_text("here")
    (assets / "a.js").write_text(PLAIN)
    (assets / "a.js.gz").write_bytes(gzip.compress(PLAIN.encode()))
    (assets / "a.js.br").write_bytes(b"as if it were brotli")
    (assets / "b.js").write_text(PLAIN)
    return assets, Client(
        app.create(Settings(pages_dir=str(tmp_path), redis_url="redis://127.0.0.1:1/0", metrics_port=0))
    )


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("br; q=0.0,gzip;q=0", None),
        ("identity", None),
        ("", None),
        ("GZIP", "gzip"),
    ],
)
def test_a_file_goes_out_packed_as_the_browser_takes_it(
    packed: tuple[Path, Client], accepted: str, coding: str | None
) -> None:
    assets, client = packed
    answer = client.get("/assets/a.js", {"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == coding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    end = {"br": ".br", "gzip": ".gz", None: ""}[coding]
    assert int(answer.headers["content-length"]) == (assets / f"a.js{end}").stat().st_size
    if coding != "br":  # which this client cannot unpack
        assert answer.text == PLAIN
    plain = client.get("/assets/b.js", {"Accept-Encoding": accepted})
    assert plain.text == PLAIN and "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "Accept-Encoding"


def test_packed_forms_have_etags_of_their_own(packed: tuple[Path, Client]) -> None:
    _, client = packed
    etags = {coding: client.get("/assets/a.js", {"Accept-Encoding": coding}).headers["etag"] for coding in ("gzip", "")}
    assert len(set(etags.values())) == 2
    for coding, etag in etags.items():
        again = client.get("/assets/a.js", {"Accept-Encoding": coding, "If-None-Match": etag})
        assert again.status_code == 304 and again.headers["vary"] == "Accept-Encoding"
    assert client.get("/assets/a.js", {"Accept-Encoding": "", "If-None-Match": etags["gzip"]}).status_code == 200


def test_a_part_of_a_file_is_of_the_plain_one(packed: tuple[Path, Client]) -> None:
    answer = packed[1].get("/assets/a.js", {"Accept-Encoding": "gzip", "Range": "bytes=0-5"})
    assert (answer.status_code, answer.text) == (206, PLAIN[:6])
    assert "content-encoding" not in answer.headers


def test_a_packed_file_of_another_build_and_a_link_are_not_sent(packed: tuple[Path, Client]) -> None:
    assets, client = packed
    later = (assets / "a.js").stat().st_mtime + 10
    os.utime(assets / "a.js", (later, later))
    assert "content-encoding" not in client.get("/assets/a.js", {"Accept-Encoding": "gzip"}).headers
    (assets / "b.js.gz").symlink_to(ROOT / "README.md")
    assert client.get("/assets/b.js", {"Accept-Encoding": "gzip"}).text == PLAIN


def test_the_api_stays_the_apis(client: Client) -> None:
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/api/openapi.json").json()["info"]["title"] == "Threads Cluster"
    assert client.request("POST", "/api/status").status_code == 405
    unknown = client.get("/api/no/such/path")
    assert unknown.status_code == 404 and "see /api/docs" in unknown.json()["detail"]
    assert client.get("/api").status_code == 404
    assert client.request("POST", "/").status_code == 405


def test_without_the_setting_there_are_no_pages() -> None:
    bare = Client(app.create(Settings(redis_url="redis://127.0.0.1:1/0", metrics_port=0)))
    assert bare.get("/").status_code == 404


def test_a_folder_may_come_later(tmp_path: Path) -> None:
    chosen = Settings(pages_dir=str(tmp_path / "dist"), redis_url="redis://127.0.0.1:1/0", metrics_port=0)
    late = Client(app.create(chosen))
    assert late.get("/").status_code == 404
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "cluster.html").write_text("here")
    assert late.get("/").text == "here"


# -- paths and methods ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/api/status/", "/api/status"),
        ("/api/jobs/", "/api/jobs"),
        ("/api/submit/", "/api/submit"),
        ("/api/jobs/a/cancel/", "/api/jobs/a/cancel"),
        ("/health//", "/health"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_slash_at_the_end_is_a_404_that_names_the_path(client: Client, method: str, path: str, meant: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].endswith(f" {meant}")


def test_a_slash_where_there_is_nothing_either_way_names_nothing(client: Client) -> None:
    assert "see /api/docs" in client.get("/api/no/such/path/").json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/api/jobs/a/result", "GET, OPTIONS"),
        ("POST", "/api/jobs/a/events", "GET, OPTIONS"),
        ("GET", "/api/submit", "POST, OPTIONS"),
        ("POST", "/api/jobs/a", "GET, DELETE, OPTIONS"),
        ("GET", "/api/jobs/a/cancel", "POST, OPTIONS"),
        ("DELETE", "/api/jobs", "GET, OPTIONS"),
        ("PUT", "/api/jobs/a", "GET, DELETE, OPTIONS"),
        ("POST", "/health", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_wrong_method_is_a_405_that_lists_the_right_ones(client: Client, method: str, path: str, allow: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 405, answer.text
    assert answer.headers["allow"] == allow and answer.headers["content-type"] == "application/problem+json"
    asked = client.request("OPTIONS", path)
    assert (asked.status_code, asked.headers["allow"], asked.content) == (204, allow, b"")


def test_what_no_method_finds_stays_a_404(client: Client) -> None:
    for method in ("POST", "OPTIONS"):
        assert client.request(method, "/api/jobs/a/nonsense").status_code == 404


def test_health_answers_head(client: Client) -> None:
    answer = client.request("HEAD", "/health")
    assert answer.status_code == 200
    assert client.request("HEAD", "/ready").status_code == 503, "there is no Redis, and HEAD says so too"

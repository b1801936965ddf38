"""Tests downloads of models from servers that disconnect, redirect, send wrong data, or behave like a hub."""

from __future__ import annotations

import hashlib
import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore import auth, awsrequest, credentials

from coordinator.workflows.documents import fetching

DATA = bytes(range(256)) * 4000
SHA = hashlib.sha256(DATA).hexdigest()


class Hub(ThreadingHTTPServer):
    """A file server by path. `breaks` contains the number of bytes after which the next responses are cut off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.leads: dict[str, str] = {}
        self.breaks: list[int] = []
        self.tag = '"one"'
        #: Path, Range and Authorization of each request.
        self.asked: list[tuple[str, str | None, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        hub, path = self.server, self.path
        span = self.headers.get("Range")
        hub.asked.append((path, span, self.headers.get("Authorization")))
        if path in hub.leads:
            self.send_response(302)
            self.send_header("Location", hub.leads[path])
            self.end_headers()
            return
        if path not in hub.files:
            self.send_error(404)
            return
        data, first = hub.files[path], 0
        if span and self.headers.get("If-Range") == hub.tag:
            first = int(span.removeprefix("bytes=").removesuffix("-"))
            if first >= len(data):
                self.send_error(416)
                return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", hub.tag)
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        cut = hub.breaks.pop(0) if hub.breaks else len(data)
        self.wfile.write(data[first : first + cut])


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    (tmp_path / "kept").mkdir()
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("CLUSTER_WORKSPACE", str(tmp_path / "kept"))
    monkeypatch.chdir(tmp_path / "folder")
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
        server.shutdown()
        thread.join()


def got(path: str) -> bytes:
    return (Path("model") / path).read_bytes()


def test_a_file_is_downloaded_and_verified(hub: Hub, tmp_path: Path) -> None:
    hub.files["/a/tiny.gguf"] = DATA
    assert fetching.main([f"{hub.url}/a/tiny.gguf", SHA.upper()]) == 0
    assert got("tiny.gguf") == DATA and not list((tmp_path / "kept").iterdir())


def test_what_broke_off_goes_on_where_it_stopped(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files["/tiny.gguf"] = DATA
    hub.breaks = [1000, 5000]
    assert fetching.main([f"{hub.url}/tiny.gguf", SHA]) == 1
    assert "broke after 1000 of 1024000 bytes" in capsys.readouterr().err
    assert fetching.main([f"{hub.url}/tiny.gguf", SHA]) == 1
    assert fetching.main([f"{hub.url}/tiny.gguf", SHA]) == 0
    assert [span for _, span, _ in hub.asked] == [None, "bytes=1000-", "bytes=6000-"] and got("tiny.gguf") == DATA


def test_another_file_in_its_place_is_downloaded_from_its_beginning(hub: Hub) -> None:
    hub.files["/tiny.gguf"] = b"x" * len(DATA)
    hub.breaks = [1000]
    assert fetching.main([f"{hub.url}/tiny.gguf"]) == 1
    hub.files["/tiny.gguf"], hub.tag = DATA, '"two"'
    assert fetching.main([f"{hub.url}/tiny.gguf", SHA]) == 0 and got("tiny.gguf") == DATA


def test_a_server_without_a_strong_tag_is_asked_anew(hub: Hub) -> None:
    hub.files["/tiny.gguf"], hub.tag, hub.breaks = DATA, 'W/"one"', [1000]
    assert fetching.main([f"{hub.url}/tiny.gguf"]) == 1
    assert fetching.main([f"{hub.url}/tiny.gguf", SHA]) == 0
    assert [span for _, span, _ in hub.asked] == [None, None]


def test_a_file_that_is_shorter_than_what_is_there_is_downloaded_anew(hub: Hub) -> None:
    hub.files["/tiny.gguf"], hub.breaks = DATA, [1000]
    assert fetching.main([f"{hub.url}/tiny.gguf"]) == 1
    hub.files["/tiny.gguf"] = DATA[:500]
    assert fetching.main([f"{hub.url}/tiny.gguf"]) == 0 and got("tiny.gguf") == DATA[:500]


def test_another_hash_than_it_must_have_leaves_nothing(hub: Hub, tmp_path: Path, capsys: Any) -> None:
    hub.files["/tiny.gguf"] = DATA
    assert fetching.main([f"{hub.url}/tiny.gguf", "0" * 64]) == 1
    assert f"SHA-256 is {SHA}, expected {'0' * 64}" in capsys.readouterr().err
    assert not Path("model").exists() and not [one for one in (tmp_path / "kept").iterdir() if not one.suffix]


def raw(text: bytes) -> Iterator[str]:
    """Serve one connection after another with these bytes, regardless of the request."""

    class Liar(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(text)

    with socketserver.TCPServer(("127.0.0.1", 0), Liar) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"SSH-2.0-x\r\n", "sent an invalid response"),
        (b"HTTP/1.1 200 X\r\nContent-Length: many\r\n\r\nx", "sent an invalid response"),
        (b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 500 + b"\r\n", "sent an invalid response"),
        (b"HTTP/1.1 200 X\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", "sent an invalid response"),
        (b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "sent an invalid response"),
        (b"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "the encoding gzip"),
        (b"HTTP/1.1 206 X\r\nContent-Range: bytes 5-6/7\r\nContent-Length: 1\r\n\r\nx", "another byte range"),
        (b"HTTP/1.1 206 X\r\nContent-Length: 1\r\n\r\nx", "another byte range"),
        (b"HTTP/1.1 302 X\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "Redirection"),
    ],
    ids=range(9),
)
def test_a_server_that_lies_leaves_no_file_and_a_line_that_says_so(
    hub: Hub, capsys: pytest.CaptureFixture[str], text: bytes, why: str
) -> None:
    for url in raw(text):
        assert fetching.main([f"{url}/tiny.gguf"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cannot download http://") and why in said and len(said) < 1200, said
    assert not Path("model/tiny.gguf").exists() and not hub.asked


@pytest.mark.parametrize("told", [b"[]", b"{}", b'{"siblings": 7}', b'{"siblings": [7]}', b"[" * 100_000, b"\xff", b""])
def test_a_hub_that_lists_nonsense_is_said(hub: Hub, capsys: pytest.CaptureFixture[str], told: bytes) -> None:
    hub.files["/api/models/org/repo/revision/main?blobs=true"] = told
    assert fetching.main(["hf://org/repo"]) == 1
    assert "sent an invalid response" in capsys.readouterr().err


def repository(hub: Hub, *paths: str, **hashes: str) -> None:
    told = [{"rfilename": path, "lfs": {"sha256": hashes.get("sha", SHA)}} for path in paths]
    hub.files["/api/models/org/repo/revision/main?blobs=true"] = json.dumps({"siblings": told}).encode()
    for path in paths:
        hub.leads[f"/org/repo/resolve/main/{path}"] = f"{hub.url}/store/{path}"
        hub.files[f"/store/{path}"] = DATA


def test_a_repository_of_a_hub_gives_weights_and_what_describes_them(hub: Hub, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    repository(hub, "model.safetensors", "config.json", "pytorch_model.bin", "README.md", ".gitattributes")
    assert fetching.main(["hf://org/repo"]) == 0
    assert sorted(path.name for path in Path("model").iterdir()) == ["config.json", "model.safetensors"]
    tokens = {path: token for path, _, token in hub.asked}
    assert tokens["/org/repo/resolve/main/config.json"] == "Bearer hf_secret"
    assert tokens["/store/config.json"] is None, "where the hub leads on to gets no token"


@pytest.mark.parametrize(
    ("paths", "asked", "why"),
    [
        (["a.gguf", "b.gguf"], "hf://org/repo", "has 2 .gguf files; name one, such as hf://ORG/REPO/a.gguf"),
        (["pytorch_model.bin"], "hf://org/repo", "no .gguf or .safetensors files"),
        (["a.gguf"], "hf://org/repo/c.gguf", "has no c.gguf; it has a.gguf"),
        (["m.bin"], "hf://org/repo/m.bin", "m.bin is rejected because pickled weights"),
        (["../x.gguf"], "hf://org/repo", "does not name a file: '../x.gguf'"),
        ([], "hf://org", "needs an organization and a repository"),
        ([], "hf://org/none", "404"),
        ([], "ftp://x/a.gguf", "must start with https://"),
        ([], "http://127.0.0.1:1/", "does not name a file: ''"),
        ([], "http://127.0.0.1:1/a.gguf", "Connection refused"),
    ],
)
def test_what_cannot_be_is_said(hub: Hub, capsys: Any, paths: list[str], asked: str, why: str) -> None:
    if paths:
        repository(hub, *paths)
    assert fetching.main([asked]) == 1
    assert why in capsys.readouterr().err and not Path("model").exists()


def test_one_file_of_a_repository_has_the_hash_that_the_hub_tells(hub: Hub, capsys: Any) -> None:
    repository(hub, "q/a.gguf", "q/b.gguf")
    assert fetching.main(["hf://org/repo/q/a.gguf"]) == 0 and got("q/a.gguf") == DATA
    repository(hub, "q/a.gguf", sha="0" * 64)
    assert fetching.main(["hf://org/repo@main/q/a.gguf"]) == 1
    assert "expected " in capsys.readouterr().err


# -- buckets ----------------------------------------------------------------------------------------------------------


def page(*keys: str, more: str = "") -> bytes:
    """Return one page of a list in S3's format."""
    rest = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f"<R>{''.join(f'<Contents><Key>{key}</Key></Contents>' for key in keys)}{rest}</R>".encode()


@pytest.fixture
def bucket(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Return an unsigned S3 server whose lists are files."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", hub.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return hub


def data(name: str) -> bytes:
    return (Path("data") / name).read_bytes()


def test_all_below_a_key_is_downloaded_page_by_page_and_no_neighbour(bucket: Hub) -> None:
    bucket.files["/b?list-type=2&prefix=in"] = page("in/", "in/a", "in/x&amp;y/b.bin", "inside", more="t/2")
    bucket.files["/b?list-type=2&prefix=in&continuation-token=t%2F2"] = page("in/c d")
    for name in ("/b/in/a", "/b/in/x%26y/b.bin", "/b/in/c%20d"):
        bucket.files[name] = name.encode()
    assert fetching.main(["s3://b/in", "-", "data"]) == 0
    assert [data(name) for name in ("a", "x&y/b.bin", "c d")] == [b"/b/in/a", b"/b/in/x%26y/b.bin", b"/b/in/c%20d"]
    assert not (Path("data") / "inside").exists()


def test_a_list_of_a_bucket_that_does_not_end_is_given_up(bucket: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    bucket.files["/data?list-type=2&prefix=a"] = page("a/1", more="on")
    bucket.files["/data?list-type=2&prefix=a&continuation-token=on"] = page("a/1", more="on")
    assert fetching.main(["s3://data/a", "-", "data"]) == 1
    assert "repeats the same page" in capsys.readouterr().err


def test_an_object_of_that_key_is_taken_alone_and_verified(bucket: Hub) -> None:
    bucket.files["/b?list-type=2&prefix=m/tiny.gguf"] = bucket.files["/b?list-type=2&prefix=m%2Ftiny.gguf"] = page(
        "m/tiny.gguf", "m/tiny.gguf/x"
    )
    bucket.files["/b/m/tiny.gguf"] = DATA
    assert fetching.main(["s3://b/m/tiny.gguf", SHA]) == 0 and got("tiny.gguf") == DATA
    assert fetching.main(["s3://b/m/tiny.gguf", "0" * 64]) == 1


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ((), "has no object k and no"),
        (("k/../x",), "does not name a file"),
        (("k/w.bin",), "pickled weights"),
    ],
)
def test_what_a_bucket_should_not_have_is_refused(
    bucket: Hub, keys: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.files["/b?list-type=2&prefix=k"] = page(*keys)
    assert fetching.main(["s3://b/k"]) == 1 and words in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "a session"])
@pytest.mark.parametrize(
    "url", ["https://s3.eu-x.amazonaws.com/b/a%20b/c", "http://127.0.0.1:9/b?list-type=2&prefix=a%2Fb"]
)
def test_requests_are_signed_as_amazons_own_client_signs_them(
    url: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "se/cret", "AWS_REGION": "eu-x"}
    for name, value in (names | {"AWS_SESSION_TOKEN": token}).items():
        monkeypatch.setenv(name, value)
    signer = auth.S3SigV4Auth(credentials.Credentials("AKID", "se/cret", token or None), "s3", "eu-x")
    asked = awsrequest.AWSRequest("GET", url)
    signer.add_auth(asked)
    ours = fetching.signature(url, asked.headers["X-Amz-Date"])
    assert ours["Authorization"].rpartition("=")[2] == theirs(signer, asked, url, ours)


def theirs(signer: Any, asked: Any, url: str, ours: dict[str, str]) -> str:
    """Return the signature that Amazon's client computes for the headers that our signature names."""
    anew = awsrequest.AWSRequest(
        "GET", url, headers={name: value for name, value in ours.items() if name != "Authorization"}
    )
    anew.context["timestamp"] = asked.context["timestamp"]
    text = signer.string_to_sign(anew, signer.canonical_request(anew))
    return str(signer.signature(text, anew))

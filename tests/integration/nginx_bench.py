"""The real nginx on loopback with misbehaving upstreams, and a DNS server for their names."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import IN_CI
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
#: nginx counts whole seconds, so this long after a change it asks for names again.
FORGETS_SECONDS = 3.1
#: User ID of the images; only root can switch to it.
USER = 10001 if os.geteuid() == 0 else os.geteuid()
PATH = f"{os.environ['PATH']}:/usr/sbin"


class Names(threading.Thread):
    """Answers A queries with the addresses last passed to `are`. Unknown names do not exist."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._known: dict[str, list[str]] = {}
        self._changed = 0.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def are(self, **known: list[str]) -> None:
        """Set the addresses by name without the domain .test."""
        known = {f"{name}.test": addresses for name, addresses in known.items()}
        if known != self._known:
            self._known, self._changed = known, time.monotonic()

    def settle(self) -> None:
        """Wait until no process remembers other answers."""
        time.sleep(max(0.0, self._changed + FORGETS_SECONDS - time.monotonic()))

    def run(self) -> None:
        while True:
            with suppress(OSError):
                question, sender = self._socket.recvfrom(512)
                if question == b"end":
                    break
                self._socket.sendto(self._answer(question), sender)
        self._socket.close()

    def _answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode())
            at += size + 1
        asked = question[12 : at + 5]
        found = self._known.get(".".join(labels), [])
        head = struct.pack(">HHHHH", 0x8180 if found else 0x8183, 1, len(found), 0, 0)
        rows = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address) for address in found]
        return question[:2] + head + asked + b"".join(rows)

    def end(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            host, port = self.address.split(":")
            sender.sendto(b"end", (host, int(port)))
        self.join(5)


class Replica:
    """An upstream at its own address. It never answers `breaks` requests, and answers 503 while it is `busy`."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.breaks = 0
        self.busy = False
        self.heard: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        #: Events of a stream after the first one wait for this.
        self.go_on = threading.Event()
        self._server = _Server((address, port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Close all open connections, like an exiting process."""
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


def _handler(replica: Replica) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self._body()
            replica.heard.append((self.command, self.path, body))
            replica.headers.append(dict(self.headers.items()))
            if replica.breaks > 0:
                replica.breaks -= 1
                self.close_connection = True
            elif self.path.endswith(("/events", "/follow", "/chat/completions")):
                self._stream()
            else:
                self._send(503 if replica.busy else 200)

        do_POST = do_GET  # noqa: N815
        do_DELETE = do_GET  # noqa: N815

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def _send(self, status: int) -> None:
            text = f'{{"replica": "{replica.address}", "told": "by the coordinator itself"}}'.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            self.wfile.flush()
            replica.go_on.wait(60)
            self.wfile.write(b"data: second\n\n")
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def silent(address: str, port: int) -> Iterator[None]:
    """Return an address that never answers, because the queue of its listening socket is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield


class Image:
    """Files that a Dockerfile copies, in a separate folder that belongs to the image's user."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nginx-test-"))
        shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("node_modules"))
        self.log, self.errors = self.folder / "log", self.folder / "errors"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str], awaited: int, **variables: str) -> None:
        with self.log.open("w") as out, self.errors.open("w") as errors:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, USER, USER if os.geteuid() == 0 else -1)
            self.process = subprocess.Popen(
                command,
                env={"PATH": PATH, **variables},
                stdout=out,
                stderr=errors,
                cwd=self.folder,
                user=USER,
                extra_groups=[] if os.geteuid() == 0 else None,
            )
        for _ in range(1000):
            with suppress(OSError), socket.create_connection(("127.0.0.1", awaited), timeout=1):
                return
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.05)
        raise AssertionError(self.errors.read_text())

    def end(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(60)
        shutil.rmtree(self.folder)


class Front(Image):
    def __init__(self, names: Names, port: int, more: str = "", **variables: str) -> None:
        super().__init__("nginx")
        names_of_ports = ("LISTEN_HTTP", "LISTEN_API", "LISTEN_STATUS", "LISTEN_TLS", "LISTEN_GRPC")
        self.ports = {name: free_port() for name in names_of_ports}
        self.url, self.api, self.inner = (f"http://127.0.0.1:{port}" for port in list(self.ports.values())[:3])
        self.tls = f"https://127.0.0.1:{self.ports['LISTEN_TLS']}"
        (self.folder / "nginx/more").mkdir()
        (self.folder / "nginx/more/more.conf").write_text(more)
        self.variables = {
            "RENDERED": str(self.folder / "rendered"),
            "RESOLVER": names.address,
            "COORDINATOR_HOST": f"coordinator.test:{port}",
            "WEB_HOST": f"web.test:{port}",
            **{name: f"127.0.0.1:{number}" for name, number in self.ports.items()},
            **variables,
        }

    def run(self) -> None:
        self.start(["nginx/start.sh"], self.ports["LISTEN_STATUS"], **self.variables)

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines of the access log, whose last line can be incomplete."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def front(names: Names, port: int, more: str = "", **variables: str) -> Iterator[Front]:
    running = Front(names, port, more, **variables)
    try:
        running.run()
        yield running
    finally:
        running.end()


@contextmanager
def web() -> Iterator[tuple[str, str]]:
    """Return the URLs of the pages, built or as sources, and of the metrics."""
    image, pages, figures = Image("web"), free_port(), free_port()
    built = image.folder / "web/dist"
    site = built if (built / "index.html").is_file() else image.folder / "web"
    try:
        path = image.folder / "web/nginx.conf"
        text = path.read_text().replace("/tmp/", f"{image.folder}/").replace("/srv/web", str(site))
        text = text.replace("listen 8080", f"listen 127.0.0.1:{pages}").replace(
            "listen 9113", f"listen 127.0.0.1:{figures}"
        )
        path.write_text(text)
        (site / "assets").mkdir(exist_ok=True)
        (site / "assets/a-1b2c.mjs").write_text("export {}\n")
        (site / "docs/search").mkdir(parents=True, exist_ok=True)
        (site / "docs/index.html").write_text("documentation")
        (site / "docs/search/search_index.json").write_text("{}")
        image.start(["nginx", "-c", str(path), "-e", "stderr", "-g", "daemon off;"], pages)
        yield f"http://127.0.0.1:{pages}", f"http://127.0.0.1:{figures}"
    finally:
        image.end()


@contextmanager
def before(addresses: list[str], port: int, **variables: str) -> Iterator[Front]:
    """Start nginx for all coordinators, which it knows by one name, whether they are running or not."""
    require_nginx()
    names = Names()
    names.start()
    names.are(coordinator=addresses)
    try:
        with front(names, port, **variables) as running:
            yield running
    finally:
        names.end()


def require_nginx() -> None:
    """Skip the test if nginx is not installed, or fail if it is required."""
    if not have_nginx():
        assert not IN_CI, "nginx is not installed"
        pytest.skip("nginx is not installed")


def have_nginx() -> bool:
    return shutil.which("nginx", path=PATH) is not None

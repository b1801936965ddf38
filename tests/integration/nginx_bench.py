"""The real nginx on loopback, upstreams that misbehave on request, and a DNS server for their names."""

from __future__ import annotations

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

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Names(threading.Thread):
    """Answers A questions from `known`, which may change at any time; an unknown name does not exist."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.known: dict[str, list[str]] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

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
        found = self.known.get(".".join(labels), [])
        head = struct.pack(">HHHHH", 0x8180 if found else 0x8183, 1, len(found), 0, 0)
        rows = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address) for address in found]
        return question[:2] + head + asked + b"".join(rows)

    def end(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            host, port = self.address.split(":")
            sender.sendto(b"end", (host, int(port)))
        self.join(5)


class Replica:
    """One upstream at an address of its own. `breaks` requests are read and then left without an answer."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.breaks = 0
        self.heard: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        #: Events of a stream after the first wait for this.
        self.go_on = threading.Event()
        self._server = ThreadingHTTPServer((address, port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(replica: Replica) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            replica.heard.append((self.command, self.path, body))
            replica.headers.append(dict(self.headers.items()))
            if replica.breaks > 0:
                replica.breaks -= 1
                self.close_connection = True
            elif self.path.endswith("/events"):
                self._stream()
            else:
                self._send(503 if "busy" in self.path else 200)

        do_POST = do_GET  # noqa: N815
        do_DELETE = do_GET  # noqa: N815

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
            replica.go_on.wait(10)
            self.wfile.write(b"data: second\n\n")
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    return Handler


class Front:
    def __init__(self, folder: Path, names: Names, port: int, **variables: str) -> None:
        self.ports = {name: free_port() for name in ("LISTEN_HTTP", "LISTEN_API", "LISTEN_STATUS", "LISTEN_TLS")}
        self.url, self.api, self.inner = (f"http://127.0.0.1:{port}" for port in list(self.ports.values())[:3])
        self.tls = f"https://127.0.0.1:{self.ports['LISTEN_TLS']}"
        self.log = folder / "log"
        # Its workers are another user when root runs this, and pytest's folders are closed.
        self.folder = Path(tempfile.mkdtemp(prefix="nginx-"))
        self.folder.chmod(0o755)
        environment = {
            **os.environ, "RENDERED": str(self.folder / "nginx"), "RESOLVER": names.address,
            "COORDINATOR_HOST": f"coordinator.test:{port}", "WEB_HOST": f"web.test:{port}",
            **{name: str(number) for name, number in self.ports.items()}, **variables,
        }  # fmt: skip
        with self.log.open("w") as out, (folder / "errors").open("w") as errors:
            self.process = subprocess.Popen([ROOT / "nginx/start.sh"], env=environment, stdout=out, stderr=errors)
        self._await(folder)

    def _await(self, folder: Path) -> None:
        for _ in range(100):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports["LISTEN_STATUS"]), timeout=1):
                return
            assert self.process.poll() is None, (folder / "errors").read_text()
            time.sleep(0.05)
        raise AssertionError((folder / "errors").read_text())

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.folder)


@contextmanager
def front(folder: Path, names: Names, port: int, **variables: str) -> Iterator[Front]:
    running = Front(folder, names, port, **variables)
    try:
        yield running
    finally:
        running.end()


def have_nginx() -> bool:
    return shutil.which("nginx") is not None

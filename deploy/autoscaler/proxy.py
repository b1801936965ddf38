"""Proxy before the engine, whose socket it alone has: lists, starts and stops workers of this project's pool.

Whoever has the socket is root on its machine, however it is mounted. So no byte of a request is passed on: its first
line must be one of three, it has no body, and the proxy then asks the engine in words of its own, about containers that
the engine itself says are of the pool. Everything else is answered 403 and logged.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import sys
from collections.abc import Mapping, Sequence
from email.message import Message
from http.client import HTTPConnection, HTTPException  # noqa: TID251 - httpx leaks Unix sockets that refuse
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

SOCKET = Path("/var/run/docker.sock")
PORT = 2375
#: Compose's service whose containers may be started and stopped.
POOL = "cpu-worker-pool"
#: Longer than a worker takes to stop: Compose's stop_grace_period is 30 s.
ENGINE_SECONDS = 45
#: For the head of a request, which only the autoscaler sends.
CLIENT_SECONDS = 5
_MOST_BYTES = 8 << 20
_COMPOSE = "com.docker.compose."

# As the docker SDK writes them, which is pinned; the version of the API that it names is not used.
_LIST = re.compile(r"GET /v1\.[0-9]{2}/containers/json\?limit=-1&all=1&size=0&trunc_cmd=0 HTTP/1\.1")
_ACT = re.compile(r"POST /v1\.[0-9]{2}/containers/([0-9a-f]{64})/(start|stop) HTTP/1\.1")
#: Headers of requests that are more than a line: with a body, or with a wish to become another protocol.
_MORE = ("Transfer-Encoding", "Upgrade", "Expect", "Trailer", "HTTP2-Settings")

Answer = tuple[int, Any]


class ForbiddenRequest(Exception):
    """The request is none of those that are let through; the message says why."""


class Engine(Protocol):
    """Calls that the proxy makes to an engine. OSError or HTTPException when it does not answer."""

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        ...


class EngineConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=ENGINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class UnixEngine:
    """The engine behind a socket of this machine."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        connection = EngineConnection(self._path)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        except PermissionError:
            group = self._path.stat().st_gid
            raise PermissionError(f"this user may not open {self._path}; set DOCKER_GID={group} in .env") from None
        finally:
            connection.close()


class OwnContainers:
    """Containers of the pool of one project, by their labels."""

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine = engine
        self._labels = {f"{_COMPOSE}project": project, f"{_COMPOSE}service": POOL, f"{_COMPOSE}oneoff": "False"}

    def containers(self) -> list[dict[str, str]]:
        """Return Id and State of each."""
        filters = {"label": [f"{name}={value}" for name, value in self._labels.items()]}
        status, body = self._engine.ask(
            "GET", f"/containers/json?{urlencode({'all': 1, 'filters': json.dumps(filters)})}"
        )
        if status != 200:
            raise HTTPException(_message(body) or f"status {status}")
        return [{"Id": each["Id"], "State": each["State"]} for each in json.loads(body) if self._is_ours(each)]

    def _is_ours(self, container: Mapping[str, Any]) -> bool:
        labels = container["Labels"] or {}
        return all(labels.get(name) == value for name, value in self._labels.items())

    def act(self, container: str, verb: str) -> Answer:
        """Start or stop one of them; Refused for any other."""
        if container not in [each["Id"] for each in self.containers()]:
            raise ForbiddenRequest(f"the container is not of {POOL}")
        status, body = self._engine.ask("POST", f"/containers/{container}/{verb}")
        return status, {"message": _message(body)} if status >= 400 else None


def _message(body: bytes) -> str:
    """Return what the engine says of an error."""
    try:
        return str(json.loads(body)["message"])[:500]
    except (ValueError, LookupError, TypeError):
        return ""


def answer_request(pool: OwnContainers, line: str, headers: Message) -> Answer:
    """Return the answer to a request by its first line; Refused unless it is one of three."""
    if any(name in headers for name in _MORE) or any(length != "0" for length in headers.get_all("Content-Length", [])):
        raise ForbiddenRequest("it has a body, or asks for another protocol")
    if _LIST.fullmatch(line):
        return 200, pool.containers()
    if act := _ACT.fullmatch(line):
        return pool.act(act[1], act[2])
    raise ForbiddenRequest("it is no request of the autoscaler")


class Proxy(socketserver.TCPServer):
    """Answers one request at a time, each on a connection of its own."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], pool: OwnContainers) -> None:
        super().__init__(address, Handler)
        self.pool = pool
        #: The socket is that of an engine which has ended: a container started anew has the new one.
        self.is_stale = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Go on when a client has gone before it had its answer."""
        _say(f"a request was not answered: {sys.exc_info()[1]}")


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        try:
            status, body = answer_request(self.server.pool, self.requestline, self.headers)
        except ForbiddenRequest as refused:
            self._refuse(str(refused))
            return
        except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
            self.server.is_stale = isinstance(error, ConnectionRefusedError)
            status, body = 502, {"message": f"the engine does not answer: {error}"}
        if status >= 400:
            _say(f"{status} {self.requestline}: {body['message']}")
        elif self.command == "POST":
            _say(f"{status} {self.requestline}")
        self._send(status, body)

    do_POST = do_GET  # noqa: N815

    def handle_expect_100(self) -> bool:
        """Encourage nobody to send a body."""
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what http.server itself cannot read, such as another method or a head that is too long."""
        self._refuse(message or str(code))

    def _refuse(self, why: str) -> None:
        _say(f"403 {self.requestline[:200]!a}: {why}")
        self._send(403, {"message": f"refused: {why}"})

    def _send(self, status: int, body: Any) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.close_connection = True
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing of http.server's own."""


def _say(line: str) -> None:
    print(line, flush=True)


def project_of(engine: Engine, container: str) -> str:
    """Return the Compose project of a container."""
    status, body = engine.ask("GET", f"/containers/{container}/json")
    if status != 200:
        raise HTTPException(_message(body) or f"status {status}")
    return str(json.loads(body)["Config"]["Labels"][f"{_COMPOSE}project"])


def main(words: Sequence[str]) -> int:
    """Serve until the engine ends. The project is that of the container in which this runs."""
    engine = UnixEngine()
    try:
        project = project_of(engine, socket.gethostname())
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        _say(f"the engine does not answer: {error}")
        return 1
    with Proxy((words[0] if words else "0.0.0.0", PORT), OwnContainers(engine, project)) as proxy:
        _say(f"the workers of {POOL} in the project {project} can be listed, started and stopped")
        while not proxy.is_stale:
            proxy.handle_request()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

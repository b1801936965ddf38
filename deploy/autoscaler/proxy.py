"""Proxy in front of the Docker engine. It can only list, start and stop the worker containers of one project.

Access to the engine's socket is equivalent to root on its machine, so only this proxy has it. The proxy forwards no
part of a request. The request line must match one of three patterns, and the request must have no body. The proxy then
sends its own request about containers that the engine reports as part of the pool. It answers every other request with
403 and logs it.
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
#: Compose service whose containers the proxy can start and stop.
POOL = "cpu-worker-pool"
#: Timeout in seconds of a request to the Docker engine. It is longer than Compose's stop_grace_period of 30 s.
ENGINE_SECONDS = 45
#: Timeout in seconds for receiving the header of a request.
CLIENT_SECONDS = 5
_MAX_BYTES = 8 << 20
_COMPOSE = "com.docker.compose."

# Allowed request lines, which the pinned Docker SDK sends. The API version in the path is ignored.
_LIST = re.compile(r"GET /v1\.[0-9]{2}/containers/json\?limit=-1&all=1&size=0&trunc_cmd=0 HTTP/1\.1")
_ACTION = re.compile(r"POST /v1\.[0-9]{2}/containers/([0-9a-f]{64})/(start|stop) HTTP/1\.1")
#: Headers that announce a request body or a change of protocol.
_FORBIDDEN_HEADERS = ("Transfer-Encoding", "Upgrade", "Expect", "Trailer", "HTTP2-Settings")

Answer = tuple[int, Any]


class ForbiddenRequest(Exception):
    """The request is not one of the allowed requests. The message contains the reason."""


class Engine(Protocol):
    """Connection to a Docker engine. Raises OSError or HTTPException if the engine does not answer."""

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of the response."""
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
    """Docker engine that listens on a Unix socket of this machine."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        connection = EngineConnection(self._path)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_BYTES)
        except PermissionError:
            group = self._path.stat().st_gid
            raise PermissionError(f"this user cannot open {self._path}; set DOCKER_GID={group} in .env") from None
        finally:
            connection.close()


class PoolContainers:
    """Containers in the pool of one project, which are identified by their labels."""

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine = engine
        self._labels = {f"{_COMPOSE}project": project, f"{_COMPOSE}service": POOL, f"{_COMPOSE}oneoff": "False"}

    def containers(self) -> list[dict[str, str]]:
        """Return the ID and the state of each container in the pool."""
        filters = {"label": [f"{name}={value}" for name, value in self._labels.items()]}
        status, body = self._engine.ask(
            "GET", f"/containers/json?{urlencode({'all': 1, 'filters': json.dumps(filters)})}"
        )
        if status != 200:
            raise HTTPException(_message(body) or f"status {status}")
        return [{"Id": each["Id"], "State": each["State"]} for each in json.loads(body) if self._is_in_pool(each)]

    def _is_in_pool(self, container: Mapping[str, Any]) -> bool:
        labels = container["Labels"] or {}
        return all(labels.get(name) == value for name, value in self._labels.items())

    def act(self, container: str, verb: str) -> Answer:
        """Start or stop a container of the pool. Raises ForbiddenRequest for any other container."""
        if container not in [each["Id"] for each in self.containers()]:
            raise ForbiddenRequest(f"the container does not belong to {POOL}")
        status, body = self._engine.ask("POST", f"/containers/{container}/{verb}")
        return status, {"message": _message(body)} if status >= 400 else None


def _message(body: bytes) -> str:
    """Return the error message in the response of the Docker engine, or ""."""
    try:
        return str(json.loads(body)["message"])[:500]
    except (ValueError, LookupError, TypeError):
        return ""


def answer_request(pool: PoolContainers, line: str, headers: Message) -> Answer:
    """Answer a request. Raises ForbiddenRequest if the request line does not match an allowed pattern."""
    if any(name in headers for name in _FORBIDDEN_HEADERS) or any(
        length != "0" for length in headers.get_all("Content-Length", [])
    ):
        raise ForbiddenRequest("requests must have no body and cannot change the protocol")
    if _LIST.fullmatch(line):
        return 200, pool.containers()
    if act := _ACTION.fullmatch(line):
        return pool.act(act[1], act[2])
    raise ForbiddenRequest("only the autoscaler's requests are allowed")


class Proxy(socketserver.TCPServer):
    """HTTP server that answers one request at a time, each on a new connection."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], pool: PoolContainers) -> None:
        super().__init__(address, Handler)
        self.pool = pool
        #: True if the Docker engine that opened the socket has exited. Only a new container gets the new socket.
        self.is_stale = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error if a client disconnects before it has received its response."""
        _log(f"A request failed: {sys.exc_info()[1]}")


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
            status, body = 502, {"message": f"the Docker engine does not answer: {error}"}
        if status >= 400:
            _log(f"{status} {self.requestline}: {body['message']}")
        elif self.command == "POST":
            _log(f"{status} {self.requestline}")
        self._send(status, body)

    do_POST = do_GET  # noqa: N815

    def handle_expect_100(self) -> bool:
        """Do not send `100 Continue`, because requests must have no body."""
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Reject requests that http.server cannot parse, for example because of an unknown method."""
        self._refuse(message or str(code))

    def _refuse(self, why: str) -> None:
        _log(f"403 {self.requestline[:200]!a}: {why}")
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
        """Disable the access log of http.server."""


def _log(line: str) -> None:
    print(line, flush=True)


def project_of(engine: Engine, container: str) -> str:
    """Return the name of the Compose project to which a container belongs."""
    status, body = engine.ask("GET", f"/containers/{container}/json")
    if status != 200:
        raise HTTPException(_message(body) or f"status {status}")
    return str(json.loads(body)["Config"]["Labels"][f"{_COMPOSE}project"])


def main(words: Sequence[str]) -> int:
    """Run the proxy for the Compose project of this container, until the Docker engine exits."""
    engine = UnixEngine()
    try:
        project = project_of(engine, socket.gethostname())
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        _log(f"The Docker engine does not answer: {error}")
        return 1
    with Proxy((words[0] if words else "0.0.0.0", PORT), PoolContainers(engine, project)) as proxy:
        _log(f"Listing, starting and stopping containers of {POOL} in project {project} on request.")
        while not proxy.is_stale:
            proxy.handle_request()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

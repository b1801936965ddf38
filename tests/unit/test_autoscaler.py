"""Tests the autoscaler in containers: which requests its proxy forwards to the engine, and what each round does."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from deploy.autoscaler import pool, proxy
from deploy.autoscaler.__main__ import Autoscaler
from deploy.autoscaler.pool import Containers, EngineError
from deploy.docker.autoscale import Worker, count_needed
from tests.ports import free_port

OURS, THEIRS, COORDINATOR, ONEOFF = (character * 64 for character in "abcd")
MINE = "threads"


def container(number: str, project: str = MINE, service: str = proxy.POOL, oneoff: str = "False") -> dict[str, Any]:
    labels = {"project": project, "service": service, "oneoff": oneoff}
    return {
        "Id": number,
        "State": "exited",
        "Mounts": ["/secret"],
        "Labels": {f"com.docker.compose.{name}": value for name, value in labels.items()},
    }


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Fake Docker engine on a socket that lists by labels, starts and stops; `seen` contains all request lines."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _EngineHandler)
        self.seen: list[str] = []
        self.filters = True
        self.containers = [
            container(OURS),
            container(THEIRS, project="other"),
            container(COORDINATOR, service="coordinator"),
            container(ONEOFF, oneoff="True"),
        ]
        self.trouble: tuple[int, str] | None = None
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def acted(self) -> list[str]:
        return [line for line in self.seen if not line.startswith("GET /containers/json?")]

    def listed(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        wanted = dict(label.split("=") for label in filters["label"])
        if not self.filters:
            return self.containers
        return [each for each in self.containers if wanted.items() <= each["Labels"].items()]

    def acts(self, number: str, verb: str) -> int:
        [one] = [each for each in self.containers if each["Id"] == number]
        before, one["State"] = one["State"], "running" if verb == "start" else "exited"
        return 304 if before == one["State"] else 204


class _EngineHandler(BaseHTTPRequestHandler):
    server: Engine

    def answer(self) -> None:
        self.server.seen.append(self.requestline)
        path = urlsplit(self.path)
        words = path.path.strip("/").split("/")
        status = 200
        body: Any = None
        if self.server.trouble:
            status, body = self.server.trouble[0], {"message": self.server.trouble[1]}
        elif path.path == "/containers/json":
            body = self.server.listed(json.loads(parse_qs(path.query)["filters"][0]))
        elif self.command == "POST":
            status = self.server.acts(*words[1:])
        else:
            body = {"Config": {"Labels": {"com.docker.compose.project": MINE}}}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"" if body is None else json.dumps(body).encode())

    do_GET = answer  # noqa: N815
    do_POST = answer  # noqa: N815

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "s") as running:
        yield running
        running.shutdown()


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int]]:
    """Start a proxy for the engine at this socket, and return its address."""
    with proxy.Proxy(("127.0.0.1", 0), proxy.PoolContainers(proxy.UnixEngine(path), MINE)) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield ("127.0.0.1", running.server_address[1])
        running.shutdown()


@pytest.fixture
def door(engine: Engine, tmp_path: Path) -> Iterator[tuple[str, int]]:
    with served(tmp_path / "s") as address:
        yield address


def said(address: tuple[str, int], text: str) -> bytes:
    """Send raw bytes and return the complete response."""
    with socket.create_connection(address, timeout=60) as link:
        link.sendall(text.encode("latin-1"))
        link.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := link.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        return answer


def client(address: tuple[str, int]) -> pool.Pool:
    return pool.Pool(f"tcp://{address[0]}:{address[1]}")


# -- what passes ------------------------------------------------------------------------------------------------------


def test_the_sdk_lists_starts_and_stops_workers_of_the_pool(engine: Engine, door: tuple[str, int]) -> None:
    ours = client(door)
    assert ours.containers() == Containers(running=[], stopped=[OURS])
    ours.start(OURS)
    ours.start(OURS)
    assert ours.containers() == Containers(running=[OURS], stopped=[])
    ours.stop(OURS)
    assert ours.containers() == Containers(running=[], stopped=[OURS])
    assert engine.acted() == [f"POST /containers/{OURS}/{verb} HTTP/1.1" for verb in ("start", "start", "stop")]


def test_a_list_says_no_more_than_ids_and_states(engine: Engine, door: tuple[str, int]) -> None:
    answer = said(door, "GET /v1.41/containers/json?limit=-1&all=1&size=0&trunc_cmd=0 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == [{"Id": OURS, "State": "exited"}]


def test_labels_are_compared_here_too(engine: Engine, door: tuple[str, int]) -> None:
    engine.filters = False
    assert client(door).containers().stopped == [OURS]
    with pytest.raises(EngineError, match="does not belong to cpu-worker-pool"):
        client(door).stop(THEIRS)


def test_what_the_engine_says_of_an_error_is_passed_on(engine: Engine, door: tuple[str, int], tmp_path: Path) -> None:
    engine.trouble = (500, "no space left on device")
    with pytest.raises(EngineError, match="no space left on device"):
        client(door).containers()


# -- what does not ----------------------------------------------------------------------------------------------------

ONE = f"/v1.41/containers/{OURS}"
LIST = "GET /v1.41/containers/json?limit=-1&all=1&size=0&trunc_cmd=0"
START = f"POST {ONE}/start"
LINES = [
    "POST /v1.41/containers/create?name=x",
    "POST /containers/create",
    "POST /v1.43/../containers/create",
    f"POST {ONE}/exec",
    f"POST /v1.41/exec/{OURS}/start",
    f"POST {ONE}/kill",
    f"POST {ONE}/update",
    f"POST {ONE}/attach",
    f"POST {ONE}/restart",
    f"POST {ONE}/rename?name=redis",
    f"DELETE {ONE}",
    f"PUT {ONE}/archive?path=/",
    f"HEAD {ONE}/archive",
    f"GET {ONE}/json",
    f"GET {ONE}/logs?stdout=1",
    "GET /v1.41/containers/json",
    "GET /v1.41/images/json",
    "POST /v1.41/images/create?fromImage=x",
    "POST /v1.41/build",
    "POST /v1.41/commit",
    "GET /v1.41/info",
    "GET /version",
    "GET /_ping",
    "GET /v1.41/events",
    "GET /v1.41/secrets",
    "GET /v1.41/volumes",
    LIST.replace("all=1", "all=1&all=1"),
    f"{LIST}&filters={{}}",
    f"{LIST}#",
    LIST.replace("/v1.41", "/v1.41/.."),
    LIST.replace("/v1.41", ""),
    LIST.replace("/v1.41", "//v1.41"),
    LIST.replace("/v1.41", "http://docker/v1.41"),
    LIST.replace("json", "js%6Fn"),
    LIST.replace("/json", "%2Fjson"),
    LIST.replace("GET", "get"),
    LIST.replace("GET", "POST"),
    LIST.replace(" ", "\t"),
    LIST.replace(" ", "  "),
    f"{LIST}\0",
    START.replace("POST", "GET"),
    f"{START}/",
    f"{START}?t=0",
    f"{START}%2f..%2fkill",
    f"{START}/../kill",
    f"{START};x",
    START.replace(OURS, OURS[:12]),
    START.replace(OURS, OURS.upper()),
    START.replace(OURS, f"{OURS}a"),
    START.replace(OURS, f"{MINE}-cpu-worker-pool-1"),
    START.replace(OURS, f"..%2f{OURS}"),
    START.replace("/v1.41", "/v1.4a"),
    START.replace(f"/{OURS}", f"//{OURS}"),
    START.replace(f"/{OURS}", f"\\{OURS}"),
    START.replace("/start", "/start\xa0"),
    "CONNECT 127.0.0.1:80",
    "OPTIONS *",
    "PRI *",
    "TRACE /",
    "X" * 300,
    "\x16\x03\x01\x02",
    "GET",
    f"GET /{'a' * 70000}",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line[:70]))
def test_every_other_line_is_refused_and_the_engine_hears_nothing(
    engine: Engine, door: tuple[str, int], capfd: Any, line: str
) -> None:
    answer = said(door, f"{line} HTTP/1.1\r\nHost: engine-proxy:2375\r\nContent-Length: 0\r\n\r\n")
    assert b" 403 " in answer.partition(b"\r\n")[0] or b"refused" in answer
    assert engine.seen == []
    assert capfd.readouterr().out.startswith("403 ")


@pytest.mark.parametrize("number", [THEIRS, COORDINATOR, ONEOFF, "0" * 64])
@pytest.mark.parametrize("verb", ["start", "stop"])
def test_other_containers_are_neither_started_nor_stopped(
    engine: Engine, door: tuple[str, int], number: str, verb: str
) -> None:
    answer = said(door, f"POST /v1.41/containers/{number}/{verb} HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert b" 403 " in answer.partition(b"\r\n")[0]
    assert engine.acted() == [] and len(engine.seen) == 1


HEADS = [
    "Content-Length: 2\r\n\r\n{}",
    "Content-Length: 0\r\nContent-Length: 2\r\n\r\n{}",
    "Content-Length: -1\r\n\r\n",
    "Content-Length: 99999999999\r\n\r\n",
    "Content-Length: +0\r\n\r\n",
    "transfer-encoding: identity\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding:\r\n chunked\r\n\r\n",
    "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
    "Expect: 100-continue\r\n\r\n",
    "X: " + "a" * 70000 + "\r\n\r\n",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
    "".join(f"X{number}: 1\r\n" for number in range(200)) + "\r\n",
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: ascii(head[:40]))
@pytest.mark.parametrize("line", [LIST, START])
def test_a_request_with_more_than_a_line_is_refused(
    engine: Engine, door: tuple[str, int], line: str, head: str
) -> None:
    answer = said(door, f"{line} HTTP/1.1\r\nHost: x\r\n{head}")
    assert b" 403 " in answer.partition(b"\r\n")[0]
    assert b" 100 " not in answer and engine.seen == []


def test_a_second_request_on_a_connection_is_not_heard(engine: Engine, door: tuple[str, int]) -> None:
    for first in (LIST, "GET /version"):
        answer = said(door, f"{first} HTTP/1.1\r\n\r\n{START} HTTP/1.1\r\n\r\n")
        assert answer.count(b"HTTP/1.0 ") == 1 and engine.acted() == []


def test_a_client_that_goes_or_sends_nothing_holds_up_nobody_for_long(
    engine: Engine, door: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.Handler, "timeout", 0.2)
    with socket.create_connection(door), socket.create_connection(door) as half:
        half.sendall(b"GET /v1.41/cont")
        assert client(door).containers().stopped == [OURS]


# -- an engine that is away -------------------------------------------------------------------------------------------


def test_an_engine_that_is_away_is_said_and_asked_again(tmp_path: Path) -> None:
    with served(tmp_path / "s") as address:
        ours = client(address)
        with pytest.raises(EngineError, match="the Docker engine does not answer"):
            ours.containers()
        with Engine(tmp_path / "s") as engine:
            assert ours.containers().stopped == [OURS]
            engine.shutdown()


def test_a_socket_that_may_not_be_opened_names_the_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def denied(_connection: Any) -> None:
        raise PermissionError("denied")

    monkeypatch.setattr(proxy.EngineConnection, "connect", denied)
    path = tmp_path / "s"
    path.touch()
    with pytest.raises(PermissionError, match=f"set DOCKER_GID={path.stat().st_gid} in .env"):
        proxy.UnixEngine(path).ask("GET", "/containers/json")


def test_it_ends_with_its_engine_so_that_it_is_started_with_the_next_ones_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    path = tmp_path / "s"
    monkeypatch.setattr(proxy, "PORT", free_port())
    monkeypatch.setattr(proxy.UnixEngine.__init__, "__defaults__", (path,))
    assert proxy.main(["127.0.0.1"]) == 1 and "The Docker engine does not answer" in capfd.readouterr().out
    ended: list[int] = []
    with Engine(path) as engine:
        thread = threading.Thread(target=lambda: ended.append(proxy.main(["127.0.0.1"])), daemon=True)
        thread.start()
        ours = client(("127.0.0.1", proxy.PORT))
        for _ in range(3000):
            try:
                assert ours.containers().stopped == [OURS]
                break
            except EngineError:
                threading.Event().wait(0.02)
        engine.shutdown()
    with pytest.raises(EngineError, match="the Docker engine does not answer"):
        ours.containers()
    thread.join(60)
    assert ended == [1]


@pytest.mark.parametrize("body", [None, 7, {"x": 1}, ["x"], [{"Id": OURS}], [{"Labels": "x"}]])
def test_an_engine_that_answers_something_else_is_said(
    engine: Engine, door: tuple[str, int], monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    monkeypatch.setattr(engine, "listed", lambda filters: body)
    assert _is_away(client(door))


def _is_away(ours: pool.Pool) -> bool:
    with pytest.raises(EngineError, match="the Docker engine does not answer"):
        ours.containers()
    return True


HALVES = [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nTrans", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n["]


@pytest.mark.parametrize("half", HALVES, ids=ascii)
def test_an_engine_that_hangs_or_stops_half_way_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, half: bytes
) -> None:
    monkeypatch.setattr(proxy, "ENGINE_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as listener, served(tmp_path / "s") as address:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        links = []

        def answer() -> None:
            links.append(listener.accept()[0])
            links[0].sendall(half)

        threading.Thread(target=answer, daemon=True).start()
        assert _is_away(client(address))
        for link in links:
            link.close()


def test_no_proxy_of_the_internet_hears_of_the_engine(door: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert client(door).containers().stopped == [OURS]


def test_a_proxy_that_is_away_is_said_in_words_that_stay_the_same() -> None:
    ours = client(("127.0.0.1", free_port()))
    words = set()
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            ours.containers()
        words.add(str(raised.value))
    assert words == {"the Docker engine's proxy does not answer (ConnectionError)"}


# -- rounds -----------------------------------------------------------------------------------------------------------

IDS = [f"{number:012x}{'f' * 52}" for number in range(5)]


class Cluster:
    """Cluster that needs `need` workers: one outside the pool, and one per running container of the pool."""

    def __init__(self, hand: Hand) -> None:
        self.need: int | None = 1
        self.hand = hand
        self.busy: set[str] = set()
        self.draining: set[str] = set()
        self.trouble: Exception | None = None

    def status(self) -> dict[str, Any]:
        if self.trouble:
            raise self.trouble
        return {"desired_workers": {} if self.need is None else {"cpu": self.need}}

    def workers(self) -> list[Worker]:
        beside = {"id": "beside-1", "device": "cpu", "live": True, "draining": False, "state": "busy", "busy_lanes": 1}
        return [beside, *map(self.row, IDS)]

    def row(self, number: str) -> Worker:
        name = f"{number[:12]}-7"
        busy, draining = number in self.busy, name in self.draining
        state = ("draining" if busy else "drained") if draining else ("busy" if busy else "idle")
        live = number in self.hand.running
        return {
            "id": name,
            "device": "cpu",
            "live": live,
            "draining": draining,
            "state": state,
            "busy_lanes": int(busy),
        }

    def drain(self, worker: str, on: bool) -> None:
        (self.draining.add if on else self.draining.discard)(worker)


class Hand:
    def __init__(self) -> None:
        self.running: set[str] = set()
        self.calls: list[str] = []
        self.trouble = ""

    def containers(self) -> Containers:
        if self.trouble:
            raise EngineError(self.trouble)
        return Containers(sorted(self.running), sorted(set(IDS) - self.running))

    def start(self, number: str) -> None:
        self.running.add(number)
        self.calls.append(f"start {IDS.index(number)}")

    def stop(self, number: str) -> None:
        self.running.discard(number)
        self.calls.append(f"stop {IDS.index(number)}")


def test_it_starts_what_is_needed_beside_the_others_and_stops_only_what_has_drained() -> None:
    hand = Hand()
    cluster = Cluster(hand)
    follower = Autoscaler(cluster, hand)
    follower.run_round()
    assert hand.calls == []
    cluster.need = 4
    follower.run_round()
    assert hand.calls == ["start 0", "start 1", "start 2"]
    cluster.busy = set(IDS[:2])
    cluster.need = 1
    follower.run_round()
    assert len(cluster.draining) == 3 and len(hand.calls) == 3
    follower.run_round()
    assert hand.calls[3:] == ["stop 2"]
    cluster.need = 2
    follower.run_round()
    assert len(cluster.draining) == 1, "one works again, and the name of the one that stopped drains no more"
    cluster.busy.clear()
    follower.run_round()
    assert hand.calls[4:] == ["stop 1"]
    assert cluster.draining == set()


def test_troubles_are_said_once_and_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hand = Hand()
    cluster = Cluster(hand)
    follower = Autoscaler(cluster, hand)
    for trouble, words in (
        (OSError("refused"), "No worker was started or stopped: the API does not answer: refused"),
        (ValueError("no JSON"), "No worker was started or stopped: the API does not answer: no JSON"),
    ):
        cluster.trouble, cluster.need = trouble, 3
        follower.run_round()
        follower.run_round()
        assert [line[9:] for line in capsys.readouterr().out.splitlines()] == [words]
    cluster.trouble, cluster.need = None, None
    follower.run_round()
    assert "no coordinator has calculated" in capsys.readouterr().out
    hand.trouble = "the Docker engine does not answer"
    follower.run_round()
    assert "No worker was started or stopped: the Docker engine does not answer" in capsys.readouterr().out
    hand.trouble, cluster.need = "", 1
    follower.run_round()
    assert capsys.readouterr().out[9:] == "The autoscaler works again.\n"
    cluster.need = 9
    follower.run_round()
    assert "The pool lacks 3 workers: increase AUTOSCALE_MAX" in capsys.readouterr().out
    assert hand.calls == [f"start {number}" for number in range(5)]


@pytest.mark.parametrize("need", [-1, 10**9, 0.5, float("nan"), "many", [1], {}])
def test_a_need_that_is_no_number_changes_nothing(capsys: pytest.CaptureFixture[str], need: Any) -> None:
    hand = Hand()
    cluster = Cluster(hand)
    follower = Autoscaler(cluster, hand)
    cluster.need = 3
    follower.run_round()
    cluster.need, started = need, list(hand.calls)
    follower.run_round()
    assert "not a valid number of workers" in capsys.readouterr().out
    assert hand.calls == started and not cluster.draining


def test_a_container_that_does_not_stop_is_tried_again_and_works_again_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand = Hand()
    cluster = Cluster(hand)
    follower = Autoscaler(cluster, hand)
    cluster.need = 3
    follower.run_round()
    cluster.need = 1
    follower.run_round()
    stop = hand.stop
    monkeypatch.setattr(hand, "stop", _never)
    follower.run_round()
    follower.run_round()
    assert len(cluster.draining) == 2 and len(hand.running) == 2
    cluster.need = 2
    follower.run_round()
    assert len(cluster.draining) == 1
    monkeypatch.setattr(hand, "stop", stop)
    follower.run_round()
    assert cluster.draining == set() and len(hand.running) == 1


def _never(_number: str) -> None:
    raise EngineError("it does not stop")


def test_a_worker_that_dies_while_it_drains_works_again_when_it_is_started() -> None:
    hand = Hand()
    cluster = Cluster(hand)
    follower = Autoscaler(cluster, hand)
    cluster.need = 2
    follower.run_round()
    cluster.busy, cluster.need = set(IDS[:1]), 1
    follower.run_round()
    hand.running.clear()
    follower.run_round()
    assert cluster.draining and hand.running == set()
    cluster.need = 2
    follower.run_round()
    follower.run_round()
    assert cluster.draining == set() and hand.running == {IDS[0]}


def test_two_that_follow_the_same_pool_do_what_one_would() -> None:
    hand = Hand()
    cluster = Cluster(hand)
    both = [Autoscaler(cluster, hand), Autoscaler(cluster, hand)]
    for need in (4, 1, 1, 5, 2, 2, 2, 3):
        cluster.need = need
        for follower in both:
            follower.run_round()
    assert len(hand.running) - len(cluster.draining) == 2
    both[0].resume_workers()
    both[1].run_round()
    both[1].run_round()
    assert len(hand.running) == 2 and cluster.draining == set()


def test_workers_that_drain_go_on_when_it_ends() -> None:
    hand = Hand()
    cluster = Cluster(hand)
    follower = Autoscaler(cluster, hand)
    cluster.need = 3
    follower.run_round()
    cluster.busy, cluster.need = set(IDS[:2]), 1
    follower.run_round()
    assert len(cluster.draining) == 2
    follower.resume_workers()
    assert cluster.draining == set() and len(hand.running) == 2
    cluster.trouble = OSError("away")
    follower.resume_workers()


def test_what_is_needed_of_a_pool_beside_others() -> None:
    hand = Hand()
    hand.running = {IDS[0]}
    rows = Cluster(hand).workers()
    assert [count_needed(IDS[:1], total, rows) for total in (0, 1, 2, 5)] == [0, 0, 1, 4]
    gone = [{**row, "live": False} for row in rows]
    gpu = [{**row, "device": "gpu"} for row in rows]
    draining = [{**row, "draining": True} for row in rows]
    assert [count_needed(IDS[:1], 2, others) for others in (gone, gpu, draining)] == [2, 2, 2]

"""Tests deploy-cluster.sh: the bats tests with a fake engine, and the scripts for containers with real programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator.background.leader import Leader
from deploy.docker import report, status
from jobs.store import Store
from jobs.store.server.functions import Limits
from jobs.store.server.libraries import KEPT_MS
from tests.contract.lease_model import CLOCK, START, new_job
from tests.redis_servers import require_server
from tests.unit.test_local_data import running
from tests.unit.test_redis_server import FUTURE

ROOT = Path(__file__).resolve().parents[2]
PARTS = ROOT / "deploy" / "docker"
FILES = sorted((ROOT / "tests" / "bats").glob("*.bats"))
IN_CI = os.environ.get("CI") == "true"
#: Ends of the names of programs that the scripts for containers call.
PROGRAMS = ("server", "cli", "check-rdb")


def missing(reason: str) -> None:
    """Skip the test if a tool is missing, or fail it in CI."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


# -- the script -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_bats(file: Path) -> None:
    if shutil.which("bats") is None:
        missing("bats is not installed: apt-get install bats, or npm install --global bats")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BATS_")}
    environment["PYTHON"] = sys.executable
    done = subprocess.run(["bats", file], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_bats_tests() -> None:
    assert len(FILES) >= 4
    assert sum(file.read_text().count("\n@test ") for file in FILES) > 90


def test_every_command_of_the_script_has_a_line_in_its_help() -> None:
    script = (ROOT / "deploy-cluster.sh").read_text()
    known = re.search(r"the commands are: (.*?)\.\"", script)
    assert known
    usage = script.partition("cat <<'TEXT'")[2].partition("\nTEXT")[0]
    for command in known[1].split(", "):
        assert re.search(rf"^  {command}\b", usage, re.MULTILINE), f"help says nothing of {command}"


def test_the_parts_are_short() -> None:
    for file in [ROOT / "deploy-cluster.sh", *(ROOT / "deploy").rglob("*")]:
        if file.is_file() and file.parent.name != "__pycache__":
            assert len(file.read_text().splitlines()) <= 300, f"{file.name} is too long: split it"


# -- what runs in the container of Redis ------------------------------------------------------------------------------


class Redis:
    """A server, redis or valkey, with an append-only file, in a folder like in its container, and its client."""

    def __init__(self, folder: Path, server: str = "redis") -> None:
        self.folder = folder
        self.server = server
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        (folder / "password").write_text("of-the-test\n")
        (folder / "users.acl").write_text(
            "user default on >of-the-test ~* &* +@all\nuser operator on >of-the-test ~* &* +@all\n"
        )
        self.socket = folder / "s"
        self.client = folder / f"{server}-cli"
        program = shutil.which(self.client.name)
        self.client.write_text(f'#!/bin/sh\nexec {program} -s "{self.socket}" "$@"\n')
        self.client.chmod(0o755)
        self.environment = {**os.environ, "DATA": str(self.data), "PASSWORD_FILE": str(folder / "password")}
        self.environment["SERVER"] = server
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Redis:
        server: list[str | Path] = [f"{self.server}-server", "--port", "0", "--unixsocket", self.socket]
        server += ["--dir", self.data]
        server += ["--appendonly", "yes", "--save", "", "--aclfile", self.folder / "users.acl"]
        self.process = subprocess.Popen(server, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while self.ask("PING") != "PONG":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return self

    def ask(self, *words: str) -> str:
        command: list[str | Path] = [self.client.name, "-s", self.socket, "--no-auth-warning", "-a", "of-the-test"]
        command += words
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def store(self, **variant: Any) -> Store:
        """Return the store of a coordinator whose clock is the key test:clock."""
        client = redis.Redis(unix_socket_path=str(self.socket), password="of-the-test")
        return Store(client, clock=CLOCK, **variant)

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def dump(self) -> subprocess.CompletedProcess[bytes]:
        environment = {**self.environment, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        script = (PARTS / "dump-redis.sh").read_bytes()
        return subprocess.run(["sh", "-s"], input=script, env=environment, capture_output=True)

    def load(self, dump: bytes) -> subprocess.CompletedProcess[bytes]:
        environment = {**self.environment, "SOCKET": str(self.folder / "t")}
        command = ["sh", "-c", (PARTS / "load-redis.sh").read_text()]
        return subprocess.run(command, input=dump, env=environment, capture_output=True)


@pytest.fixture
def redis_in(tmp_path: Path) -> Iterator[Callable[[str], Redis]]:
    """Return a function that makes servers of Valkey, which images contain, or of Redis if Valkey is missing here."""
    found = [name for name in ("valkey", "redis") if all(shutil.which(f"{name}-{end}") for end in PROGRAMS)]
    if not found:
        missing("neither valkey-server nor redis-server is on PATH with its client and its checker")
    made: list[Redis] = []

    def make(name: str) -> Redis:
        made.append(Redis(tmp_path / name, found[0]))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_dump_brings_everything_back_with_the_log_on(redis_in: Callable[[str], Redis]) -> None:
    source, target = redis_in("source").start(), redis_in("target").start()
    source.ask("SET", "key", "value")
    source.ask("RPUSH", "queue", *map(str, range(1000)))
    source.ask("SET", "ct:filestore", "of other bytes of artifacts")
    target.ask("SET", "before", "x")
    target.stop()
    dumped = source.dump()
    assert dumped.returncode == 0, dumped.stderr
    facts = dict(line.split()[1:3] for line in dumped.stderr.decode().splitlines() if line.startswith("fact "))
    assert (facts["keys"], int(facts["bytes"])) == ("3", len(dumped.stdout))
    assert b"of-the-test" not in dumped.stderr
    assert not list(source.data.glob(".backup*"))
    loaded = target.load(dumped.stdout)
    assert (loaded.returncode, loaded.stdout) == (0, b"keys 2\n"), loaded.stderr
    assert [path.name for path in target.data.iterdir()] == ["appendonlydir"]
    target.start()
    assert target.ask("GET", "key") == "value"
    assert target.ask("LLEN", "queue") == "1000"
    assert target.ask("DBSIZE") == "2", "the store of artifacts is the one that coordinators find"
    assert target.ask("CONFIG", "GET", "appendonly").split() == ["appendonly", "yes"]


@pytest.mark.parametrize("has_functions", [True, False])
def test_a_restored_cluster_gets_its_functions_and_loses_those_of_before(
    redis_in: Callable[[str], Redis], has_functions: bool
) -> None:
    source, target = redis_in("source").start(), redis_in("target")
    source.ask("SET", "test:clock", str(START))
    before = source.store(limits=Limits(expiries=2))
    before.jobs.submit([new_job("j", 10, "any.normal")])
    if not has_functions:
        source.ask("FUNCTION", "FLUSH")
    assert target.load(source.dump().stdout).returncode == 0
    store = target.start().store()
    assert store.libraries.names() == [before.functions.library.name] * has_functions
    leader = Leader(store)
    leader.run_once()
    assert store.jobs.pause("j") == ["ok", "paused"]
    assert store.libraries.delete_unused() == []
    target.ask("INCRBY", "test:clock", str(KEPT_MS + 1))
    leader.run_once()
    assert store.libraries.delete_unused() == [before.functions.library.name] * has_functions
    assert store.libraries.names() == [store.functions.library.name]


@pytest.mark.parametrize("broken", ["short", "empty", "text", "flipped"])
def test_a_dump_that_is_not_whole_leaves_the_data(redis_in: Callable[[str], Redis], broken: str) -> None:
    redis = redis_in("one").start()
    redis.ask("SET", "key", "value")
    dump = redis.dump().stdout
    redis.stop()
    middle = len(dump) // 2
    flipped = dump[:middle] + bytes([dump[middle] ^ 1]) + dump[middle + 1 :]
    given = {"short": dump[:-20], "empty": b"", "text": b"not a dump", "flipped": flipped}[broken]
    before = sorted((path.name, path.stat().st_size) for path in redis.data.rglob("*"))
    done = redis.load(given)
    assert done.returncode == 1
    assert b"not a complete RDB file" in done.stderr
    assert sorted((path.name, path.stat().st_size) for path in redis.data.rglob("*")) == before
    assert redis.start().ask("GET", "key") == "value"


def test_a_dump_of_a_newer_redis_is_refused_with_both_versions(redis_in: Callable[[str], Redis]) -> None:
    redis = redis_in("one").start()
    redis.ask("SET", "key", "value")
    name = redis.server
    version = redis.ask("INFO", "server").partition(f"{name}_version:")[2].split()[0]
    redis.stop()
    done = redis.load(FUTURE)
    assert done.returncode == 1
    said = done.stderr.decode()
    this = f"{name.capitalize()} server v={version}"
    assert f"redis 99.1.0 wrote this dump, but this server, {this}, cannot read it." in said
    assert "Use an image of redis 99.1.0 or later" in said
    assert redis.start().ask("GET", "key") == "value"


@pytest.mark.parametrize("expires", [False, True])
def test_valkey_loads_a_dump_of_a_later_redis_if_no_field_expires(
    redis_in: Callable[[str], Redis], tmp_path: Path, expires: bool
) -> None:
    target = redis_in("target")
    if target.server == "redis":
        missing("valkey-server is not on PATH")
    with running(require_server("8"), tmp_path / "source") as source:
        source.hset("hash", "field", "value")
        if expires:
            source.execute_command("HEXPIRE", "hash", 1000, "FIELDS", 1, "field")
        source.save()
    done = target.load((tmp_path / "source/dump.rdb").read_bytes())
    if expires:
        assert (done.returncode, list(target.data.iterdir())) == (1, [])
    else:
        assert (done.returncode, done.stdout) == (0, b"keys 1\n"), done.stderr
        assert target.start().ask("HGET", "hash", "field") == "value"


def test_a_swap_that_breaks_off_puts_the_data_back(redis_in: Callable[[str], Redis]) -> None:
    redis = redis_in("one").start()
    redis.ask("SET", "key", "value")
    dump = redis.dump().stdout
    redis.ask("SET", "later", "value")
    redis.stop()
    # The second rename to the data folder fails.
    mv = redis.folder / "mv"
    mv.write_text('#!/bin/sh\ncase "$1" in .restore/*) exit 1 ;; esac\nexec /bin/mv "$@"\n')
    mv.chmod(0o755)
    find = redis.folder / "find"
    find.write_text('#!/bin/sh\n/usr/bin/find "$@"\ncase "$1" in .restore) exit 1 ;; esac\n')
    find.chmod(0o755)
    redis.environment["PATH"] = f"{redis.folder}:{os.environ['PATH']}"
    redis.client.unlink()
    assert redis.load(dump).returncode == 1
    assert [path.name for path in redis.data.iterdir()] == ["appendonlydir"]
    assert redis.start().ask("GET", "later") == "value"


# -- what runs in a coordinator's container ---------------------------------------------------------------------------


STATUS = {
    "version": "0.1.0",
    "cluster_size": 3,
    "workers": {"live": 2, "ready": 2, "cpu": {"idle": 1, "busy": 1}, "gpu": {}},
    "lanes": 4,
    "jobs": {"queued": 1, "running": 1, "done": 12},
    "queues": {"any.normal": 1},
    "oldest_wait_seconds": 4.2,
    "units_per_second": {"collatz": 6.9e8},
}


def test_status_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(status, "get_json", lambda url, token: STATUS)
    monkeypatch.setattr("sys.argv", ["-", "text"])
    assert status.main() == 0
    said = capsys.readouterr().out
    for words in ("2 live of 3 desired; cpu: 1 idle, 1 busy", "1 queued, 1 running, 12 done", "any.normal 1", "690 M"):
        assert words in said
    monkeypatch.setattr("sys.argv", ["-", "json"])
    status.main()
    assert json.loads(capsys.readouterr().out) == STATUS


def test_status_without_an_api(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(url: str, token: str) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(status, "get_json", refuse)
    assert status.main() == 1
    assert "does not answer" in capsys.readouterr().err


def test_report_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"metric": {"__name__": "x", "kind": "collatz"}, "value": [0, "0.25"]}
    alert = {
        "state": "firing",
        "activeAt": "now",
        "labels": {"alertname": "NoWorkers"},
        "annotations": {"summary": "s"},
    }

    def ask(url: str, token: str = "") -> Any:
        if "/api/workers" in url:
            return {"workers": [{"id": "a", "device": "cpu", "state": "idle", "busy_lanes": 0, "lanes": 2}]}
        alerts = {"alerts": [alert, {**alert, "state": "pending"}]}
        return STATUS if "/status" in url else {"data": {"result": [row], **alerts}}

    monkeypatch.setattr(report, "get_json", ask)
    report.main()
    said = capsys.readouterr().out
    for words in ("API p95", "queue wait p99 collatz", "250 ms", "lanes busy collatz", "25.0%", "0 of 2 lanes busy"):
        assert words in said
    assert said.count("NoWorkers") == 1


def test_report_says_what_does_not_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(url: str, token: str = "") -> Any:
        raise ConnectionRefusedError(f"no way to {url}")

    monkeypatch.setattr(report, "get_json", refuse)
    report.main()
    said = capsys.readouterr().out
    assert "The API does not answer" in said and "Prometheus does not answer" in said


def test_report_asks_for_rules_that_are_recorded() -> None:
    rules = ROOT / "prometheus" / "rules" / "recording.yml"
    if not rules.is_file():
        pytest.skip("prometheus/rules/recording.yml is not there")
    recorded = set(re.findall(r"record: (\S+)", rules.read_text()))
    asked = {
        name
        for _, figures in report.SECTIONS
        for figure in figures
        for name in re.findall(r"\b[a-z_]+:[a-z_]+:\w+", figure.expression)
    }
    assert asked and asked <= recorded, asked - recorded

"""Tests the choice of a Redis server that can read the local cluster's data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from deploy.local import redis_server
from deploy.local.redis_server import Header, NewerData, NoRedis, can_read, find, read_header
from tests.integration.live import until
from tests.ports import free_port
from tests.redis_servers import VERSIONS, any_server, require_server

#: Start of an RDB file written by a future server version.
FUTURE = b"REDIS9999\xfa\x09redis-ver\x0699.1.0\xff" + bytes(8)


def write_data(folder: Path, base: bytes = FUTURE) -> Path:
    """Write an append-only file that starts with this RDB file to a Redis folder."""
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.2.base.rdb").write_bytes(base)
    manifest = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.2.incr.aof seq 2 type i\n"
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text(manifest)
    return folder


@contextmanager
def started(server: str, folder: Path) -> Iterator[bool]:
    """Start Redis on a folder. Return False if it exits by itself."""
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --appendonly yes --logfile log --dir".split()
    with subprocess.Popen([server, *options, folder, "--save", ""]) as process, redis.Redis(port=port) as client:
        try:
            until(lambda: process.poll() is not None or client.ping())
            yield process.poll() is None
        finally:
            process.kill()


@pytest.mark.parametrize("reader", VERSIONS)
@pytest.mark.parametrize("writer", VERSIONS)
def test_a_server_can_read_the_data_of_another_if_it_starts_on_it(tmp_path: Path, writer: str, reader: str) -> None:
    writing, reading = require_server(writer), require_server(reader)
    with started(writing, tmp_path) as is_up:
        assert is_up
    header = read_header(tmp_path)
    assert header
    assert header.version == ".".join(map(str, redis_server.version(writing)))
    assert header.server == ("Valkey" if writer == "valkey" else "Redis")
    with started(reading, tmp_path) as is_up:
        assert can_read(reading, header) == is_up


@pytest.mark.parametrize("base", [b"", b"REDIS0011", b"not an RDB file at all"])
def test_a_damaged_file_is_left_to_redis(tmp_path: Path, base: bytes) -> None:
    assert read_header(tmp_path) is None
    assert read_header(write_data(tmp_path, base)) is None


def test_data_of_a_newer_server_is_refused_with_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = any_server() or require_server(VERSIONS[0])
    monkeypatch.setattr(redis_server, "find_in_wheel", lambda: server)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    here = f"{server} (version {'.'.join(map(str, redis_server.version(server)))})"
    with pytest.raises(NewerData) as refused:
        find(write_data(tmp_path))
    said = f"Redis 99.1.0 wrote the data in {tmp_path}, but {here} cannot read it.\n  Install Redis 99.1.0 or later"
    assert str(refused.value) == said


def test_the_server_that_can_read_the_data_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(server: str, header: Header) -> bool:
        assert header == (b"REDIS9999", "Redis", "99.1.0")
        return server == "/usr/bin/redis-server"

    monkeypatch.setattr(redis_server, "find_in_wheel", lambda: "/wheel/redis-server")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(redis_server, "version", lambda server: (7, 0))
    monkeypatch.setattr(redis_server, "can_read", reads)
    assert find(tmp_path) == "/wheel/redis-server"
    assert find(write_data(tmp_path)) == "/usr/bin/redis-server"


def test_a_server_of_the_wheel_that_does_not_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\nexit 127\n")
    server.chmod(0o755)
    monkeypatch.setattr(redis_server, "find_in_wheel", lambda: str(server))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoRedis, match=f"no redis-server on PATH, and {server} does not run"):
        find(tmp_path)

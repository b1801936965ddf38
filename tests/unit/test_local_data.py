"""Tests copies of the local cluster's data with real Redis servers: dumps, restored data, and swaps that break off."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from deploy.local import commands, data_copies, data_swap, redis_data, redis_server
from deploy.local.outcome import CommandError
from tests import small_disk
from tests.integration.live import until
from tests.ports import free_port
from tests.redis_servers import VERSIONS, any_server, require_server
from tests.unit.test_redis_server import FUTURE, write_data


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    version = getattr(request, "param", None)
    return require_server(version) if version else any_server() or require_server(VERSIONS[0])


@pytest.fixture
def folder(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a local cluster that is not running."""
    made = tmp_path / ".cluster"
    made.mkdir()
    for module, name, value in (
        (data_swap, "DATA", made / "redis"),
        (data_swap, "NEW", made / "redis.restore"),
        (data_swap, "OLD", made / "redis.before-restore"),
        (data_copies, "_AUDIT_FILE", made / "audit.jsonl"),
        (commands, "LOCAL_FOLDER", made),
        (commands, "ADDRESS", made / "url"),
        (redis_server, "find_in_wheel", lambda: server),
    ):
        monkeypatch.setattr(module, name, value)
    return made


@contextmanager
def running(server: str, data: Path) -> Iterator[redis.Redis]:
    """Run a server on a folder in a `with` block, and return a client."""
    data.mkdir(exist_ok=True)
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --appendonly yes --dir .".split()
    with subprocess.Popen([server, *options, "--save", ""], cwd=data, stdout=subprocess.DEVNULL) as process:
        try:
            with redis.Redis(port=port) as client:
                until(client.ping)
                yield client
        finally:
            process.kill()  # its file has every acknowledged change


def fill(server: str, data: Path, **values: str) -> None:
    with running(server, data) as client:
        client.mset(values)


def read(server: str, data: Path) -> dict[str, str]:
    with running(server, data) as client:
        values: dict[bytes, Any] = {key: client.get(key) for key in client.scan_iter()}
        return {key.decode(): value.decode() for key, value in values.items()}


def make_dump(folder: Path, target: Path) -> Path:
    target.mkdir()
    assert data_copies.dump(target) == 0
    return target


@pytest.mark.parametrize("server", VERSIONS, indirect=True)
def test_a_dump_of_a_running_server_has_every_change_that_was_acknowledged(
    server: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(server, data_swap.DATA) as client:
        stopped = threading.Event()
        written = [0]

        def write() -> None:
            while not stopped.is_set():
                written[0] = int(client.incr("count"))

        writer = threading.Thread(target=write)
        writer.start()
        client.bgrewriteaof()
        before = written[0]
        dumped = make_dump(folder, tmp_path / "one")
        after = written[0]
        stopped.set()
        writer.join()
    facts = dict(line.split()[1:3] for line in capsys.readouterr().out.splitlines())
    assert int(facts["keys"]) == 1 and int(facts["bytes"]) == (dumped / "dump.rdb").stat().st_size
    assert {path.name for path in dumped.iterdir()} == {"dump.rdb", "audit.jsonl"}
    shutil.rmtree(data_swap.DATA)
    assert data_copies.restore(dumped) == 0
    assert before <= int(read(server, data_swap.DATA)["count"]) <= after


def test_a_restore_replaces_all_data_but_not_the_artifact_store(
    folder: Path, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = folder / "audit.jsonl"
    fill(server, data_swap.DATA, **{"kept": "yes", "ct:filestore": "of other artifacts"})
    log.write_text("1\n2\ntorn")
    dumped = make_dump(folder, tmp_path / "one")
    fill(server, data_swap.DATA, later="yes")
    log.unlink()
    capsys.readouterr()
    assert data_copies.restore(dumped) == 0
    assert read(server, data_swap.DATA) == {"kept": "yes"}
    assert log.read_text() == "1\n2\n" and capsys.readouterr().out.strip() == "put back"
    assert {path.name for path in folder.iterdir()} == {"redis", "lock", "audit.jsonl"}


@pytest.mark.parametrize("broken", ["short", "empty", "newer"])
def test_a_dump_that_redis_cannot_load_changes_nothing(broken: str, folder: Path, server: str, tmp_path: Path) -> None:
    fill(server, data_swap.DATA, key="value")
    dumped = make_dump(folder, tmp_path / "one") / "dump.rdb"
    whole = dumped.read_bytes()
    dumped.write_bytes({"short": whole[:-20], "empty": b"", "newer": FUTURE}[broken])
    with pytest.raises(CommandError, match="Nothing was changed"):
        data_copies.restore(dumped.parent)
    assert read(server, data_swap.DATA) == {"key": "value"}
    assert not data_swap.NEW.exists() and not data_swap.OLD.exists()


@pytest.mark.parametrize("verb", ["dump", "restore"])
def test_a_full_disk_changes_nothing(
    verb: str, folder: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, data_swap.DATA, key=os.urandom(3 << 19).hex())
    dumped = make_dump(folder, tmp_path / "one")
    with small_disk.mounted(tmp_path / "disk", 4) as disk:
        (disk / "ballast").write_bytes(bytes(2 << 20))
        monkeypatch.setattr(data_swap, "NEW", disk / "new")
        with pytest.raises(OSError, match="No space left on device"):
            data_copies.dump(disk) if verb == "dump" else data_copies.restore(dumped)
        assert {path.name for path in disk.iterdir()} == {"ballast"}
        (disk / "ballast").unlink()
        if verb == "dump":  # The copy fits, but not the dump
            with pytest.raises(CommandError, match="If the disk is full"):
                data_copies.dump(disk)
            assert not list(disk.iterdir())
    assert len(read(server, data_swap.DATA)["key"]) == 3 << 20


@pytest.mark.parametrize(
    ("present", "left"),
    [
        ({"DATA": "old", "NEW": "new"}, "old"),
        ({"OLD": "old", "NEW": "new"}, "old"),
        ({"OLD": "old", "DATA": "new"}, "new"),
        ({"NEW": "half"}, None),
        ({}, None),
    ],
)
def test_a_restore_that_was_killed_leaves_the_old_or_the_new_data(
    folder: Path, present: dict[str, str], left: str | None
) -> None:
    for name, text in present.items():
        path: Path = getattr(data_swap, name)
        path.mkdir()
        (path / "file").write_text(text)
    with commands.hold_cluster_lock():
        found = data_swap.DATA / "file"
        assert (found.read_text() if found.exists() else None) == left
    assert not data_swap.NEW.exists() and not data_swap.OLD.exists()


def test_a_swap_that_fails_puts_the_data_back(folder: Path) -> None:
    data_swap.DATA.mkdir()
    (data_swap.DATA / "file").write_text("old")
    with pytest.raises(FileNotFoundError):
        data_swap.swap()
    assert (data_swap.DATA / "file").read_text() == "old"


def test_a_cluster_without_data_cannot_be_backed_up(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has no data of a local cluster"):
        data_copies.dump(tmp_path)


def test_files_that_are_replaced_meanwhile_are_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_data(tmp_path / "data")
    log = data / "appendonlydir"
    (log / "appendonly.aof.2.incr.aof").write_bytes(b"")
    copied: list[str] = []

    def copyfile(source: Path, target: Path) -> None:
        copied.append(source.name)
        if len(copied) == 1:  # The server rewrites its file
            manifest = log / "appendonly.aof.manifest"
            manifest.write_text(manifest.read_text().replace("aof.2", "aof.3"))
            for path in [*log.glob("*.aof.2.*")]:
                path.rename(log / path.name.replace("aof.2", "aof.3"))
        target.write_bytes(source.read_bytes() if source.exists() else b"")

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    redis_data.copy(data, tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy/appendonlydir").iterdir()} == {path.name for path in log.iterdir()}

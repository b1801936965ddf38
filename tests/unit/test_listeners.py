"""Tests that a local cluster opens its ports before any process starts, and passes them to each coordinator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.server import sockets
from deploy.local import listeners, ports
from deploy.local.listeners import HandOver, Listeners
from deploy.local.outcome import CommandError
from jobs.settings import Settings
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listeners]:
    folder = tmp_path / ".cluster"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(listeners, "LOCAL_FOLDER", folder)
    monkeypatch.setattr(listeners, "FILE", folder / "sockets")
    made = Listeners.take(Settings(metrics_port=free_port()), free_port())
    yield made
    made.close()


def test_of_two_that_look_for_the_same_ports_each_gets_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Two clusters once found the same free port, and one of them failed to listen on it later."""
    wanted = free_port()
    several = [ports.next_listeners("127.0.0.1", wanted, "the metrics server") for _ in range(3)]
    numbers = [opened[0].getsockname()[1] for opened in several]
    for opened in several:
        opened[0].close()
    assert len(set(numbers)) == 3 and wanted in numbers
    assert f"Port {wanted} is in use; the metrics server uses port {numbers[1]}." in capsys.readouterr().err


def test_a_port_that_was_requested_is_not_replaced(taken: Listeners) -> None:
    with pytest.raises(CommandError, match=f"port {taken.port} is in use by another program"):
        ports.api_listeners(Settings(), taken.port)
    with pytest.raises(CommandError, match="is in use by another program"):
        ports.api_listeners(Settings(coordinator_port=taken.port), None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems reserve no port")
def test_a_port_of_redis_is_kept_from_others_and_not_from_redis(taken: Listeners) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", taken.redis_port))
    socket.create_server(("127.0.0.1", taken.redis_port)).close()


def test_each_process_of_a_coordinator_gets_the_sockets(taken: Listeners) -> None:
    hand_over = HandOver(taken)
    for _ in range(2):
        got = sockets.listen(Settings(), ".cluster/sockets")
        assert got.metrics is not None
        assert [each.getsockname()[1] for each in got.api] == [taken.port]
        assert got.metrics.getsockname()[1] == taken.metrics_port
        client = socket.create_connection(("127.0.0.1", taken.port), 5)
        accepted, _ = got.api[0].accept()
        for each in (client, accepted, *got.api, got.metrics):
            each.close()
    port = taken.port
    hand_over.close()
    with pytest.raises(sockets.CannotListen, match="did not hand over sockets"):
        sockets.listen(Settings(), ".cluster/sockets")
    ports.api_listeners(Settings(), port)[0].close()


def test_a_port_of_metrics_that_is_taken_is_one_line_that_says_what_to_do() -> None:
    """A used metrics port once caused a traceback after most of a coordinator had started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        given = {**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0", "METRICS_PORT": port}
        given["COORDINATOR_PORT"] = str(free_port())
        command = [sys.executable, "-m", "coordinator"]
        done = subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    [line] = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 2 and "Traceback" not in line
    for words in (f"port {port} of 127.0.0.1: another program uses it", "Set METRICS_PORT to a free port, or to 0"):
        assert words in line

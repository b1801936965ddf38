"""Tests that a runner's token is passed only to a starting runner, and to no other process while a runner is alive."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import settings
from runner import in_container, token_keeper

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runners need Linux")

TOKEN = "tc_0123456789_" + "x" * 43
CALM = 0.3


def keep(folder: Path, calm: float = CALM) -> None:
    """Start another keeper of the folder, as after the death of a keeper."""
    before = socket_number(folder)
    threading.Thread(target=token_keeper.serve, args=(folder, TOKEN, calm), daemon=True).start()
    until = time.monotonic() + 60
    while socket_number(folder) in (None, before) or not connects(folder):
        assert time.monotonic() < until
        time.sleep(0.01)


def socket_number(folder: Path) -> int | None:
    with contextlib.suppress(OSError):
        return token_keeper.socket_of(folder).stat().st_ino
    return None


def connects(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        return link.connect_ex(str(token_keeper.socket_of(folder))) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    keep(tmp_path)
    yield tmp_path
    end_of_runner()


def end_of_runner() -> None:
    while token_keeper.held_descriptors:
        os.close(token_keeper.held_descriptors.pop())


def test_a_runner_that_starts_has_the_token_and_the_next_one_after_its_end(folder: Path) -> None:
    assert token_keeper.fetch(folder) == TOKEN
    end_of_runner()
    assert token_keeper.fetch(folder) == TOKEN


def test_nobody_has_it_while_a_runner_lives_also_from_another_keeper(folder: Path) -> None:
    token_keeper.fetch(folder)
    assert [token_keeper.ask_holder(folder) for _ in range(3)] == [""] * 3
    keep(folder)
    assert token_keeper.ask_holder(folder) == ""


def test_who_asks_in_the_moment_in_which_a_runner_ends_and_the_next_begins_gets_nothing(folder: Path) -> None:
    token_keeper.fetch(folder)
    end_of_runner()
    keep(folder, calm=3.0)
    got: list[str] = []
    asking = threading.Thread(target=lambda: got.append(token_keeper.ask_holder(folder)))
    asking.start()
    time.sleep(CALM / 3)
    assert token_keeper.become_holder(folder), "as a runner would that had its token before"
    asking.join()
    assert got == [""]


def test_two_that_start_at_once_are_one_runner(folder: Path) -> None:
    """The second one repeats its request until the first one has exited."""
    got: list[str] = []
    both = [threading.Thread(target=lambda: got.append(token_keeper.fetch(folder)), daemon=True) for _ in range(2)]
    for one in both:
        one.start()
    until = time.monotonic() + 60
    while not got and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(2 * CALM)
    assert got == [TOKEN]
    end_of_runner()
    for one in both:
        one.join(60)
    assert got == [TOKEN] * 2


def test_a_token_that_was_given_is_in_the_settings_and_in_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "overrides", {})
    settings.override_worker_token(TOKEN)
    assert settings.load().worker_token == TOKEN and TOKEN not in os.environ.values()
    assert TOKEN not in repr(settings.load())
    monkeypatch.undo()
    settings.load.cache_clear()


def test_a_runner_in_a_container_refuses_what_would_show_its_token_to_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not the first process" in in_container.token_exposure()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert in_container.token_exposure() == ""
    monkeypatch.setenv("WORKER_TOKEN", TOKEN)
    settings.load.cache_clear()
    assert "every program here could read WORKER_TOKEN" in in_container.token_exposure()
    monkeypatch.undo()
    settings.load.cache_clear()


def test_a_keeper_without_a_token_ends_and_says_who_makes_one() -> None:
    command = [sys.executable, "-m", "runner.token_keeper"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": os.defpath})
    assert done.returncode == 2
    assert "./deploy-cluster.sh docker --runner" in done.stderr


def test_a_keeper_ends_when_it_is_told_to_also_as_the_first_process(tmp_path: Path) -> None:
    """The first process of a container receives only handled signals, so its pod would remain until killed."""
    begin = (
        f"from pathlib import Path; from runner import token_keeper as k; k.FOLDER = Path({str(tmp_path)!r}); k.main()"
    )
    keeper = subprocess.Popen([sys.executable, "-c", begin], env={"PATH": os.defpath, "WORKER_TOKEN": TOKEN})
    try:
        until = time.monotonic() + 60
        while not connects(tmp_path):
            assert time.monotonic() < until
            time.sleep(0.02)
        keeper.terminate()
        assert keeper.wait(60) == 0, "it handles the signal; what does not has -15 here"
    finally:
        keeper.kill()
        keeper.wait()

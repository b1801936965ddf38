"""Fixtures for all tests: real Redis servers, an environment without user settings, and the distribution of tests."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import settings

from jobs.kinds import code_sets
from jobs.settings import Settings, use_cpu_level
from tests import kernels
from tests.ports import free_port
from tests.redis_servers import VERSIONS, require_server, server_of
from threads_cluster import settings as client_settings

pytest.register_assert_rewrite("tests.contract.lease_model", "tests.contract.lease_invariants")

IN_CI = os.environ.get("CI") == "true"

# Use `pytest --hypothesis-profile=thorough --timeout=0 tests/contract` for a run of half an hour.
settings.register_profile("default", deadline=None, print_blob=True, derandomize=IN_CI)
settings.register_profile("thorough", deadline=None, print_blob=True, derandomize=False, max_examples=2000)
settings.load_profile("default")


def _forget_our_settings() -> None:
    """Remove the user's settings, contexts and tokens, so that tests never use the developer's own cluster."""
    names = {name.upper() for name in Settings.model_fields}
    for name in list(os.environ):
        if name.upper() in names or name.upper().startswith("CLUSTER_"):
            del os.environ[name]
    home = tempfile.mkdtemp(prefix="threads-cluster-tests-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["XDG_CONFIG_HOME"] = home
    client_settings.LOCAL_FOLDER = Path(home, "checkout", ".cluster")


use_cpu_level(os.environ.get("CPU_LEVEL", ""))  # `CPU_LEVEL=v2 make contract` tests the kernels of another CPU
_forget_our_settings()
# A script's background job gets both ignored, and so would every process that a test starts and then signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Without a bytecode cache, each of hundreds of processes would compile all its sources again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Set before a test module imports compiled code.
code_sets.configure_numba()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Give the next test the handlers of this one: RQ leaves its own behind, and which tests share a process varies."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return (yield)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.side_by_side import Groups  # Import pytest-xdist only here, because only parallel runs need it.

    return Groups(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are found, and never look at them again: a run has a million objects of theirs.

    Each process of a run saves a third of the time in which it finds tests, and half a second of each whole collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile before the first test begins: on a loaded machine that takes longer than a test's time."""
    if (
        any(item.path.parent.name in kernels.FOLDERS for item in session.items)
        and not session.config.option.collectonly
    ):
        kernels.compile_all()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail tests that need kernels if the kernels are wrong. An error during collection would end the whole run."""
    if item.path.parent.name in kernels.FOLDERS and (wrong := kernels.compile_all()):
        pytest.fail(f"kernels are wrong even after they were compiled again: {wrong}", pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per folder and reason about skipped tests."""
    reports = terminalreporter.stats.get("skipped", [])
    skipped = Counter((Path(report.nodeid.partition("::")[0]).parent, report.longrepr[2]) for report in reports)
    for (folder, reason), count in sorted(skipped.items()):
        terminalreporter.write_line(f"SKIPPED [{count}] {folder}: {reason.removeprefix('Skipped: ')}")


def _answers(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False


def start_redis(binary: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    command = [
        binary,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(folder),
        "--save",
        "",
        "--logfile",
        "log",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    deadline = time.monotonic() + 60
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{binary} did not start, see {folder}/log")
        time.sleep(0.02)
    return process, url


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Return a function that starts a server of a version on first use and returns its URL."""
    running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def serve(version: str) -> str:
        binary = require_server(version)
        if version not in running:
            running[version] = start_redis(binary, tmp_path_factory.mktemp("redis"))
        return running[version][1]

    yield serve
    for process, _ in running.values():
        process.terminate()
        process.wait(timeout=60)


def _flushed(url: str) -> str:
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.fixture(params=VERSIONS, ids=lambda version: f"redis-{version}")
def redis_url(request: pytest.FixtureRequest, redis_server: Callable[[str], str]) -> str:
    """Return the URL of an empty Redis, for each version in turn."""
    return _flushed(redis_server(request.param))


@pytest.fixture
def any_redis_url(redis_server: Callable[[str], str]) -> str:
    """Return the URL of an empty Redis of one version, for tests that do not depend on the version."""
    present = [version for version in reversed(VERSIONS) if server_of(version)]
    return _flushed(redis_server(present[0] if present else VERSIONS[-1]))

"""One cluster for all suites, options for their duration, and the counts at the end."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile import counts
from tests.hostile.exploring import FIXED_SEED, Plan
from tests.hostile.watching import Watch
from tests.integration.live import Live, running

_PLAN = pytest.StashKey[Plan]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hostile", "tests/hostile")
    group.addoption("--hostile-minutes", type=float, default=0.0, help="look for so long; 0: the short run of CI")
    group.addoption("--hostile-seed", type=int, default=None, help="where to start; it is printed")


def pytest_configure(config: pytest.Config) -> None:
    minutes, seed = config.getoption("--hostile-minutes"), config.getoption("--hostile-seed")
    if seed is None:
        seed = secrets.randbelow(2**31) if minutes else FIXED_SEED
    config.stash[_PLAN] = Plan(minutes, seed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts to the process that prints them, if the tests run in several processes."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["hostile"] = counts.packed()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    counts.unpack(getattr(node, "workeroutput", {}).get("hostile", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = list(counts.lines())
    if lines:
        plan = config.stash[_PLAN]
        terminalreporter.section(f"hostile inputs, --hostile-seed={plan.seed}")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> Plan:
    return request.config.stash[_PLAN]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One coordinator, one worker with one lane, with the kinds that ship and those of the tests.

    Tests submit jobs that compute until they are cancelled, so the worker gives way to other processes.
    """
    folder = tmp_path_factory.mktemp("hostile")
    with running(folder, lanes=1, nice=10, ARTIFACT_URL=f"file://{folder}/artifacts") as live:
        yield live


@pytest.fixture
def watch(cluster: Live) -> Iterator[Watch]:
    """Check the coordinator's health and memory while a test runs."""
    with Watch(cluster.url(), cluster.processes["coordinator-0"].pid) as watching:
        yield watching
    watching.check()

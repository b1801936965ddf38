"""Deploys once for all tests in this folder, on the cluster that KUBECONFIG names, or skips the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import CLEANUP, LOAD, SECONDS, Cluster
from tests.stack.stack import copy_of_the_checkout

FOLDER = "tests/kubernetes/"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the duration of each test and of its commands."""
    reports = [each for several in terminalreporter.stats.values() for each in several]
    parts = [each for each in reports if isinstance(each, pytest.TestReport) and each.nodeid.startswith(FOLDER)]
    for part in sorted(parts, key=lambda each: each.start):
        name = f"{part.nodeid.rpartition('::')[2]} ({part.when})"
        commands = {command: seconds for (test, command), seconds in SECONDS.items() if test == name and seconds > 1}
        took = ", ".join(f"{command} {seconds:.0f} s" for command, seconds in commands.items())
        if part.duration > 1:
            terminalreporter.write_line(f"{part.duration:5.0f} s  {name}: {took}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a cluster with three CPU workers and three coordinators."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no Kubernetes (tests/kubernetes/README.md)")
    assert shutil.which("kubectl"), "KUBECONFIG is set, and kubectl is not installed"
    folder = tmp_path_factory.mktemp("checkout")
    copy_of_the_checkout(folder)
    (folder / ".env").write_text("ENGINES=llamacpp\n")
    one = Cluster(folder)
    try:
        one.start(3, load=LOAD)
        yield one
        print(one.kubectl("get", "pods", check=False))
    finally:
        one.http.close()
        if CLEANUP:
            one.deploy("cleanup", "--yes", check=False)

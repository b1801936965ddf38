"""CPython's own tests of executors, run with the executor of a cluster: `make executor-test`.

They come from Debian's package libpython3.11-testsuite, which is downloaded and unpacked, but not installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.integration.live import Live
from threads_cluster import Cluster

TOKEN = "a-token-of-the-executor-tests"
PACKAGE = "libpython3.11-testsuite"
MODULE = "test_concurrent_futures"
MIXINS = ("ExecutorTest", "AsCompletedTests", "WaitTests", "ExecutorShutdownTest")
#: Tests that do not apply, with the reason.
EXCLUDED = {
    "test_max_workers_negative": "max_workers does not exist, because the cluster's runners make the calls",
    "test_interpreter_shutdown": "starts an interpreter that imports the executor by name and needs no cluster; "
    "tests/unit/test_calling_exit.py tests the same",
    "test_submit_after_interpreter_shutdown": "as test_interpreter_shutdown",
    "test_hang_gh83386": "as test_interpreter_shutdown",
    "test_cancel_futures": "expects that a call starts at once; a cluster may cancel all of the calls before that",
}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="executor-tests-") as name, started(Path(name)) as cluster:
        module = load(download(Path(name)))
        cases = [case(module, getattr(module, mixin), cluster, Path(name) / "calls") for mixin in MIXINS]
        loader = unittest.TestLoader()
        suite = unittest.TestSuite(loader.loadTestsFromTestCase(each) for each in cases)
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, reason in EXCLUDED.items():
        print(f"excluded: {test}: {reason}")
    return 0 if result.wasSuccessful() and result.testsRun > len(EXCLUDED) else 1


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """Start a cluster with a runner of two slots, and return a client."""
    place = folder / "runner"
    place.mkdir(mode=0o711)
    live = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN, ARTIFACT_URL=f"file://{folder}/artifacts")
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_runner(0, 2, RUNNER_DIR=str(place))
        live.wait_ready(1)
        with Cluster(live.url(), TOKEN) as cluster:
            yield cluster
    finally:
        live.stop()


def download(folder: Path) -> Path:
    """Return the file with the tests, alone in a folder from which runners can import it."""
    subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "unpacked"], check=True)
    (file,) = folder.glob(f"unpacked/**/{MODULE}.py")
    (folder / "calls").mkdir()
    return file.rename(folder / "calls" / file.name)


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def case(module: ModuleType, mixin: type, cluster: Cluster, files: Path) -> type[unittest.TestCase]:
    """Return the tests of a mixin for the executor of the cluster."""

    def set_up(self: Any) -> None:
        super(made, self).setUp()
        self.t1 = time.monotonic()
        self.executor = cluster.executor(files=files)

    def executor_type(max_workers: int = 5) -> Any:
        return cluster.executor(files=files)

    members = {"setUp": set_up, "executor_type": staticmethod(executor_type), "worker_count": 2}
    skips = {name: unittest.skip(why)(getattr(mixin, name)) for name, why in EXCLUDED.items() if hasattr(mixin, name)}
    bases: tuple[Any, ...] = (mixin, ClosesExecutor, module.BaseTestCase)
    made: Any = type(f"Cluster{mixin.__name__}", bases, members | skips)
    return made


class ClosesExecutor:
    """Mixin that shuts down the executor of a test."""

    executor: Any

    def tearDown(self) -> None:
        self.executor.shutdown()
        self.executor = None
        super().tearDown()  # type: ignore[misc]


if __name__ == "__main__":
    sys.exit(main())

"""joblib's own tests of parallel backends, run with the backend of a cluster: `make joblib-test`.

They are part of joblib's wheel. Arguments are options of pytest.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from joblib import parallel

from tests.integration.executor_walk import TOKEN, started
from threads_cluster import Cluster
from threads_cluster.joblib_backend import NAME, ClusterBackend

#: Tests that do not apply, with the reason.
EXCLUDED = {
    "test_dispatch_multiprocessing": "only child processes of this process can use its multiprocessing.Manager",
    "test_initializer_context": "`initializer` is an option of joblib's own process pools",
    "test_initializer_parallel": "as test_initializer_context",
    "test_auto_memmap_on_arrays_from_generator": "expects that joblib writes arguments to memory-mapped files",
    "test_memmapping_leaks": "as test_auto_memmap_on_arrays_from_generator",
}
#: Module that Python imports when it starts. It registers the backend in the scripts that the tests start.
START = "import threads_cluster; threads_cluster.register_joblib()\n"


def main(arguments: Iterable[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="joblib-tests-") as name, started(Path(name)) as cluster:
        backend = bound(cluster)
        parallel.register_parallel_backend(NAME, backend)
        prepare_scripts(Path(name), cluster)
        from joblib.test import test_parallel

        replace_backends(test_parallel, [NAME, backend()])
        plugin = Plugin(backend)
        options = ["-c", "/dev/null", f"--rootdir={name}", "-p", "no:cacheprovider", "-rfEs", "-v", "--noconftest"]
        code = pytest.main([*options, "--pyargs", test_parallel.__name__, *arguments], plugins=[plugin])
    return int(code) or int(not plugin.passed)


def bound(cluster: Cluster) -> type[ClusterBackend]:
    """Return the class of the cluster's backend, as joblib creates it by its name."""

    class Bound(ClusterBackend):
        def __init__(self, cluster: Cluster = cluster, **options: Any) -> None:
            super().__init__(cluster, **options)

        @property
        def _workers(self) -> object:
            """The tests use this name for the workers of a backend."""
            return self._executor

    Bound.__name__ = f"{NAME.title()}Backend"  # The tests expect this name
    return Bound


def prepare_scripts(folder: Path, cluster: Cluster) -> None:
    """Let the Python scripts that the tests start use the cluster."""
    (folder / "start").mkdir()
    (folder / "start" / "sitecustomize.py").write_text(START)
    paths = [str(folder / "start"), str(Path.cwd())]
    os.environ.update(CLUSTER_URL=cluster.url, CLUSTER_TOKEN=TOKEN, PYTHONPATH=os.pathsep.join(paths))


def replace_backends(module: ModuleType, backends: list[object]) -> None:
    """Replace the backends with which the tests run. Tests that accept no instances run with the first one."""
    marks = [mark for test in vars(module).values() for mark in getattr(test, "pytestmark", ()) if len(mark.args) > 1]
    for values in (mark.args[1] for mark in marks):
        if isinstance(values, list) and "loky" in values:
            values[:] = backends if None in values else backends[:1]


class Plugin:
    """Plugin of pytest that keeps the tests of one backend."""

    def __init__(self, backend: type[ClusterBackend]) -> None:
        self.backend = backend
        self.passed = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self.is_used(item)]
        for item in items:
            if reason := EXCLUDED.get(item.name) or EXCLUDED.get(item.name.partition("[")[0]):
                item.add_marker(pytest.mark.skip(reason=reason))

    def is_used(self, item: Any) -> bool:
        chosen = item.callspec.params.values() if hasattr(item, "callspec") else ()
        return any(value == NAME or isinstance(value, self.backend) for value in chosen)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

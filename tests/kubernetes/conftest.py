"""One deployment for all tests of this folder, on a cluster that KUBECONFIG names; without one they are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import LOAD, Cluster
from tests.stack.stack import copy_of_the_checkout


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three CPU workers, three coordinators."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no Kubernetes (tests/kubernetes/README.md)")
    assert shutil.which("kubectl"), "KUBECONFIG is set, and kubectl is not installed"
    folder = tmp_path_factory.mktemp("checkout")
    copy_of_the_checkout(folder)
    one = Cluster(folder)
    try:
        one.start(3, load=LOAD)
        yield one
        print(one.kubectl("get", "pods", check=False))
    finally:
        one.http.close()
        one.deploy("cleanup", "--yes", check=False)

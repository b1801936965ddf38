"""Tests that known answers reach all compiled code that Python calls, and that the kernels return them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests import kernels


@pytest.mark.parametrize("kind", ["collatz", "thread"])
def test_every_compiled_function_that_python_calls_is_asked(kind: str) -> None:
    command = [sys.executable, "-m", "tests.contract.asked_functions", kind]
    environment = {**os.environ, **kernels.ENVIRONMENT}
    done = subprocess.run(command, cwd=kernels.TOP, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    asked = json.loads(done.stdout)
    assert asked["compiled"], "nothing was loaded"
    assert asked["called"] == asked["compiled"]

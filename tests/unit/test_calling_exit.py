"""Tests that the interpreter ends only when the calls have ended."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import threading
from tests.unit.calling_fake import Calling
from threads_cluster.client.calling import project
project.PROJECT = project.Project({})
fake = Calling()
fake.holds = True
executor = fake.cluster().executor()
future = executor.submit(abs, -1)
future.add_done_callback(lambda future: print(repr(future)[-60:]))
submitted = threading.Event()
future.add_submitted_callback(lambda future: submitted.set())
assert submitted.wait(20)
print("end of script")
"""
#: Ends the job when the script has ended, before other exit functions.
ENDS = "import atexit; atexit.register(lambda: fake.end_job(future.job_id, 'failed'))"


def run(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_the_interpreter_waits_for_calls() -> None:
    end, state = run(SCRIPT + ENDS)
    assert end == "end of script"
    assert "raised CallFailed" in state

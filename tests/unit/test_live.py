"""Tests that the tests repeat time measurements only if the machine paused."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.integration import live


@pytest.mark.parametrize(("pause", "taken"), [(0.1, 1), (2.0, 3)])
def test_what_takes_too_long_is_measured_again_only_where_the_machine_stood_still(
    monkeypatch: pytest.MonkeyPatch, pause: float, taken: int
) -> None:
    class Paused(live.Pauses):
        def __exit__(self, *_: object) -> None:
            super().__exit__()
            self.longest = pause

    monkeypatch.setattr(live, "Pauses", Paused)
    values = iter([9.0, 9.0, 5.0])
    assert live.within(lambda: next(values), 5.0) == (taken == 3)
    assert len(list(values)) == 3 - taken


WATCHES = """
from tests.integration.live import Pauses
with Pauses() as pauses:
    print("begun", flush=True)
    input()
print(pauses.longest)
"""


def test_a_process_that_is_stopped_sees_its_pause() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WATCHES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=60)
        assert float(out) > 0.8

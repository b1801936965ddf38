"""The timeline of a trivial job: its steps are methods that exist, and medians are those of the jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import timeline
from benchmarks.load import traced

ROOT = Path(__file__).resolve().parents[2]
FOLLOW = "import sys; from benchmarks.load import traced; traced.follow(sys.argv[1])"


@pytest.mark.parametrize("part", traced.STEPS)
def test_each_step_is_a_method_that_exists(part: str) -> None:
    """In a process of its own: methods are replaced."""
    done = subprocess.run([sys.executable, "-c", FOLLOW, part], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_steps_are_medians_of_jobs_and_what_happens_between_jobs_is_of_none() -> None:
    notes = []
    for began in (0, 100, 200):
        notes += [
            f"{(began + at) * 10**6} {name}"
            for at, name in (
                (1, "the body is read"),
                (3, "NEXT is answered"),
                (4, "the loop hears the end"),
                (6, "NEXT is answered"),
                (7, "the loop hears the end"),
                (50, "the body is read"),
            )
        ]
    spans = [(began * 10**6, (began + 10) * 10**6) for began in (0, 100, 200)]
    expected = [("the body is read", 1.0), ("NEXT is answered", 3.0), ("the loop hears the end", 7.0)]
    assert timeline.steps(notes, spans) == expected

"""Kernels compiled for a lesser CPU than this machine's give the published answers, bit for bit.

The forms of the levels in between run on this machine's as well: `test_collatz.py` has each. What compiles for them is
tested by `CPU_LEVEL=avx2 make contract`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from jobs.hosts import cpu_level
from tests import kernels

#: Compares the answers of `collatz`, whose form depends on the level, with what is known.
PROGRAM = """
import json, sys
from pathlib import Path
from jobs import settings
level = settings.use_cpu_level(sys.argv[1])
from jobs.kinds import registry
from jobs.models import Device

def known(kind):
    return json.loads((registry.folder(kind) / "golden.json").read_text())

def go_on(upto):
    return True

registry.warm("collatz", Device.CPU)
collatz = registry.kernel("collatz", Device.CPU)
found = {"level": level, "wrong": []}
for mode, ranges in (("statistics", known("collatz")["ranges"]), ("verify", known("collatz")["verified"])):
    for known_range in ranges:
        start, count = known_range["start"], known_range["count"]
        spec = {"mode": mode, "start": str(start), "count": count, "batch_size": None}
        if collatz.run(spec, 0, count, go_on) != (count, known_range["partial"]):
            found["wrong"].append([mode, start])
from jobs.kinds.collatz import statistics, verify
found["forms"] = [module.__name__.rpartition("_")[2] for module in (statistics.tails(), verify.sweeps())]
print(json.dumps(found))
"""


@pytest.mark.skipif(len(cpu_level.supported_levels()) < 2, reason="this CPU has no lower level")
def test_the_lowest_level_gives_the_same_answers_by_its_own_form() -> None:
    level = cpu_level.supported_levels()[0]
    command = [sys.executable, "-c", PROGRAM, level]
    environment = {**os.environ, **kernels.ENVIRONMENT}
    done = subprocess.run(command, env=environment, cwd=kernels.TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"level": level, "wrong": [], "forms": ["portable"] * 2}

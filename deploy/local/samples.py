"""The sample jobs that a new cluster computes, by the command that a user would type."""

from __future__ import annotations

import json
import subprocess

from deploy.local.outcome import Stopped, say
from deploy.local.processes import Run
from deploy.local.shape import CHECKOUT

SAMPLES = (
    ("collatz", "--start-number", "1", "--number-count", "1000000000"),
    ("thread", "--seed", "1"),
)


def submit(run: Run, url: str, sample: tuple[str, ...], *, as_json: bool) -> bool:
    """Submit one sample and wait for it; True when it is done. With `as_json`, print one line on stdout."""
    flags = ("--wait", "--json") if as_json else ("--wait",)
    say(f"$ cluster submit {' '.join((*sample, *flags))}")
    command = run.command(".venv/bin/cluster", "submit", *sample, *flags, CLUSTER_URL=url)
    code, answer = _call(command, as_json=as_json)
    return _print_compact(code, answer) if as_json else code == 0


def _call(command: list[str], *, as_json: bool) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed, if that is read."""
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE if as_json else None, text=True) as process:
        try:
            answer, _ = process.communicate()
        except Stopped:
            process.terminate()
            raise
    return process.returncode, answer or ""


def _print_compact(code: int, answer: str) -> bool:
    try:
        job = json.loads(answer)
    except ValueError:
        say(f"error: the command answered with exit code {code} and no JSON object: {answer[:500]!r}")
        return False
    print(json.dumps(job, separators=(",", ":"), ensure_ascii=False), flush=True)
    return bool(code == 0 and job.get("state") == "done")

"""The sample jobs that a new cluster computes, by the command that a user would type, and what of them is shown."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from deploy.local.outcome import StopRequested, say
from deploy.local.processes import Run
from deploy.local.shape import CHECKOUT
from threads_cluster.cli import show


@dataclass(frozen=True)
class Sample:
    """Arguments of `cluster submit`, and what people see of the result: labels with the places of figures in it."""

    arguments: tuple[str, ...]
    figures: Mapping[str, tuple[str | int, ...]]


SAMPLES = (
    Sample(
        ("collatz", "--start-number", "1", "--number-count", "1000000000"),
        {
            "steps to 1, mean": ("delay", "mean"),
            "most steps": ("delay", "max", "value"),
            "  from number": ("delay", "max", "n"),
            "highest value": ("peak", "max", "value"),
            "  from number ": ("peak", "max", "n"),
        },
    ),
    Sample(
        ("thread", "--seed", "1"),
        {
            "replicas": ("replicas",),
            "threads in all": ("threads_simulated",),
            "makespan, us, mean": ("cells", 0, "metrics", "makespan_us", "mean"),
            "  95 % confidence": ("cells", 0, "metrics", "makespan_us", "ci"),
            "speedup, mean": ("cells", 0, "metrics", "speedup", "mean"),
            "steals, mean": ("cells", 0, "metrics", "steals", "mean"),
        },
    ),
)


def submit(run: Run, url: str, sample: Sample, *, as_json: bool, kept: str = "") -> bool:
    """Submit one sample and wait for it; True when it is done.

    Print on stdout its figures and how to see the rest, which begins with `kept`; with `as_json` one line of JSON.
    """
    say(f"$ cluster submit {' '.join(sample.arguments)} --wait")
    command = run.command(".venv/bin/cluster", "submit", *sample.arguments, "--wait", "--json", CLUSTER_URL=url)
    code, answer = call(command)
    try:
        job = json.loads(answer)
    except ValueError:
        say(f"error: the command answered with exit code {code} and no JSON object: {answer[:500]!r}")
        return False
    if as_json:
        print(json.dumps(job, separators=(",", ":"), ensure_ascii=False), flush=True)
    else:
        _show(job, sample, kept)
    return bool(code == 0 and job.get("state") == "done")


def call(command: list[str]) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed."""
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            answer, _ = process.communicate()
        except StopRequested:
            process.terminate()
            raise
    return process.returncode, answer


def _show(job: Mapping[str, Any], sample: Sample, kept: str) -> None:
    show.line(f"{job['title']}: {show.ended_line(job)}")
    if "result" in job:
        show.pairs({name: figure(job["result"], place) for name, place in sample.figures.items()}, indent=2)
        show.line(f"  All of it: {kept}.venv/bin/cluster result {job['job_id']}")


def figure(result: Any, place: tuple[str | int, ...]) -> Any:
    """Return the figure at a place of the result; None where there is none."""
    try:
        return reduce(lambda part, step: part[step], place, result)
    except (LookupError, TypeError):
        return None

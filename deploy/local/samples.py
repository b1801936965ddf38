"""Sample jobs that a new cluster computes. Selected values of their results are printed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from deploy.local.outcome import StopRequested, say
from deploy.local.processes import Run
from jobs.settings import CHECKOUT
from threads_cluster.cli import show


@dataclass(frozen=True)
class Sample:
    """Sample job: arguments of `cluster submit`, and the values of the result to print."""

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
    """Submit a sample job, wait for it, and print its result. Return True if the job is done.

    Prints selected results and a command that shows all of them, which starts with `kept`. With `as_json`, prints one
    line of JSON instead.
    """
    say(f"$ cluster submit {' '.join(sample.arguments)} --wait")
    command = run.command(".venv/bin/cluster", "submit", *sample.arguments, "--wait", "--json", CLUSTER_URL=url)
    code, answer = call(command)
    try:
        job = json.loads(answer)
    except ValueError:
        say(f"error: the command exited with code {code} and printed no JSON object: {answer[:500]!r}")
        return False
    if as_json:
        print(json.dumps(job, separators=(",", ":"), ensure_ascii=False), flush=True)
    else:
        _show(job, sample, kept)
    return bool(code == 0 and job.get("state") == "done")


def submit_in_background(run: Run, url: str) -> None:
    """Submit the sample jobs without waiting for them, so that the pages of a new cluster show jobs."""

    def submit_all() -> None:
        for sample in SAMPLES:
            command = run.command(".venv/bin/cluster", "submit", *sample.arguments, CLUSTER_URL=url)
            subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False)

    threading.Thread(target=submit_all, name="samples", daemon=True).start()


def call(command: list[str]) -> tuple[int, str]:
    """Run a command, and return its exit code and its output."""
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
        show.pairs({name: value_at(job["result"], place) for name, place in sample.figures.items()}, indent=2)
        show.line(f"  All results: {kept}.venv/bin/cluster result {job['job_id']}")


def value_at(result: Any, place: tuple[str | int, ...]) -> Any:
    """Return the value at a path of a result, or None if there is no value."""
    try:
        return reduce(lambda part, step: part[step], place, result)
    except (LookupError, TypeError):
        return None

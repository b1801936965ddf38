"""Implementation of the command scale, which changes the number of CPU workers of the running cluster."""

from __future__ import annotations

from deploy.local import commands, cpu_workers, program_control, running_cluster, shape
from deploy.local.outcome import OK, raise_on_stop_signals, say
from jobs.settings import usable_cores


def scale(count: int) -> int:
    """Run `count` CPU workers, which share the cores as with `local --workers`. Return the exit code.

    Removed workers, and workers whose number of lanes changes, commit their partial results and return their leases
    before they stop.
    """
    raise_on_stop_signals()
    api = running_cluster.find_api()
    with running_cluster.hold_change_lock():
        before = cpu_workers.read_lanes()
        lanes = shape.divide_cores(_threads_of_starter(), usable_cores(), count)
        _apply(before, lanes)
        running_cluster.wait_ready(api)
    if lanes == before:
        say(f"The cluster already has {_describe(lanes)}.")
    else:
        say(f"The cluster now has {_describe(lanes)}, instead of {len(before)}.")
        say(f"To start with this number the next time: ./deploy-cluster.sh local --workers {count}")
    return OK


def _threads_of_starter() -> int:
    """Return WORKER_THREADS of the process that started the cluster, or 0 if it was not set."""
    _, environment = commands.describe_starter()
    text = environment.get("WORKER_THREADS", "")
    return int(text) if text.isdecimal() else 0


def _apply(before: tuple[int, ...], lanes: tuple[int, ...]) -> None:
    """Stop workers that are removed or change their number of lanes. Start all workers that must be running."""
    changed = [
        cpu_workers.program_name(number)
        for number, count in enumerate(before, 1)
        if number > len(lanes) or lanes[number - 1] != count
    ]
    programs = program_control.list_programs()
    others = sum(name.startswith(("gpu-worker-", "runner-")) for name in programs)
    try:
        program_control.stop(changed)
        cpu_workers.write_lanes(lanes, others)
    finally:
        program_control.start([name for name in programs if cpu_workers.is_wanted(name)])


def _describe(lanes: tuple[int, ...]) -> str:
    workers = "worker" if len(lanes) == 1 else "workers"
    return f"{len(lanes)} CPU {workers} with {'+'.join(map(str, lanes))} lanes"

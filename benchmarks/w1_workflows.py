"""W1: workflows: 200 actions in diamonds, texts of 10,000 actions, and the longest function in Redis."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import redis

from benchmarks.measure import Row
from coordinator.workflows.documents import validation
from jobs.store.server.functions import Functions
from tests import fetch
from tests.integration.live import Live, until
from tests.ports import free_port
from tests.redis_servers import VERSIONS, server_of
from tests.unit import workflow_bench
from tests.unit.workflow_bench import Flows, workflow_text

ADMIN = "an-admin-token-of-the-benchmarks"
#: Diamonds of three actions, and seconds of each action.
DIAMONDS, SECONDS = int(os.environ.get("DIAMONDS", "67")), 1.0
GOAL_RATIO, GOAL_VALIDATION_SECONDS, GOAL_FUNCTION_MS = 1.1, 2.0, 20.0
ACTIONS, DEPENDENCIES = 10_000, 9
KINDS = {
    "collatz": "collatz, start_number: 1, number_count: 1000000",
    "command": 'command, command: ["echo", "hello", "{unit}"], timeout_seconds: 50',
    "thread": "thread, replicas: 100",
}
#: Runs of which the least counts: whatever else is on the core makes others longer.
_ROUNDS = 3
_ONE = "action_type: command, command: [x]"
_ENDS = ("done", "failed", "cancelled")


def run() -> list[Row]:
    return [*_diamond_rows(), *_validation_rows(), *_function_rows()]


# -- a diamond ------------------------------------------------------------------------------------------------------


def _diamond() -> str:
    actions: list[str] = []
    before = ""
    for number in range(DIAMONDS):
        top, sides = f"t{number}", (f"l{number}", f"r{number}")
        for name, after in ((top, before), (sides[0], top), (sides[1], top)):
            words = f"command: [sleep, '{SECONDS:g}'], dependencies: [{after}]"
            actions.append(f"{name}, action_type: command, {words}")
        before = ", ".join(sides)
    return workflow_text(*actions, name="diamond")


@contextlib.contextmanager
def _cluster(folder: Path, place: str) -> Iterator[Live]:
    """Give a coordinator, and a runner of two slots."""
    live = Live(folder, workers=0, CLUSTER_TOKEN=ADMIN, ARTIFACT_URL=f"file://{folder}/artifacts")
    try:
        live.start_redis()
        live.start_coordinator()
        live.start_runner(0, 2, RUNNER_DIR=place)
        live.wait_ready(1)
        yield live
    finally:
        live.stop()


def _diamond_rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(prefix="runner-") as place:
        Path(place).chmod(0o711)
        with _cluster(Path(folder), place) as live:
            rows = _played(live)
    ended = {row["action_id"]: _seconds(row["ended"]) for row in rows}
    late = [row for row in rows if any(ended[name] > _seconds(row["started"]) for name in row["dependencies"])]
    assert not late, f"these began before what they come after had ended: {late}"
    span = max(ended.values()) - min(_seconds(row["started"]) for row in rows)
    critical = 2 * DIAMONDS * SECONDS
    waits = sorted(
        1000 * (_seconds(row["started"]) - max(ended[name] for name in row["dependencies"]))
        for row in rows
        if row["dependencies"]
    )
    print(f"W1: load average {os.getloadavg()[0]:.1f}, longest wait {waits[-1]:.0f} ms", file=sys.stderr)
    return [
        Row(id="W1@diamond", ours=span, peer=critical, unit="s", peer_name="its critical path", less_is_better=True),
        *(
            Row(
                id=f"W1@start-p{part}",
                ours=waits[len(waits) * part // 100],
                peer=100.0,
                unit="ms",
                peer_name="a tenth of an action",
                less_is_better=True,
            )
            for part in (50, 95)
        ),
    ]


def _played(live: Live) -> list[dict[str, Any]]:
    headers = {**live.headers(), "Content-Type": "application/yaml"}
    answer = fetch.post(f"{live.url()}/api/workflows", content=_diamond().encode(), headers=headers, timeout=30)
    assert answer.status_code == 202, answer.text
    place = f"/api/workflows/{answer.json()['workflow_id']}"
    until(lambda: live.get(place)["state"] in _ENDS, 10 * DIAMONDS * SECONDS + 60, every=1.0)
    row = live.get(place)
    assert row["counts"] == {"done": 3 * DIAMONDS}, row["counts"]
    actions: list[dict[str, Any]] = row["actions"]
    return actions


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


# -- texts ----------------------------------------------------------------------------------------------------------


def _text(of: str, priority: str = "high") -> bytes:
    """Return a workflow of ACTIONS actions, each after the DEPENDENCIES before it."""
    return workflow_text(
        *(
            f"a{number}, action_type: {of}, priority: {priority}, "
            f"dependencies: [{', '.join(f'a{before}' for before in range(max(0, number - DEPENDENCIES), number))}]"
            for number in range(ACTIONS)
        )
    ).encode()


def _validation_rows() -> Iterator[Row]:
    for kind, of in KINDS.items():
        text = _text(of)
        taken = min(_cpu_seconds(text) for _ in range(_ROUNDS))
        yield Row(
            id=f"W1@validate-{kind}",
            ours=taken,
            peer=GOAL_VALIDATION_SECONDS,
            unit="s of CPU",
            peer_name="the goal",
            less_is_better=True,
        )


def _cpu_seconds(text: bytes) -> float:
    began = time.process_time()
    assert len(validation.validate(text).document.actions) == ACTIONS
    return time.process_time() - began


# -- functions ------------------------------------------------------------------------------------------------------


def _function_rows() -> Iterator[Row]:
    servers = {version: server_of(version) for version in VERSIONS}
    logging.disable(logging.CRITICAL)
    try:
        for version, server in servers.items():
            longest = max(_longest(server).values()) if server else 0.0
            if longest:
                yield Row(
                    id=f"W1@function-redis-{version}",
                    ours=longest,
                    peer=GOAL_FUNCTION_MS,
                    unit="ms of CPU",
                    peer_name="the goal",
                    less_is_better=True,
                )
    finally:
        logging.disable(logging.NOTSET)


def _longest(server: str) -> dict[str, float]:
    """Return the milliseconds of CPU of the longest function in each chapter of workflows of ACTIONS actions."""
    longest: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, _redis(server, folder) as (port, pid):
        flows = Flows(f"redis://127.0.0.1:{port}/0", Path(folder) / "artifacts")
        try:
            for chapter, call in _chapters(flows):
                # A look lasts a second at most, which is little of the work where much else runs.
                with _metered(pid) as taken, patch.object(workflow_bench, "LOOKS", 100_000):
                    call()
                longest[chapter], name = max((max(each), name) for name, each in taken.items())
                print(f"W1 {chapter}: {longest[chapter]:.1f} ms, {name}", file=sys.stderr)
        finally:
            flows.close()
    return longest


@contextlib.contextmanager
def _metered(pid: int) -> Iterator[dict[str, list[float]]]:
    """Give the milliseconds for which a process was on a core in each call of a function, by its name.

    Calls are made one after the other. What else runs on this machine makes no call longer, as it does by a clock.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    many, run = Functions.many, Functions.run

    def on_core() -> float:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6

    def metered_run(functions: Functions, name: str, *arguments: Any) -> Any:
        before = on_core()
        try:
            return run(functions, name, *arguments)
        finally:
            taken[name].append(on_core() - before)

    def metered_many(functions: Functions, name: str, calls: Sequence[Any], asked: Any = None) -> Any:
        replies: list[Any] = []
        for call in calls:
            before = on_core()
            replies += many(functions, name, [call], asked)
            taken[name].append(on_core() - before)
        return replies

    with patch.object(Functions, "many", metered_many), patch.object(Functions, "run", metered_run):
        yield taken


def _chapters(flows: Flows) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what a workflow of layers, and one of a single action before all others, go through."""
    held: dict[str, str] = {}

    def submit() -> None:
        held["layers"] = str(flows.post(_text(KINDS["collatz"])).json()["workflow_id"])
        flows.look(held["layers"])

    def fan() -> None:
        others = (f"a{number}, {_ONE}, dependencies: [root]" for number in range(ACTIONS - 1))
        held["fan"] = flows.submit(f"root, {_ONE}", *others)
        flows.look(held["fan"])

    def steer(name: str, verb: str) -> Callable[[], None]:
        def steered() -> None:
            flows.steer(held[name], verb)
            flows.look(held[name])

        return steered

    def fail() -> None:
        flows.store.jobs.cancel(flows.job_of(held["fan"], "root"))
        flows.look(held["fan"])

    def release() -> None:
        flows.end(flows.job_of(held["fan"], "root"))
        flows.look(held["fan"])

    yield "submit", submit
    yield "cancel", steer("layers", "cancel")
    yield "retry", steer("layers", "retry")
    yield "fan", fan
    yield "skip", fail
    yield "bring-back", steer("fan", "retry")
    yield "release", release


@contextlib.contextmanager
def _redis(server: str, folder: str) -> Iterator[tuple[int, int]]:
    """Give the port and the process of a server of Redis."""
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --save  --dir {folder}".split(" ")
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            until(client.ping)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)

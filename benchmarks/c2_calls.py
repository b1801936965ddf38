"""C2: calls of Python functions on two slots, compared with Dask distributed, Ray and concurrent.futures.

100 calls one after another (single), 10,000 calls of a trivial function, 1,000 calls of 10 ms, and 50 calls with an
array of 100 MB. The array is an argument of each call (array), or stored once (put). C2_PYTHON is a Python with the
packages of the peers: see `make bench-calls`. If this runs as root, a second cluster makes the calls without arrays as
the users of RUNNER_UIDS, to measure the cost of this isolation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Incomplete, Row
from benchmarks.peers import calls_peer
from benchmarks.peers.calls_peer import ARRAY, ARRAYS, CALLS, SINGLE, SLEEPS, Cases, add, read, rest
from tests.integration.live import TOP, Live
from threads_cluster.client.api import Cluster
from threads_cluster.client.calling.executor import ClusterExecutor

ADMIN = "an-admin-token-of-the-benchmarks"
SLOTS, ROUNDS, OURS, ISOLATED = 2, int(os.environ.get("C2_ROUNDS", "3")), "ours", "isolated"
#: Users of the isolated slots and replicas, and the cases that they measure.
UIDS, ISOLATED_CASES = "61186-61189", ("single", "trivial", "10ms")
#: Version of Python of the isolated calls. The users of RUNNER_UIDS can execute only the Python of the system.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
#: Goal for a single call in milliseconds.
SINGLE_MS = 20.0
PEERS = {"pool": "ProcessPoolExecutor, 2 processes", "dask": "Dask distributed, 2 workers", "ray": "Ray, 2 CPUs"}

Side = Callable[[str], float]


class Peer:
    """Another system, which runs in a process with its own packages."""

    def __init__(self, name: str, python: str) -> None:
        self._process = subprocess.Popen(
            [python, str(TOP / "benchmarks" / "peers" / "calls_peer.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=tempfile.gettempdir(),
        )
        assert self._process.stdin and self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout
        #: Names of the cases that the system has. Empty if it could not start.
        self.cases = self._output.readline().split()

    def measure(self, case: str) -> float:
        print(case, file=self._input, flush=True)
        return float(self._output.readline())

    def close(self) -> None:
        self._input.close()
        self._process.wait(60)
        self._output.close()


def _isolated_cases(executor: ClusterExecutor) -> Cases:
    """Return the cases with functions that travel by value, because the Python of the system lacks NumPy."""
    return {
        "single": lambda: [executor.submit(lambda number: number + 1, number).result() for number in range(SINGLE)],
        "trivial": lambda: list(executor.map(lambda number: number + 1, range(CALLS))),
        "10ms": lambda: list(executor.map(lambda _: __import__("time").sleep(0.01), range(SLEEPS))),
    }


def _our_cases(cluster: Cluster, executor: ClusterExecutor) -> Cases:
    return {
        "single": lambda: [executor.submit(add, number).result() for number in range(SINGLE)],
        "trivial": lambda: list(executor.map(add, range(CALLS))),
        "10ms": lambda: list(executor.map(rest, range(SLEEPS))),
        "array": lambda: list(executor.map(read, range(ARRAYS), [ARRAY] * ARRAYS)),
        "put": lambda: list(executor.map(read, range(ARRAYS), [cluster.put(ARRAY)] * ARRAYS)),
    }


@contextlib.contextmanager
def _ours(*, isolated: bool = False) -> Iterator[Side]:
    """Yield a cluster of one runner with two slots. If `isolated`, each slot has a separate user."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)  # For the users of RUNNER_UIDS
        live = Live(Path(folder), workers=0, CLUSTER_TOKEN=ADMIN, ARTIFACT_URL=f"file://{folder}/artifacts")
        try:
            live.start_redis()
            live.start_coordinator()
            live.start_runner(0, SLOTS, None, RUNNER_DIR=place, **({"RUNNER_UIDS": UIDS} if isolated else {}))
            live.wait_ready(1)
            options = {"python": PYTHON} if isolated else {}
            with Cluster(live.url(), token=ADMIN) as cluster, cluster.executor(**options) as executor:
                cases = _isolated_cases(executor) if isolated else _our_cases(cluster, executor)
                yield lambda case: calls_peer.measure(case, cases)
        finally:
            live.stop()


def _isolation_rows(medians: dict[tuple[str, str], float]) -> list[Row]:
    return [
        Row(
            id=f"C2@{case}-isolated",
            ours=medians[case, ISOLATED],
            peer=medians[case, OURS],
            unit="s",
            peer_name="ours without RUNNER_UIDS",
            less_is_better=True,
        )
        for case in ISOLATED_CASES
        if (case, ISOLATED) in medians
    ]


def _row(case: str, name: str, ours: float, peer: float) -> Row:
    return Row(id=f"C2@{case}-{name}", ours=ours, peer=peer, unit="s", peer_name=PEERS[name], less_is_better=True)


def run() -> list[Row]:
    python, seconds = os.environ.get("C2_PYTHON"), defaultdict[tuple[str, str], list[float]](list)
    names = list(PEERS) if python else ["pool"]
    with _ours() as ours, contextlib.ExitStack() as stack:
        can_isolate = os.geteuid() == 0 and shutil.which(f"python{PYTHON}", path=os.defpath)
        isolated = {ISOLATED: stack.enter_context(_ours(isolated=True))} if can_isolate else {}
        peers = {name: Peer(name, python or sys.executable) for name in names}
        for peer in peers.values():
            stack.callback(peer.close)
        sides = {OURS: ours, **isolated, **{name: peer.measure for name, peer in peers.items() if peer.cases}}
        for number in range(ROUNDS):
            for case in calls_peer.EXPECTED:
                for name, side in sides.items():
                    if case in (ISOLATED_CASES if name == ISOLATED else peers[name].cases if name in peers else [case]):
                        seconds[case, name].append(side(case))
                        print(f"C2 round {number + 1}, {case}: {name} {seconds[case, name][-1]:.3f} s", file=sys.stderr)
    medians = {key: statistics.median(each) for key, each in seconds.items()}
    rows = [_row(case, name, medians[case, OURS], value) for (case, name), value in medians.items() if name in PEERS]
    rows += _isolation_rows(medians)
    single = medians["single", OURS] / SINGLE * 1000  # The mean of the calls of a round
    rows.append(
        Row(id="C2@single-goal", ours=single, peer=SINGLE_MS, unit="ms", peer_name="the goal", less_is_better=True)
    )
    ideal, ours_10ms = SLEEPS * 0.01 / SLOTS, medians["10ms", OURS]
    rows.append(
        Row(
            id="C2@10ms-ideal", ours=ours_10ms, peer=ideal, unit="s", peer_name="10 s over 2 slots", less_is_better=True
        )
    )
    if missing := [PEERS[name] for name in PEERS if name not in sides]:
        raise Incomplete(f"{' and '.join(missing)}; `make bench-calls` installs them", rows)
    return rows

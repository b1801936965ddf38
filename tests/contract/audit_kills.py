"""The audit log under kills: `python -m tests.contract.audit_kills ENTRIES KILLS [SEED]`.

Two processes export to one file while calls change jobs. Redis is killed with its log on, and comes back without up to
its last second, as after a power cut; the exporters are killed in turn. The chain must verify, in the file and in
Redis, and lines that are removed, changed or moved must be named.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.background.aof import AofRewriter
from deploy.local import redis_server
from jobs.store import Store
from jobs.store.server import connection
from tests.contract.lease_model import new_job
from tests.ports import free_port
from threads_cluster.cli import audit

EXPORTER = """
import sys, time, pathlib
from coordinator.audit import export
from jobs.store import Store
from jobs.store.server import connection
log = Store(connection.connect(sys.argv[1], retries=0, timeout=3)).audit_log
while True:
    try:
        export.export(log, pathlib.Path(sys.argv[2]))
    except connection.Unreachable:
        pass
    time.sleep(0.02)
"""
JOBS = 50


class Server:
    """A Redis whose log can lose its end, and which is rewritten after each start like the leader does."""

    def __init__(self, folder: Path, draw: random.Random, program: str = "") -> None:
        self._folder, self._draw, self._port = folder, draw, free_port()
        self._program = program or redis_server.find(folder)
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.store = Store(connection.connect(self.url, retries=0, timeout=60))
        #: Sizes of Redis' log within the last second, by time.
        self._sizes: deque[tuple[float, int]] = deque()
        self._start()

    def _start(self) -> None:
        options = {"port": self._port, "bind": "127.0.0.1", "dir": self._folder, "save": "", "logfile": "log"}
        options |= {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-percentage": 0}
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        # Python ignores SIGXFSZ, so Redis gets `limit` as an error of its write.
        self._process = subprocess.Popen([self._program, *given], restore_signals=False)
        rewriter, deadline = AofRewriter(self.store.aof), time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(connection.RedisError):
                if rewriter.run_once():
                    return
            time.sleep(0.02)
        raise RuntimeError(f"redis did not start and rewrite its log, see {self._folder}/log")

    def log(self) -> Path:
        """Return the file to which Redis appends, the one with the highest number if there are several."""
        paths = (path for path in self._folder.rglob("*.aof") if not path.name.endswith(".base.aof"))
        return max(paths, key=lambda path: (len(path.name), path.name))

    def limit(self, more: int | None) -> None:
        """Let each file of Redis grow to this many bytes more than its log has, as a full disk does; None: no limit."""
        size = resource.RLIM_INFINITY if more is None else self.size() + more
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def size(self) -> int:
        """Return the current size of Redis' log in bytes."""
        return self.log().stat().st_size

    def note_size(self) -> None:
        """Record the current size of Redis' log."""
        now = time.monotonic()
        self._sizes.append((now, self.size()))
        while self._sizes[0][0] < now - 1:
            self._sizes.popleft()

    def lose_power(self) -> None:
        """Kill Redis, remove up to a second of its log, and start it again."""
        self.restart(lambda log: self._draw.randint(min(self._sizes[0][1], len(log)), len(log)))

    def restart(self, kept: Callable[[bytes], int] = len) -> None:
        """Kill Redis, truncate its log to `kept` bytes, and start it again."""
        self._process.kill()
        self._process.wait()
        log = self.log()
        os.truncate(log, kept(log.read_bytes()))
        self._sizes.clear()
        self._start()

    def stop(self) -> None:
        self.store.client.close()
        self._process.kill()
        self._process.wait()


class Exporters:
    """Two processes that export to one file."""

    def __init__(self, url: str, file: Path) -> None:
        self._command = [sys.executable, "-c", EXPORTER, url, str(file)]
        self._running = [subprocess.Popen(self._command) for _ in range(2)]

    def kill_one(self) -> None:
        self._running[0].send_signal(signal.SIGKILL)
        self._running[0].wait()
        self._running = [*self._running[1:], subprocess.Popen(self._command)]

    def stop(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


def _change(store: Store) -> None:
    """Pause and resume jobs, where each effective call creates an audit log entry."""
    names = [(f"j{number}", "default", "abc") for number in range(JOBS)]
    store.functions.many("pause", names)
    store.functions.many("resume", names)


def run(folder: Path, entries: int, kills: int, seed: int) -> Counter[str]:
    """Write at least so many entries under so many kills, and count the file's by action. Raises when one is lost.

    At the last kill Redis loses what the file has, whatever the others take away.
    """
    draw, file = random.Random(seed), folder / "audit.jsonl"
    server = Server(folder, draw)
    exporters = Exporters(server.url, file)
    try:
        _write(server, exporters, entries, kills)
        head = _head_when_exported(server.store, file)
    finally:
        exporters.stop()
        server.stop()
    lines = file.read_bytes().split(b"\n")[:-1]
    verified = audit.Chain(lines).verify(head)
    assert verified.seq == len(lines) and len(lines) >= entries, (verified, len(lines))
    find_damage(lines, draw)
    return Counter(json.loads(line)["action"] for line in lines)


def _write(server: Server, exporters: Exporters, entries: int, kills: int) -> None:
    due = [entries * (number + 1) // (kills + 1) for number in range(kills)]
    written = 0
    server.store.jobs.submit([new_job(f"j{number}", 10, "any.normal") for number in range(JOBS)])
    _await_export(server.store, 1)
    while written < entries or due:
        before = server.size()
        _change(server.store)
        written = server.store.audit_log.read(0, 1).head.seq
        server.note_size()
        if due and written >= due[0]:
            due.pop(0)
            if due:
                _await_export(server.store, written - 2 * JOBS)
                server.note_size()
                server.lose_power()
            else:
                _await_export(server.store, written)
                server.restart(lambda log, size=before: min(size, len(log)))  # type: ignore[misc]
            exporters.kill_one()
            server.store.jobs.submit([new_job(f"j{number}", 10, "any.normal") for number in range(JOBS)])


def _await_export(store: Store, seq: int) -> None:
    """Return when the file has the entry `seq`: what Redis loses then, the file has."""
    deadline = time.monotonic() + 60
    while store.audit_log.read(seq, 1).exported < seq:
        assert time.monotonic() < deadline, "nobody exports"
        time.sleep(0.02)


def _head_when_exported(store: Store, file: Path) -> str:
    """Wait until the file has every entry, verify the entries in Redis, and return the hash of their head."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        part = store.audit_log.up_to(2**53)
        if part.exported == part.head.seq and file.stat().st_size:
            place = part.dropped
            for entry in part.entries:
                assert entry.follows(place), entry
                place = type(place)(entry.seq, entry.hash)
            assert place == part.head
            return place.hash
        time.sleep(0.05)
    raise AssertionError("the exporters did not come to the end of the log")


def find_damage(lines: list[bytes], draw: random.Random) -> None:
    """Remove, change and swap lines. The verification must name the first wrong line."""
    at = draw.randrange(1, len(lines) - 2)
    entry = lines[at].replace(b'"tenant":"default"', b'"tenant":"another"').replace(b'"tenant":""', b'"tenant":"x"')
    damaged = {
        "removed": (lines[:at] + lines[at + 1 :], at + 1),
        "changed": ([*lines[:at], entry, *lines[at + 1 :]], at + 1),
        "moved": ([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]], at + 1),
        "cut off": (lines[:-1], len(lines)),
    }
    head = audit.Chain(lines).verify().head
    for what, (damage, place) in damaged.items():
        with pytest.raises(audit.Tampered) as found:
            audit.Chain(damage).verify(head)
        assert found.value.line == place, (what, found.value, place)


def main() -> None:
    """Run once with the numbers in the command line, and print the contents of the file."""
    entries, kills, seed = (int(word) for word in (*sys.argv[1:], *("0",) * (4 - len(sys.argv))))
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        counts = run(Path(folder), entries, kills, seed)
        print(f"seed {seed}: {counts.total()} lines in {time.monotonic() - began:.0f} s verify: {dict(counts)}")


if __name__ == "__main__":
    main()

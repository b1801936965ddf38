"""Processes of the benchmark of scale: generators of load, and a cluster without workers."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.integration.live import TOP, Live, until

_NICE = "10"


class Generator:
    """A process that reports each second, as JSON, what it did since its start; it ends with its stdin."""

    def __init__(self, module: str, *words: object) -> None:
        command = ["nice", "-n", _NICE, sys.executable, "-m", f"benchmarks.load.{module}", *map(str, words)]
        self._process = subprocess.Popen(
            command,
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the benchmark, which ends it
        )
        #: The latest report, and the greatest lateness since the last `begin`.
        self.last: dict[str, float] = {}
        self.late = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self.last = json.loads(line)
                self.late = max(self.late, self.last.get("late", 0.0))

    def say(self, line: object) -> None:
        """Send it a line."""
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Close its stdin and wait for its end."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()


@contextlib.contextmanager
def generating(module: str, *words: object) -> Iterator[Generator]:
    """Give a generator that has reported once."""
    generator = Generator(module, *words)
    try:
        until(lambda: generator.last or not generator.alive(), 120)
        assert generator.last, f"{module} ended"
        yield generator
    finally:
        generator.end()


@contextlib.contextmanager
def coordinated() -> Iterator[Live]:
    """Give a cluster of one Redis and one coordinator, without workers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        live = Live(Path(folder), workers=0)
        try:
            yield live.start()
        finally:
            live.stop()

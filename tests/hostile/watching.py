"""Watches a coordinator while it is attacked: how soon /health answers, how much memory it takes."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from types import TracebackType

import httpx

#: Goal R4: a coordinator answers /health so soon and stays below so much memory, whatever it is sent.
MOST_SECONDS, MOST_BYTES = 1.0, 400 << 20
_EVERY = 0.05


def peak_bytes(pid: int) -> int:
    """The most memory that a process had at once since it was last forgotten."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


class Watch:
    """Asks /health all the time. What this process itself overslept meanwhile is not the coordinator's slowness."""

    def __init__(self, url: str, pid: int) -> None:
        self._url, self._pid = url, pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.slowest = self.overslept = 0.0
        self.failures: list[str] = []

    def __enter__(self) -> Watch:
        forget_peak(self._pid)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(120)

    def _look(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._over.is_set():
                asked = time.monotonic()
                try:
                    client.get(f"{self._url}/health").raise_for_status()
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                answered = time.monotonic()
                self.slowest = max(self.slowest, answered - asked)
                time.sleep(_EVERY)
                self.overslept = max(self.overslept, time.monotonic() - answered - _EVERY)

    def check(self) -> None:
        """AssertionError when the coordinator was slow, big or away."""
        assert not self.failures, self.failures[:3]
        peak = peak_bytes(self._pid)
        assert peak <= MOST_BYTES, f"the coordinator took {peak >> 20} MiB; at most {MOST_BYTES >> 20}"
        most = MOST_SECONDS + self.overslept
        assert self.slowest <= most, f"/health took {self.slowest:.2f} s; at most {most:.2f}"

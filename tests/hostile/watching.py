"""Watches a coordinator while it is attacked: how soon /health answers, how much memory it takes.

Who asks is a process of its own, `python -m tests.hostile.watching URL PID`: the test's own work, some of it in
C that lets no other thread run, would look like slowness of the coordinator.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

#: Goal R4: maximum response time of /health and maximum memory of a coordinator, regardless of its requests.
MOST_SECONDS, MOST_BYTES = 1.0, 400 << 20
_EVERY = 0.05


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process since the last reset."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@dataclass(frozen=True)
class Times:
    """Seconds for which each thread of a process has run, and has waited for a core."""

    threads: dict[str, tuple[float, float]]

    def since(self, before: Times) -> tuple[float, float]:
        """Return the running and waiting time of all threads since an earlier measurement."""
        began = {name: before.threads.get(name, (0.0, 0.0)) for name in self.threads}
        ran = sum(now[0] - began[name][0] for name, now in self.threads.items())
        return ran, sum(now[1] - began[name][1] for name, now in self.threads.items())


def times(pid: int | str) -> Times:
    """Return the times of a process from the kernel, or none if the kernel does not count them."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            ran, waited, _ = (task / "schedstat").read_text().split()
            found[task.name] = (int(ran) / 1e9, int(waited) / 1e9)
    return Times(found)


def needed(seconds: float, ran: float, waited: float) -> float:
    """Return what of the seconds that an answer took is the coordinator's own doing.

    While its threads waited for a core, which other processes had, it could do nothing. Time in which it ran counts,
    and so does time in which it did neither, as when its loop waits for Redis.
    """
    return seconds - max(0.0, min(seconds - ran, waited))


def _look(url: str, pid: int) -> dict[str, object]:
    """Send requests until stdin ends. Return the slowest response and the failures."""
    slowest, text, failures = 0.0, "", []
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    print("looks", flush=True)
    while not select.select([sys.stdin], [], [], _EVERY)[0]:
        theirs, ours, asked = times(pid), times("self"), time.monotonic()
        try:
            _ask(connection)
        except (OSError, http.client.HTTPException) as error:
            failures.append(repr(error))
        took = time.monotonic() - asked
        (ran, waited), own = times(pid).since(theirs), times("self").since(ours)[1]
        if (seconds := needed(took, ran, waited + own)) > slowest:
            slowest, text = seconds, f"{took:.2f} s, of which it ran {ran:.2f}, waited for a core {waited:.2f}"
    return {"slowest": slowest, "text": text, "failures": failures}


def _ask(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/health")
    answer = connection.getresponse()
    answer.read()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"/health answered {answer.status}")


class Watch:
    """Queries /health continuously. Time in which processes waited for a core does not count as slowness."""

    def __init__(self, url: str, pid: int) -> None:
        self._url, self._pid = url, pid
        self.slowest, self._text = 0.0, ""
        self.failures: list[str] = []

    def __enter__(self) -> Watch:
        forget_peak(self._pid)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.watching", self._url, str(self._pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout and self._process.stdout.readline() == "looks\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seen = json.loads(self._process.communicate("", timeout=120)[0])
        self.slowest, self._text, self.failures = seen["slowest"], seen["text"], seen["failures"]

    def check(self) -> None:
        """Raise AssertionError if the coordinator was slow, used too much memory, or did not answer."""
        assert not self.failures, self.failures[:3]
        peak = peak_bytes(self._pid)
        assert peak <= MOST_BYTES, f"the coordinator took {peak >> 20} MiB; at most {MOST_BYTES >> 20}"
        assert self.slowest <= MOST_SECONDS, f"/health took {self.slowest:.2f} s of its own: {self._text}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_look(sys.argv[1], int(sys.argv[2]))))

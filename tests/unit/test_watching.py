"""Tests the watchdog of the hostile suites, which detects slowness and tolerates a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.hostile import watching


@pytest.mark.parametrize(
    ("took", "ran", "waited", "needed"),
    [(2.5, 0.2, 2.3, 0.2), (2.5, 0.2, 0.0, 2.5), (2.5, 2.4, 9.0, 2.4), (2.5, 3.0, 1.0, 2.5), (2.5, 0.2, 1.0, 1.5)],
    ids=["starved", "stalled", "computed", "in several threads", "starved and stalled"],
)
def test_time_in_which_a_process_had_no_core_is_not_its_own(
    took: float, ran: float, waited: float, needed: float
) -> None:
    assert watching.needed(took, ran, waited) == pytest.approx(needed)


@pytest.mark.parametrize("computes", [False, True])
def test_an_answer_that_is_held_up_is_noticed(computes: bool) -> None:
    answered = threading.Semaphore(0)

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            until = time.thread_time() + 0.3
            while computes and time.thread_time() < until:
                pass
            time.sleep(0 if computes else 0.5)
            self.send_response(200)
            self.end_headers()
            answered.release()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with watching.Watch(f"http://127.0.0.1:{server.server_port}", os.getpid()) as watch:
        for _ in range(2):  # in one of them other threads of this process may wait for a core
            assert answered.acquire(timeout=60)
        time.sleep(0.2)
    server.shutdown()
    server.server_close()
    assert not watch.failures
    assert watch.slowest > 0.25


def test_who_waits_for_a_core_is_counted() -> None:
    """Two processes compute on one core, so each waits for about as long as it runs."""
    text = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    several = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(2)]
    try:
        before, ran, waited = watching.times(several[0].pid), 0.0, 0.0
        deadline = time.monotonic() + 30
        while (ran == 0.0 or waited < 0.15) and time.monotonic() < deadline:
            time.sleep(0.1)
            ran, waited = watching.times(several[0].pid).since(before)
    finally:
        for one in several:
            one.kill()
            one.wait()
    assert ran > 0 and waited >= 0.15

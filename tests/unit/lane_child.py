"""Child that a test's lane runs in place of `cpu_worker.child.main`: it is warm at once and sleeps in chunks."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

STOP = 0


def main(pipe: Connection, shared: Any, parent: int) -> None:
    pipe.send({})
    while True:
        _, _, spec, lo, hi, _ = pipe.recv()
        upto = lo
        while upto < hi and not shared[STOP]:
            time.sleep(spec["chunk_seconds"])
            upto += 1
        pipe.send((upto, b"{}", 0.1))

"""Child that a test's lane runs in place of `cpu_worker.child.main`: it is warm at once and sleeps in chunks."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

STOP = 0


def main(pipe: Connection, shared: Any, parent: int) -> None:
    pipe.send({})
    while True:
        what, *rest = pipe.recv()
        if what == "small":  # as one that compiles: it looks at no flag
            [time.sleep(spec["chunk_seconds"]) for _, spec, _ in rest[0]]
            pipe.send([])
            continue
        _, spec, lo, hi, _ = rest
        upto = lo
        while upto < hi and not shared[STOP]:
            time.sleep(spec["chunk_seconds"])
            upto += 1
        pipe.send((upto, b"{}", 0.1))

"""Child process of a test lane in place of `cpu_worker.child.main`: it is warm immediately and sleeps in chunks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cpu_worker.child import WarmUpResult

STOP = 0


def main(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    pipe.send(WarmUpResult())
    while True:
        what, *rest = pipe.recv()
        if what == "small":  # like a compiling child, which checks no flag
            for _, spec, _ in rest[0]:
                time.sleep(spec["chunk_seconds"])
            pipe.send([])
            continue
        _, spec, lo, hi, _ = rest
        upto = lo
        while upto < hi and not shared[STOP]:
            time.sleep(spec["chunk_seconds"])
            upto += 1
        pipe.send((upto, b"{}", 0.1))


def wrong_until_anew(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    """Return wrong results until the code is compiled again, which adds a line per kind to the file WRONG_UNTIL."""
    right = Path(os.environ["WRONG_UNTIL"])
    for kind in anew:
        with right.open("a") as file:
            file.write(f"{kind}\n")
    pipe.send(WarmUpResult(wrong={} if right.exists() else {"k": "wrong sum"}))
    pipe.recv()


def removed_some(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    pipe.send(WarmUpResult(removed=["k-1"]))
    pipe.recv()


def kept_nothing(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    pipe.send(WarmUpResult(unkept={"k": "No space left on device"}))
    pipe.recv()


def always_wrong(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    pipe.send(WarmUpResult(wrong={"k": "wrong sum"}))
    pipe.recv()


def crashed_until_anew(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    """Crash like wrong machine code until the code is compiled again, which creates the file WRONG_UNTIL."""
    right = Path(os.environ["WRONG_UNTIL"])
    if anew:
        right.write_text(" ".join(anew))
    elif not right.exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    pipe.send(WarmUpResult())
    pipe.recv()


def killed(pipe: Connection, shared: Any, parent: int, anew: Collection[str] = ()) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

"""Child processes of test lanes, in place of `cpu_worker.child.main`. `main` has every kernel and sleeps in chunks."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cpu_worker.child import Load, Loaded, Started

STOP = 0


def main(pipe: Connection, shared: Any) -> None:
    pipe.send(Started())
    while True:
        what, *rest = pipe.recv()
        if what == "load":
            pipe.send(Loaded())
        elif what == "small":  # like a kernel that checks no flag
            for _, spec, _ in rest[0]:
                time.sleep(spec["chunk_seconds"])
            pipe.send([])
        else:
            _, spec, lo, hi, _ = rest
            upto = lo
            while upto < hi and not shared[STOP]:
                time.sleep(spec["chunk_seconds"])
                upto += 1
            pipe.send((upto, b"{}", 0.1))


def removed_some(pipe: Connection, shared: Any) -> None:
    pipe.send(Started(removed=("k-1",)))
    pipe.recv()


def killed(pipe: Connection, shared: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def with_kernels(pipe: Connection, shared: Any) -> None:
    """Load and compile kernels as the files in the folder KERNELS say. `compiled` gets a line per compilation.

    The cache contains the kinds in the files `KIND.cached`; a file `KIND.FAULT` makes loading fail by this fault:
    `wrong`, `crash`, `broken` (the compiler fails), `killed` (while compiling), `slow` (compiling) or `unstored`.
    """
    folder = Path(os.environ["KERNELS"])
    pipe.send(Started())
    while True:
        _, kind, how = pipe.recv()
        pipe.send(_load(folder, kind, how))


def _load(folder: Path, kind: str, how: Load) -> Loaded | None:
    def has(fault: str) -> bool:
        return (folder / f"{kind}.{fault}").exists()

    if has("cached") and not how.recompile:
        if has("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        return Loaded(wrong="wrong sum" if has("wrong") else "")
    if not how.may_compile:
        return None
    with (folder / "compiled").open("a") as file:
        file.write(f"{kind}\n")
    while has("slow"):
        time.sleep(0.01)
    if has("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if has("broken") or has("unstored"):
        return Loaded(wrong="TypingError") if has("broken") else Loaded(unkept="No space left on device")
    _store(folder, kind, repaired=not has("always"))
    return Loaded()


def _store(folder: Path, kind: str, *, repaired: bool) -> None:
    for fault in ("wrong", "crash") if repaired else ():
        (folder / f"{kind}.{fault}").unlink(missing_ok=True)
    (folder / f"{kind}.cached").touch()

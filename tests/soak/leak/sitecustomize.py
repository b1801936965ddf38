"""Makes services leak on purpose: SOAK_LEAK is words such as `memory:PACKAGE` and `handles:PACKAGE`.

SOAK_NICE is by how much lanes give way to what else runs, as the command `nice` counts. They inherit it from their fork
server.
"""

import os
import sys
import threading
import time

LEAKED: list[object] = []


def leak(what: str) -> None:
    while True:
        LEAKED.append(b"x" * 100_000 if what == "memory" else os.dup(2))
        time.sleep(0.2 if what == "memory" else 1.0)  # a process may have but so many handles


for word in os.environ.get("SOAK_LEAK", "").split():
    wanted, _, service = word.partition(":")
    if service in sys.orig_argv:
        threading.Thread(target=leak, args=(wanted,), daemon=True).start()

if any("forkserver" in word for word in sys.orig_argv):
    os.nice(int(os.environ.get("SOAK_NICE", "0")))

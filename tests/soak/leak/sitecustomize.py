"""Makes one service leak on purpose: SOAK_LEAK is `memory:NODE_TYPE` or `handles:NODE_TYPE`."""

import os
import threading
import time

LEAKED: list[object] = []


def leak(what: str) -> None:
    while True:
        LEAKED.append(b"x" * 100_000 if what == "memory" else os.dup(2))
        time.sleep(0.2)


wanted, _, service = os.environ.get("SOAK_LEAK", "").partition(":")
if service and os.environ.get("NODE_TYPE") == service:
    threading.Thread(target=leak, args=(wanted,), daemon=True).start()

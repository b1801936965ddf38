"""State from which the fork server of a CPU worker forks lanes: numba, the compiled kernels, and their tables.

The fork server of multiprocessing imports this module once. A lane then starts in milliseconds, and lanes share the
memory of the tables.
"""

from __future__ import annotations

import contextlib
import gc
import signal

from cpu_worker import child
from jobs.kinds import code_sets, registry
from jobs.models import Device

#: Maximum time in seconds for loading. After this time, the process ends, and lanes start without the fork server.
LOAD_SECONDS = 120


def load() -> None:
    """Load all compiled kernels. Ignore errors, because each lane loads the kernels again and reports them."""
    gc.disable()  # Loading creates many objects and no garbage.
    child.remove_unused()
    for kind in registry.kinds_for_device(Device.CPU):
        with contextlib.suppress(Exception):
            if code_sets.is_published(kind):
                with code_sets.compile_once(kind):
                    child.warm(kind)
    gc.freeze()  # A garbage collection in a lane would copy the shared memory.
    gc.enable()


signal.signal(signal.SIGTERM, signal.SIG_IGN)  # If a process group gets the signal, the worker stops its lanes.
signal.alarm(LOAD_SECONDS)
load()
signal.alarm(0)

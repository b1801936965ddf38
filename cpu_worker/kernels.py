"""Kernels of a CPU worker. Child processes compile kernels in the background while lanes compute with other kernels."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Set as AbstractSet

from cpu_worker.child import Load, Loaded
from cpu_worker.lane import ChildLane
from jobs.kinds import registry
from jobs.models import Device
from jobs.worker.lanes import LaneDied
from jobs.worker.lifecycle import Worker

log = logging.getLogger(__name__)

#: Number of failed compiler processes for one kernel after which the worker refuses the kind.
MAX_DEATHS = 3
#: Interval in seconds between searches for kernels that must be compiled.
POLL_SECONDS = 0.5


class Kernels:
    """Compiles the kernels that the cache lacks. Offers a kind as soon as a lane has loaded its kernel.

    At most `parallel` processes compile kernels that no job waits for. Implements KernelStates.
    """

    def __init__(self, worker: Worker, parallel: int, *, can_fork: bool = False) -> None:
        self._worker, self._parallel = worker, parallel
        self.can_fork = can_fork
        self._lock = threading.RLock()
        self._closed = threading.Event()
        #: Kinds whose kernels lanes must load.
        self._loadable = set(registry.kinds_for_device(Device.CPU))
        #: Kinds that must be compiled, in this order. The value is True if the cached code is wrong.
        self._missing: dict[str, bool] = {}
        self.compiling: dict[str, ChildLane | None] = {}
        #: Kinds that other processes on this machine are compiling.
        self._elsewhere: set[str] = set()
        #: Kinds that each lane must compile, because compiled code cannot be stored.
        self._unstorable: set[str] = set()
        self._recompiled: set[str] = set()
        self._compilations: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    # -- calls of lanes -----------------------------------------------------------------------------------------------

    def loadable(self, loaded: AbstractSet[str]) -> list[str]:
        with self._lock:
            return self._worker.waiting_first(self._loadable - loaded)

    def load_options(self, kind: str) -> Load:
        return Load(may_compile=kind in self._unstorable, compilations=self._compilations[kind])

    def report_loaded(self, kind: str, loaded: Loaded) -> None:
        with self._lock:
            self._seconds.setdefault(kind, loaded.seconds)
        if self._worker.offer(kind) and not self._worker.compiling:
            log.info("kernels ready", extra={"seconds": self._seconds})

    def report_missing(self, kind: str) -> None:
        with self._lock:
            self._loadable.discard(kind)
            self._missing.setdefault(kind, False)

    def report_wrong(self, kind: str, how: Load, why: str) -> None:
        with self._lock:
            if kind not in self._loadable or how.compilations < self._compilations[kind]:
                return  # Another lane has reported the same code.
            self.can_fork = False  # The fork server can have loaded the wrong code.
            self._loadable.discard(kind)
            if kind not in self._recompiled:
                log.warning("compiled code returned wrong answers; compiling it again", extra={"wrong": {kind: why}})
                self._recompiled.add(kind)
                self._missing[kind] = True
                return
        self._worker.refuse(kind, why)

    def report_failed_start(self, why: str) -> None:
        self._worker.retire(why)

    # -- compilation --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread that compiles missing kernels until `close` is called."""
        threading.Thread(target=self._run, name="kernels", daemon=True).start()

    def _run(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            waiting = self._worker.read_waiting_kinds() if self._missing else ()
            with self._lock:
                for kind in self._worker.waiting_first(self._missing.keys() - self.compiling.keys()):
                    if kind in waiting or len(self.compiling) - len(self._elsewhere) < self._parallel:
                        self.compiling[kind] = None
                        threading.Thread(
                            target=self._compile, args=(kind,), name=f"compile-{kind}", daemon=True
                        ).start()

    def _compile(self, kind: str) -> None:
        """Compile a kernel in a separate process, which stores it in the cache. Then have all lanes load it."""
        log.info("compiling a kernel", extra={"kind": kind})
        try:
            loaded = self._run_compiler(kind)
        except (LaneDied, OSError) as error:
            self._count_death(kind, str(error))
        else:
            self._end_compilation(kind, loaded)
        finally:
            with self._lock:
                self.compiling.pop(kind, None)
                self._elsewhere.discard(kind)
        self._worker.repair_lanes()

    def _run_compiler(self, kind: str) -> Loaded:
        with self._lock:
            if self._closed.is_set():
                raise LaneDied("the worker is stopping")
            compiler = self.compiling[kind] = ChildLane(f"compile-{kind}", _NoKernels())
        try:
            compiler.repair()
            recompile = self._missing[kind]
            loaded = compiler.load(kind, Load(may_compile=True, may_wait=False, recompile=recompile))
            if loaded is None:
                self._elsewhere.add(kind)
                loaded = compiler.load(kind, Load(may_compile=True))
            assert loaded is not None
            return loaded
        finally:
            compiler.close()

    def _end_compilation(self, kind: str, loaded: Loaded) -> None:
        with self._lock:
            self._missing.pop(kind)
            self._compilations[kind] += 1
            self._seconds[kind] = loaded.seconds
            if loaded.unkept:
                log.warning(
                    "cannot store compiled code; each lane and the next start compile it again",
                    extra={"unkept": {kind: loaded.unkept}},
                )
                self._unstorable.add(kind)
            if not loaded.wrong:
                self._loadable.add(kind)
        if loaded.wrong:
            self._worker.refuse(kind, loaded.wrong)

    def _count_death(self, kind: str, why: str) -> None:
        if self._closed.is_set():
            return
        log.warning("a process that compiles a kernel died: %s", why, extra={"kind": kind})
        with self._lock:
            self._deaths[kind] += 1
            if self._deaths[kind] < MAX_DEATHS:
                return
            self._missing.pop(kind, None)
        self._worker.refuse(kind, f"{MAX_DEATHS} processes died while they compiled its kernel, the last one: {why}")

    def close(self) -> None:
        """Kill the processes that compile kernels."""
        self._closed.set()
        with self._lock:
            compilers = [compiler for compiler in self.compiling.values() if compiler]
        for compiler in compilers:
            compiler.close()


class _NoKernels:
    """Kernel states of a process that compiles one kernel and gets no work."""

    can_fork = False  # A forked process would reuse loaded code instead of compiling it.

    def loadable(self, loaded: AbstractSet[str]) -> list[str]:
        return []

    def load_options(self, kind: str) -> Load:
        return Load()

    def report_loaded(self, kind: str, loaded: Loaded) -> None: ...

    def report_missing(self, kind: str) -> None: ...

    def report_wrong(self, kind: str, how: Load, why: str) -> None: ...

    def report_failed_start(self, why: str) -> None: ...

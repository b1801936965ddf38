"""Records one simulation run as Chrome Trace Event JSON for Perfetto and chrome://tracing.

See the section "Trace" of README.md. The recorder is a subclass of the reference simulation. The digest of the trace
must equal the kernel's digest, so that trace and statistics describe the same run. Futile steal attempts are skipped in
one step, and consecutive failed attempts are one slice.
"""

from __future__ import annotations

import heapq
from typing import Any

from jobs.kinds.thread import rows
from jobs.kinds.thread.reference_replica import Core, Replica, Thread
from jobs.models import Spec

#: Maximum number of steps of a recording, per trace event and as an added constant.
_STEPS_PER_EVENT, _STEPS = 20, 500_000
Event = dict[str, Any]


class LimitReached(Exception):
    """The recording has reached its maximum number of events or steps."""


def trace(spec: Spec, digest: int | None = None) -> dict[str, Any]:
    """Record the trace of one replica. Raise RuntimeError if its digest differs from the kernel's `digest`."""
    recorder = Recorder(spec, spec["trace"]["cell"], spec["trace"]["replica"])
    if digest is None:
        digest = _digest(Replica(spec, recorder.cell, recorder.replica) if recorder.truncated else recorder)
    elif not recorder.truncated and _digest(recorder) != digest:
        raise RuntimeError(f"replica {recorder.replica} of cell {recorder.cell}: the digest of the trace is wrong")
    cores, scheduler = spec["cells"][recorder.cell]
    return {
        "displayTimeUnit": "ns",
        "traceEvents": [*_names(cores, scheduler, recorder.replica), *recorder.written],
        "otherData": {
            "type": "thread",
            "cell": recorder.cell,
            "cores": cores,
            "scheduler": scheduler,
            "replica": recorder.replica,
            "digest": f"{digest:016x}",
            "until_us": recorder.now / 1000,
            "deadlocked": recorder.deadlocked,
            "truncated": recorder.truncated,
            "parameters": spec["parameters"],
        },
    }


def _digest(replica: Replica) -> int:
    return rows.digest(replica.cell, replica.replica, replica.row(), replica.by_depth())


def _names(cores: int, scheduler: str, replica: int) -> list[Event]:
    machine = f"replica {replica}: {cores} cores, {scheduler}"
    return [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": machine}},
        *(
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": core, "args": {"name": f"core {core}"}}
            for core in range(cores)
        ),
    ]


class Recorder(Replica):
    """Reference simulation of one replica that records its events."""

    def __init__(self, spec: Spec, cell: int, replica: int) -> None:
        self.written: list[Event] = []
        self.truncated = False
        self.paths: dict[int, str] = {}
        #: Slice that is currently open on each core, by core number.
        self.open: dict[int, Event] = {}
        self.counted: tuple[int, ...] = ()
        self.steps = _STEPS_PER_EVENT * spec["trace"]["max_events"] + _STEPS
        self.flows = 0
        super().__init__(spec, cell, replica)

    def _run(self) -> None:
        try:
            super()._run()
            self._close_all()
        except LimitReached:
            self.truncated = True
            self._close_all()

    def _close_all(self) -> None:
        for core in self.cores:
            self._close(core)

    def _write(self, event: Event, at: int) -> None:
        if len(self.written) >= self.spec["trace"]["max_events"] and not self.truncated:
            raise LimitReached
        self.written.append({"pid": 1, **event, "ts": at / 1000})

    def _begin(self, core: Core, name: str, kind: str, **facts: Any) -> None:
        self._close(core)
        self.open[core.number] = {"name": name, "cat": kind, "since": self.now, "args": facts}

    def _close(self, core: Core) -> None:
        slice_ = self.open.pop(core.number, None)
        if slice_ is None:
            return
        since = slice_.pop("since")
        self._write({"ph": "X", "tid": core.number, "dur": (self.now - since) / 1000, **slice_}, since)

    def _pass(self, time: int) -> None:
        if time > self.now:
            self._count()
        super()._pass(time)
        self.steps -= 1
        if self.steps < 0:
            raise LimitReached

    def _count(self) -> None:
        """Write a counter event if the number of ready threads, live threads or busy cores has changed."""
        busy = sum(core.thread is not None and not core.blocked for core in self.cores)
        if self.counted != (counts := (self.ready, self.live, busy)):
            self.counted = counts
            args = dict(zip(("ready", "live", "busy"), counts, strict=True))
            self._write({"ph": "C", "tid": 0, "name": "threads", "args": args}, self.now)

    def _born(self, key: int, parent: Thread | None, number: int) -> Thread:
        thread = super()._born(key, parent, number)
        self.paths[id(thread)] = f"{self.paths[id(parent)]}.{number}" if parent else f"T{number}"
        return thread

    def _start(self, core: Core, thread: Thread) -> None:
        first, wait = not thread.started, self.now - thread.ready
        path, parent = self.paths[id(thread)], thread.parent
        stealing = self.open.get(core.number)
        if stealing is not None and stealing["cat"] == "steal":
            stealing["args"]["ok"] = parent is not None
        self._begin(
            core,
            path,
            f"d{thread.depth}",
            path=path,
            parent=self.paths[id(parent)] if parent else None,
            depth=thread.depth,
            work_us=thread.work / 1000,
            wait_us=wait / 1000,
            children=thread.wanted,
        )
        if first and parent is not None:
            self._write({"ph": "f", "bp": "e", "tid": core.number, **self._flow(thread)}, self.now)
        super()._start(core, thread)

    def _flow(self, thread: Thread) -> Event:
        return {"id": self.paths[id(thread)], "name": "spawn", "cat": "spawn"}

    def _spawn(self, core: Core, thread: Thread) -> None:
        super()._spawn(core, thread)
        # A flow must start inside a slice, and the slice of the parent ends now.
        for child in thread.children:
            self._write({"ph": "s", "tid": core.number, **self._flow(child)}, self.now - 1)

    def _event(self, core: Core) -> None:
        thread, was_stealing = core.thread, core.stealing
        if core.continues:
            self._close(core)
        super()._event(core)
        if was_stealing or core.continues:
            return
        if core.blocked:
            path = self.paths[id(thread)]
            self._begin(core, f"{path} waits", "blocked", path=path)
        elif core.thread is None:
            self._close(core)

    def _continue(self, core: Core, thread: Thread) -> None:
        self._close(core)
        super()._continue(core, thread)
        if core.continues:
            path = self.paths[id(thread)]
            self._begin(core, f"{path} joins", "join", path=path)

    def _attempt(self, core: Core) -> None:
        if core.number not in self.open:
            self._begin(core, "steal", "steal", victim=None, attempts=0, ok=False)
        super()._attempt(core)

    def _victim(self, core: Core) -> Core:
        victim = super()._victim(core)
        facts = self.open[core.number]["args"]
        facts.update(victim=victim.number, attempts=facts["attempts"] + 1)
        return victim

    def _steal(self, core: Core) -> None:
        if self.ready:
            super()._steal(core)
            return
        steps, cost = self._count_futile_attempts(core), self.spec["steal_ns"]
        core.attempts += steps
        self.count["attempts"] += steps
        self.count["steal"] += steps * cost
        self.open[core.number]["args"]["attempts"] += steps
        core.since = self.now + (steps - 1) * cost
        heapq.heappush(self.events, (core.since + cost, core.number))

    def _count_futile_attempts(self, core: Core) -> int:
        """Return how many steal attempts of a core finish before any other event, including the current attempt."""
        time, number = min(event for event in self.events if event[1] < 0 or not self.cores[event[1]].stealing)
        steps, rest = divmod(time - self.now, self.spec["steal_ns"])
        return steps + (rest > 0 or core.number < number)

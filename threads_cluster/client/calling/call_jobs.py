"""Execution of a batch of calls as one job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from threads_cluster.client import items
from threads_cluster.client.calling import pickling
from threads_cluster.client.calling.batches import Batch, Call
from threads_cluster.client.calling.futures import ClusterFuture, when_done
from threads_cluster.client.calling.launching import Launching
from threads_cluster.client.calling.options import Options
from threads_cluster.client.calling.stored_values import ResultArtifact
from threads_cluster.client.programs import ENDED, KIND, PAGE
from threads_cluster.errors import ApiError, CallFailed, CallTimedOut, ClientError
from threads_protocol.states import TERMINAL

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Minimum pause in seconds between two reads of a running job, and the pause as a multiple of the last read's duration.
_LEAST_PAUSE, _REST = 0.05, 4.0
#: Maximum seconds until a job has ended whose calls have ended.
_END_SECONDS = 60.0
#: Number of units up to which a job is read without a list of its states first.
_FEW = 20


class CallJob:
    """Job whose units are the calls of a batch. Thread-safe."""

    def __init__(self, cluster: Cluster, batch: Batch, options: Options, launching: Launching) -> None:
        self._cluster, self._options, self._launching = cluster, options, launching
        self._calls: Sequence[Call] = batch.calls
        self._left: dict[int, ClusterFuture] = {number: call.future for number, call in enumerate(batch.calls)}
        self._total = len(batch.calls)
        #: Number of calls that have neither ended nor been cancelled.
        self._open = len(batch.calls)
        self._counting, self._reading = threading.Lock(), threading.Lock()
        #: Artifacts with large arguments.
        self._artifacts: set[str] = set()
        #: Artifacts with large results.
        self._results: set[ResultArtifact] = set()
        #: Jobs that must be done before this one, and futures of the other calls whose results its calls need.
        self._after = batch.after
        self._needed = {future for call in batch.calls for future in call.needs.futures}
        #: Functions that make calls again if the cluster cannot provide the results that they need.
        self._again: dict[int, Callable[[], object]] = {}
        self.job_id = ""
        #: Time from which the results of the running job can be read again, as of the monotonic clock.
        self.next_read = 0.0
        #: True if a read of the running job is due.
        self.is_read_due = False

    @property
    def has_ended(self) -> bool:
        """Return True if no call waits for a result."""
        return not self._left

    def add_settled_callback(self, function: Callable[[], object]) -> None:
        """Call a function when each call has ended or was cancelled."""

        def count(future: object) -> None:
            with self._counting:
                self._open -= 1
                is_settled = not self._open
            if is_settled:
                function()

        for call in self._calls:
            call.future.add_done_callback(count)

    def submit(self, *, check_runner: bool) -> bool:
        """Submit the job. Return True if it has ended already. Errors become the exceptions of the calls."""
        with self._reading:
            self._calls = [call for call in self._calls if not call.future.done()]
            self._left = {number: call.future for number, call in enumerate(self._calls)}
            self._again = {n: call.needs.again for n, call in enumerate(self._calls) if call.needs.again is not None}
            self._total = len(self._calls)
            for future in self._needed:
                if isinstance(future, ClusterFuture):
                    future.users.add(self)
            try:
                return not self._left or self._submit(check_runner)
            except BaseException as error:
                self._fail(error)
                return True
            finally:
                self._calls = ()  # The job must not keep results that its user has dropped

    def _submit(self, check_runner: bool) -> bool:
        first = self._calls[0]
        if check_runner:
            self._launching.require_runner()
        calls = {"input": first.function.text, **self._items()}
        choices = self._options.choices(first.name, len(self._calls))
        if self._after:
            choices["after"] = self._after
        try:
            answer = self._cluster.submit(KIND, self._launching.parameters() | calls, **choices)
        except ApiError as error:
            if error.field == "after":
                return self._make_again()
            if error.field != "parameters.files":
                raise
            self._launching.forget_upload()
            answer = self._cluster.submit(KIND, self._launching.parameters() | calls, **choices)
        self.job_id = answer["job_id"]
        for artifact in self._artifacts:  # From now on, the job keeps it
            self._cluster.values.delete(artifact, self.job_id)
        for number, call in enumerate(self._calls):
            call.arguments.forget_contents()
            call.future.set_job(self.job_id, number, self._total, self._cluster.values)
        return answer["status"] in TERMINAL

    def _make_again(self) -> bool:
        """Make the calls again with results that the client loads, because a needed job was deleted. Return True."""
        self._left.clear()
        for again in self._again.values():
            again()
        return True

    def _items(self) -> dict[str, Any]:
        listed = [call.item for call in self._calls]
        lines = [json.dumps(item).encode() for item in listed]
        pickles = [self._calls[0].function, *(call.arguments for call in self._calls)]
        if items.fit(lines, listed) and not any(each.sizes for each in pickles):
            return {"items": listed}
        artifact = self._cluster.values.store_items(listed, pickles)
        self._artifacts.add(artifact)
        return {"items_artifact": artifact, "count": len(listed)}

    def start_only_call(self) -> bool:
        """Mark the call as running. Return False if the job has several calls."""
        if self._total > 1:
            return False
        for future in list(self._left.values()):
            future.start()
        return True

    def delete_artifacts(self) -> None:
        """Delete large arguments and results when the job has ended. If that fails, they are deleted with the job.

        Results remain if a future of a task refers to them.
        """
        with self._reading:
            if (self._artifacts or self._results) and self.job_id:
                with suppress(ClientError, RuntimeError):  # RuntimeError: the connection is closed
                    self._cluster.wait(self.job_id, timeout=_END_SECONDS)
            while self._artifacts:
                self._cluster.values.delete(self._artifacts.pop(), self.job_id or None)
            self._results.clear()
            self._again.clear()
            while self._needed:
                future = self._needed.pop()
                if isinstance(future, ClusterFuture):
                    future.users.discard(self)
                del future
            self._cluster.values.delete_unused()

    def cancel(self) -> None:
        """Cancel the job, unless it has ended."""
        if self.job_id and self._left:
            self._cluster.cancel(self.job_id)

    def drop_cancelled(self) -> None:
        """Cancel the job if only cancelled calls are left. Raises ClientError."""
        with self._reading:
            is_unused = bool(self._left)
            self._left.clear()
        if is_unused and self.job_id:
            self._cluster.cancel(self.job_id)

    # -- results -------------------------------------------------------------------------------------------------------

    def read(self, has_ended: bool | None) -> None:
        """Set the results of the calls that have ended. Errors become the exceptions of the calls.

        `has_ended` says whether the job has ended, or is None if that is unknown.
        """
        with self._reading:
            if not self._left:
                return
            began = time.monotonic()
            try:
                self._read(has_ended)
            except BaseException as error:
                self._fail(error)
            now = time.monotonic()
            # A job with few calls is read after each event, so that a result does not wait
            pause = max(_LEAST_PAUSE, _REST * (now - began)) if self._total > _FEW else 0.0
            self.next_read = now + pause

    def _read(self, has_ended: bool | None) -> None:
        job = self._cluster.job(self.job_id) if has_ended is None else None
        has_ended = has_ended if job is None else job["state"] in TERMINAL
        for unit in self._units():
            if unit["state"] in ENDED:
                if future := self._left.pop(unit["unit"], None):
                    self._settle(future, unit)
                del future  # The job must not keep a result
            elif unit["state"] == "running" and unit["unit"] in self._left:
                self._left[unit["unit"]].start()
        if has_ended and self._left:
            self._fail_unfinished(job or self._cluster.job(self.job_id))

    def _fail_unfinished(self, job: Mapping[str, Any]) -> None:
        """Fail the calls of a job that has ended. If it was skipped, first wait for the calls on which they depend."""
        left, self._left = self._left, {}
        error = self._unfinished(job)

        def fail() -> None:
            for future in left.values():
                future.finish(error=error)

        when_done(self._needed if job["state"] == "skipped" else (), fail)

    def _units(self) -> Iterator[Mapping[str, Any]]:
        """Yield the units that have ended since the last read, and other units."""
        programs = self._cluster.programs
        if self._total <= _FEW:
            yield from programs.page(self.job_id, min(self._left), self._total)["units"]
            return
        runs = programs.states(self.job_id)
        for lo, hi, state in runs:
            if state == "running":
                yield from ({"unit": number, "state": state} for number in range(lo, hi))
        ended = [number for lo, hi, state in runs if state in ENDED for number in range(lo, hi) if number in self._left]
        for first, count in pages(ended):
            yield from programs.page(self.job_id, first, count)["units"]

    def _unfinished(self, job: Mapping[str, Any]) -> CallFailed:
        """Return the error of calls that have no result although the job has ended."""
        why = f": {job['error']}" if job.get("error") else ""
        error = CallFailed(f"job {self.job_id} of the call is {job['state']}{why}")
        error.next = f"see the job with cluster job {self.job_id}"
        return error

    def _settle(self, future: ClusterFuture, unit: Mapping[str, Any]) -> None:
        try:
            if unit["state"] == "done":
                future.finish(self._value(unit, future))
            elif unit["unit"] in self._again and _lacked_results(unit):
                self._again.pop(unit["unit"])()
            else:
                future.finish(error=self._exception(unit))
        except BaseException as error:  # A pickle can fail in any way when it is loaded
            future.finish(error=error)

    def _value(self, unit: Mapping[str, Any], future: ClusterFuture) -> Any:
        value, values, safe = self._cluster.programs.value(unit), self._cluster.values, self._options.safe
        if isinstance(value, str):
            return pickling.decode(value, safe=safe)
        held = values.hold(unit["artifact"], self.job_id)
        self._results.add(held)
        if future.is_lazy:
            return values.stored(self.job_id, unit, value, held, future.users, safe=safe)
        return values.load(unit, value, safe=safe)

    def _exception(self, unit: Mapping[str, Any]) -> BaseException:
        words = str(unit.get("error") or unit.get("reason") or f"exit code {unit.get('exit')}")
        if unit.get("reason") != "error":
            timeout = self._options.timeout if unit.get("reason") == "timeout" else None
            return CallFailed(words) if timeout is None else CallTimedOut(timeout)
        stored = unit if unit.get("value") is not None else {**unit, "value": {"artifact": True}}
        data, traceback = self._cluster.programs.value(stored)
        return pickling.remote_exception(words, data, traceback, safe=self._options.safe)

    def _fail(self, error: BaseException) -> None:
        left, self._left = self._left, {}
        for future in left.values():
            future.finish(error=error)


def _lacked_results(unit: Mapping[str, Any]) -> bool:
    """Return True if a call failed because its runner could not read the results that the call needs."""
    return unit.get("reason") == "not started" or str(unit.get("error")).startswith("ResultsMissing:")


def pages(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first unit and the number of units of pages that contain all of these sorted numbers."""
    first = last = -1
    for number in numbers:
        if first >= 0 and number - first >= PAGE:
            yield first, last - first + 1
            first = -1
        first = number if first < 0 else first
        last = number
    if first >= 0:
        yield first, last - first + 1

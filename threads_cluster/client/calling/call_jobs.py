"""Execution of a batch of calls as one job."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threads_cluster.client import items
from threads_cluster.client.calling import pickling
from threads_cluster.client.calling.batches import Batch
from threads_cluster.errors import CallFailed
from threads_protocol.states import TERMINAL

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: First and longest time in seconds between two requests for the results of a job.
_FIRST_STEP, _LONGEST_STEP = 0.02, 1.0
_PROGRAM = Path(__file__).with_name("program.py").read_text(encoding="utf-8")


class CallJob:
    """Job whose units are the calls of a batch."""

    def __init__(
        self, cluster: Cluster, batch: Batch, parameters: Mapping[str, Any], choices: Mapping[str, Any]
    ) -> None:
        """`parameters` and `choices` are the executor's options for the job's parameters and for its submission."""
        self._cluster, self._batch = cluster, batch
        self._parameters, self._choices = parameters, choices
        self._left: dict[int, Future[Any]] = {number: call.future for number, call in enumerate(batch.calls)}

    def run(self) -> None:
        """Submit the job, and set the results of its calls. Calls that cannot be made get the error instead."""
        try:
            self._follow(self._submit())
        except BaseException as error:
            for future in self._left.values():
                future.set_exception(error)

    def _submit(self) -> str:
        parameters = {
            "command": [sys.executable, "-c", {"literal": _PROGRAM}],
            "persistent": True,
            "input": self._batch.function,
            **self._items(),
            **self._parameters,
        }
        job_id: str = self._cluster.submit("command", parameters, **self._choices)["job_id"]
        return job_id

    def _items(self) -> dict[str, Any]:
        listed = [call.arguments for call in self._batch.calls]
        lines = [json.dumps(text).encode() for text in listed]
        if items.fit(lines, listed):
            return {"items": listed}
        with tempfile.TemporaryDirectory(prefix="cluster-items-") as folder:
            file = Path(folder) / "items.jsonl"
            file.write_bytes(b"".join(line + b"\n" for line in lines))
            # Without a name, because a concurrent upload of the same name would replace this one
            artifact = self._cluster.artifacts.put(file)["artifact"]["artifact_id"]
        return {"items_artifact": artifact, "count": len(lines)}

    def _follow(self, job_id: str) -> None:
        step, state = _FIRST_STEP, ""
        while self._left:
            job = next(self._cluster.follow(job_id, first=step))
            step = min(2 * step, _LONGEST_STEP)
            self._read(job_id)
            if self._left and job["state"] in TERMINAL and state == job["state"]:
                raise CallFailed(f"job {job_id} is {state}, so the call has no result")
            state = job["state"]

    def _read(self, job_id: str) -> None:
        """Set the results of the calls that have ended."""
        for unit in self._cluster.programs.units(job_id, first=min(self._left)):
            if unit["unit"] in self._left and unit["state"] in ("done", "dead"):
                self._settle(self._left.pop(unit["unit"]), unit)

    def _settle(self, future: Future[Any], unit: Mapping[str, Any]) -> None:
        try:
            if unit["state"] == "done":
                future.set_result(pickling.decode(self._cluster.programs.value(unit)))
            else:
                future.set_exception(self._exception(unit))
        except BaseException as error:  # A pickle can fail in any way when it is loaded
            future.set_exception(error)

    def _exception(self, unit: Mapping[str, Any]) -> BaseException:
        words = str(unit.get("error") or unit.get("reason") or f"exit code {unit.get('exit')}")
        if unit.get("reason") != "error":
            return CallFailed(words)
        data, traceback = self._cluster.programs.value({**unit, "value": {"artifact": True}})
        return pickling.remote_exception(words, data, traceback)

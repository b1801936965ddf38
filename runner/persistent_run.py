"""Execution of one lease of a persistent program, which stays alive between units, leases and jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from jobs.worker.api.api_files import Stale
from jobs.worker.execution import Computed
from jobs.worker.lanes import Task
from runner import commands
from runner.files.cache import DamagedFile
from runner.files.folders import LARGEST_VALUE, BadValue
from runner.files.inputs import close_all
from runner.files.parent_results import ParentResults
from runner.files.working_directory import Workplace
from runner.host import Host
from runner.host_errors import HostFault, is_of_host
from runner.programs import report
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.kept import Kept, Key, likeness
from runner.programs.persistent import BadAnswer, PersistentProgram
from runner.programs.recorder import Recorder
from runner.programs.report import Failure
from runner.run import JOBS_FAULTS, LeaseLost, Run, not_started

#: Reason of a unit whose program reported an error.
REPORTED = "error"
#: Environment variables that describe a unit. A persistent program reads them with each unit instead.
_OF_A_UNIT = frozenset(
    f"CLUSTER_{name}" for name in ("JOB_ID", "UNIT", "UNITS", "ATTEMPT", "RESULT", "ITEM", "ITEM_JSON")
) | {"TRACEPARENT", "TRACESTATE"}


class PersistentRun(Run):
    """Execution of one lease. The program of an earlier lease with the same key runs the units, or else a new one."""

    _dirties_folder = False

    def __init__(self, host: Host, place: Workplace, task: Task) -> None:
        super().__init__(host, place, task)
        self._kept: Kept | None = None
        #: Answer of the program to the current unit. Empty if there is none.
        self._answer: Mapping[str, Any] = {}
        #: What is wrong with the answer, or an empty string.
        self._complaint = ""
        self._deadline = 0.0
        #: Unit whose item was read last, and the item.
        self._last_item: tuple[int, str | None] = (-1, None)
        #: Open files that the current unit's item names.
        self._descriptors: list[int] = []
        #: Results of other jobs that the current unit's item names.
        self._parents = ParentResults()

    def go(self) -> tuple[Computed, bytes]:
        try:
            return super().go()
        finally:
            self._close_files()
            kept, self._kept = self._kept, None
            if kept is not None and kept.usable:
                self.host.kept.put(self.place.slot.name, kept)
            elif kept is not None:
                kept.end()

    # -- the program ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> Failure | None:
        try:
            around = self._begin_context()
        except Stale:
            raise
        except JOBS_FAULTS as error:
            return not_started(error)
        self._kept = self.host.kept.take(self.place.slot.name, self._key(around))
        if self._kept is None:
            return super()._prepare()
        self._around = around
        return None

    def _begin_context(self) -> commands.ProgramContext:
        secrets = self._persist(self.files.secrets) if self._command.secrets else {}
        return replace(self._around, folder=str(self.place.folder.path), gpus=self._gpus(), secrets=secrets)

    def _key(self, around: commands.ProgramContext) -> Key:
        command = self._command
        variables = commands.environment(command, replace(around, python_bin=""), unit=0, attempt=1, item=None)
        return Key(
            tenant=self._task.facts.tenant,
            user=self._task.facts.user,
            argv=tuple(self._arguments(0, None)),
            environment={name: text for name, text in variables.items() if name not in _OF_A_UNIT},
            files=command.spec.get("files") or "",
            python=command.python,
            memory_bytes=command.memory_bytes or self.host.memory_bytes,
        )

    def _start(self, order: Order) -> Kept:
        variables = {name: text for name, text in order.environment.items() if name not in _OF_A_UNIT}
        program = PersistentProgram(self.place.slot, replace(order, environment=variables), self._until)
        taken, self._environment_taken = self._environment_taken, None

        def release() -> None:
            if taken is not None:
                self.host.environments.give_back(taken)
            self.place.dirty = True
            self._clean_up()

        key = self._key(replace(self._around, python_bin=""))
        origin = likeness(self._task.facts)
        return Kept(key=key, origin=origin, program=program, release=release, limits=self.host.kept.limits)

    def _should_end(self) -> bool:
        """Also return True if the program must be replaced before the next unit. A unit that was sent must run."""
        if self._kept is not None and self._kept.program.has_next:
            return False
        is_used_up = self._unit > self._first and self._kept is not None and not self._kept.usable
        return is_used_up or super()._should_end()

    def _order(self, unit: int) -> Order:
        order = super()._order(unit)
        self._close_files()
        self._descriptors = self._open_files(unit)
        self._read_parents(unit)
        return order

    def _open_files(self, unit: int) -> list[int]:
        """Open the files that the item names. Raises HostFault and the errors of a unit that cannot start."""
        if not self._command.items_in_file:
            return []
        items = self._persist(lambda: self.host.inputs.items(self._job, self.files))
        if not items.has_files:
            return []
        entries = items.files(json.loads(items.line(unit)))
        try:
            return self._persist(lambda: self.host.inputs.open(entries, self.files))
        except DamagedFile as error:
            raise HostFault(f"a cached file was damaged: {error}") from error

    def _read_parents(self, unit: int) -> None:
        """Read the results that the item names. Raises HostFault and the errors of a unit that cannot start."""
        item = self._item(unit)
        if item is None or '"units"' not in item:
            return

        def read() -> None:
            self._close_parents()
            self._parents.read(json.loads(item), self.host.inputs, self.files)

        try:
            self._persist(read)
        except DamagedFile as error:
            raise HostFault(f"a cached file was damaged: {error}") from error

    def _close_files(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        close_all(descriptors)
        self._close_parents()

    def _close_parents(self) -> None:
        parents, self._parents = self._parents, ParentResults()
        close_all(parents.descriptors)

    def _run_unit(self, order: Order, recorder: Recorder) -> ProgramEnd:
        self._wait_for_valid_lease()
        self._deadline = time.monotonic() + order.timeout_seconds if order.timeout_seconds else 0.0
        self._kept = kept = self._kept or self._start(order)
        began, self._answer, self._complaint = time.monotonic(), {}, ""
        kept.units += 1
        try:
            descriptors = [*self._descriptors, *self._parents.descriptors]
            message = None if kept.program.has_next else self._message(kept, self._unit)
            answer = kept.program.run(message, recorder, self._look, self._until, descriptors, self._following)
        except BadAnswer as error:
            self._complaint = str(error)
            self._end_program()
            return ProgramEnd(code=1, seconds=time.monotonic() - began)
        finally:
            self._close_files()
        if isinstance(answer, ProgramEnd):
            self._end_program()
            return replace(answer, reason="timeout") if self._is_late() and answer.reason == "stopped" else answer
        self._answer = answer
        return ProgramEnd(code=0, seconds=time.monotonic() - began)

    def _item(self, unit: int) -> str | None:
        if self._last_item[0] != unit:
            self._last_item = unit, super()._item(unit)
        return self._last_item[1]

    def _arguments(self, unit: int, item: str | None) -> list[str]:
        return list(self._argv)

    @cached_property
    def _argv(self) -> Sequence[str]:
        """Arguments of the program, which are the same for all units."""
        return super()._arguments(0, None)

    def _following(self, answer: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the next unit if the program can run it while the answer is stored.

        A unit that needs files must wait, and so must the unit after an error or after an answer that names files.
        """
        unit, kept, grant = self._unit + 1, self._kept, self._task.grant
        if self._descriptors or self._parents.listed or kept is None or unit >= grant.hi:
            return None
        if not answer.keys().isdisjoint(("error", "files")) or self._remaining_seconds() <= 0:
            return None
        if not kept.usable or super()._should_end() or self._is_long():
            return None
        try:
            item = self._item(unit)
        except (*JOBS_FAULTS, Stale, LeaseLost):  # Raised again when the unit starts
            return None
        return None if item and self._needs_files(item) else self._message(kept, unit)

    def _needs_files(self, item: str) -> bool:
        """Return True if an item may name files or results of other units."""
        return '"units"' in item or (self._command.items_in_file and '"files"' in item)

    def _message(self, kept: Kept, unit: int) -> dict[str, Any]:
        """Return a unit as the program reads it. The first unit of a job has the job's input."""
        message = {"job": self._job, "unit": unit, "attempt": self._attempt(unit)}
        if (item := self._item(unit)) is not None:
            message["item"] = json.loads(item)
        if self._parents.listed:
            message["results"] = self._parents.listed
        if kept.job != self._job and (text := self._command.spec.get("input")) is not None:
            message["input"] = text
        kept.job = self._job
        return message

    def _end_program(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.end()

    def _look(self) -> float | None:
        if self._deadline and time.monotonic() >= self._deadline - self._command.stop_signal_seconds:
            return max(0.0, self._deadline - time.monotonic())
        return super()._look()

    def _is_late(self) -> bool:
        return bool(self._deadline) and time.monotonic() >= self._deadline - self._command.stop_signal_seconds

    # -- results -------------------------------------------------------------------------------------------------------

    def _take(self, ended: ProgramEnd, recorder: Recorder) -> Failure | None:
        """Store the unit's output and its value. Return the failure of the unit, or None. Raises HostFault."""
        if not self._answer and (is_of_host(OSError(ended.errno, "")) or (ended.error and self._blames_host(ended))):
            raise HostFault(f"cannot start a program: {ended.error}")
        failed, value = self._failure(ended, recorder), None
        try:
            failed, value = self._store_value(self._take_files(failed))
            self.place.keep(self._unit, recorder, ())
        except OSError as error:
            self._end_program()
            failed = self._make_space(error, ended, recorder)
        if failed is None:
            self._ms.append(round(ended.seconds * 1000))
            self._attempts.append(self._attempt(self._unit))
            self._values.append(value)
        return failed

    def _failure(self, ended: ProgramEnd, recorder: Recorder) -> Failure | None:
        if self._answer and "error" not in self._answer:
            return None
        seconds, tail = round(ended.seconds, 3), recorder.tail()
        if self._complaint:
            return Failure(error=self._complaint, exit=1, seconds=seconds, tail=tail)
        if "error" in self._answer:
            words = str(self._answer["error"])[: report.MAX_ERROR]
            return Failure(error=words, exit=1, reason=REPORTED, seconds=seconds, tail=tail)
        if not self._answer and not ended.code and not ended.reason:
            words = "the program exited with exit code 0 before it answered"
            return Failure(error=words, exit=0, seconds=seconds, tail=tail)
        return report.failure(ended, tail, self._command.timeout_seconds)

    def _take_files(self, failed: Failure | None) -> Failure | None:
        """Store the files that the answer names. Return the failure of the unit, or None. Raises OSError."""
        names = self._answer.get("files", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return failed or Failure(error="the answer's files are not a list of paths", exit=1)
        try:
            for name in names:
                self.place.keep_file(self._unit, name)
        except BadValue as error:
            return failed or Failure(error=str(error), exit=1)
        return failed

    def _store_value(self, failed: Failure | None) -> tuple[Failure | None, Any]:
        """Return the unit's failure, and its value unless a file stores it. Raises OSError.

        The record of a failed unit contains its value if there is space for it.
        """
        value = self._answer.get("value")
        if value is not None and failed and report.fits_record(value, failed.error):
            return replace(failed, value=value), None
        text = b"" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) > LARGEST_VALUE:
            words = f"the value has {len(text)} bytes; the maximum is {LARGEST_VALUE}"
            return failed or Failure(error=words, exit=1), None
        if text and (failed or len(text) > self._command.value_bytes):
            self.place.keep(self._unit, None, (), text)
            return failed, {"artifact": True}
        self._value_bytes += len(text)
        return failed, value

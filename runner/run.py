"""Execution of one lease in a slot. The units run one after another, and their results are committed."""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from jobs import errors
from jobs.kinds import programs as program
from jobs.models import Device, Partial
from jobs.store.server.connection import CoordinatorRejects, RedisError, Unreachable, describe_for_log, pause
from jobs.store.server.functions import PROGRAM_TTL_MS
from jobs.worker.api.api_files import Stale
from jobs.worker.execution import Computed, encode
from jobs.worker.lanes import LaneDied, LeaseEnded, Task
from runner import commands
from runner.files.cache import DamagedFile
from runner.files.environments import BuildStopped, InstallationFailed, has_module
from runner.files.folders import BadValue
from runner.files.inputs import Files, MissingItem
from runner.files.working_directory import Workplace
from runner.host import MOST_PROCESSES, Host
from runner.host_errors import DISK_FULL, MOST_FAULTS, HostFault, is_of_host
from runner.live import Line
from runner.programs import report, values
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.recorder import Recorder
from runner.programs.report import Failure
from runner.programs.shells import Program
from runner.programs.slot import GuardDied

log = logging.getLogger(__name__)

#: Seconds after which a lease commits its finished units and releases units that have not started.
LONG_SECONDS = 2.0
#: Maximum total size in bytes of the values in one partial result.
MOST_VALUES = 256 << 10
#: Maximum grace period in seconds for the programs of a cancelled job.
LONGEST_CANCEL = 25.0
#: Without a reachable coordinator, programs are suspended this number of seconds before their lease expires.
MARGIN_SECONDS = 3.0
TTL_SECONDS = PROGRAM_TTL_MS / 1000
#: Delay in seconds between two attempts of an API call.
RETRY_SECONDS = 0.5
#: Command that every host can run.
#: `_PROBE_SECONDS` is the timeout of this command in seconds.
PROBE, _PROBE_SECONDS = (*program.SHELL, ":"), 5.0
#: Errors that prevent the start of a unit and are caused by the job, not by the host.
JOBS_FAULTS = (CoordinatorRejects, errors.ClusterError, InstallationFailed, MissingItem, ValueError, RecursionError)

Answer = TypeVar("Answer")


class LeaseLost(Exception):
    """The lease expired or was revoked."""


class Run:
    """Execution of one lease. `go` runs the units in the lane's thread."""

    #: True if a unit can leave files in the working directory that the next unit must not find.
    _dirties_folder = True

    def __init__(self, host: Host, place: Workplace, task: Task) -> None:
        self.host, self.place, self._task = host, place, task
        self._job, self._token = task.facts.job_id, task.grant.token
        self._command = commands.parse(task.facts.spec)
        self._around = commands.ProgramContext(job=self._job, folder="")
        #: `_unit` is the current unit, and `_first` is the first unit whose result is not committed.
        self._unit = self._first = task.grant.lo
        self._errors = task.grant.errors
        self._began = self._unit_began = time.monotonic()
        #: Duration in milliseconds of each finished unit that is not committed.
        self._ms: list[int] = []
        self._attempts: list[int] = []
        self._values: list[Any] = []
        self._value_bytes = 0
        #: Paths of new files that the finished units did not keep.
        self._new_files: list[str] = []
        self._helped_at = 0.0
        #: True while the program is suspended.
        self._suspended = False
        #: Workspace in use as a pair of tenant and name, or None.
        self._workspace: tuple[str, str] | None = None
        #: Folder of the Python environment in use, or None.
        self._environment_taken: Path | None = None

    @cached_property
    def files(self) -> Files:
        return self.host.files(self._job, self._token, self._must_stop)

    def go(self) -> tuple[Computed, bytes]:
        """Run the units of the lease, and return the partial result to commit. Raises LeaseEnded and LaneDied."""
        try:
            return self._go()
        except (LeaseLost, Stale) as given:
            log.info("gave up a lease: %s", given or "the lease is stale", extra={"job_id": self._job})
            self.place.forget()
            return self._nothing()
        finally:
            self._clean_up()
            self.host.running.pop(self.place.slot.name, None)
            if self._workspace is not None:
                self.host.workspaces.give_back(self._workspace, self.place.uid)
            if self._environment_taken is not None:
                self.host.environments.give_back(self._environment_taken)

    def _go(self) -> tuple[Computed, bytes]:
        try:
            self.place.forget()
            self._run_units()
            return self._collect_finished()
        except (HostFault, OSError) as fault:
            return self._after_fault(fault)
        except GuardDied as died:
            self._keep_on()
            raise LaneDied(str(died)) from died

    def _after_fault(self, fault: Exception) -> tuple[Computed, bytes]:
        """Return the current unit to the queue after a host fault. If this host fails it repeatedly, report it as
        failed.
        """
        log.error(
            "a unit failed because of this host, so the attempt does not count: %s", fault, extra={"job_id": self._job}
        )
        self._clean_up()
        times = self.host.cordon.record_failure(self._job, self._unit)
        if times >= MOST_FAULTS and not self._ms:
            self.place.forget()
            words = f"the unit failed {times} times in a row because of this host: {fault}"
            self._fail(Failure(error=words, reason="not started"))
        time.sleep(1.0)  # The next unit would probably fail too
        return self._collect_finished()

    def _clean_up(self) -> None:
        """Delete the files of a program now, because a full disk prevents later units from deleting them."""
        try:
            if self.place.dirty:
                self.place.discard()
        except (OSError, GuardDied) as error:
            log.error("cannot delete the folder of a program: %s", error, extra={"job_id": self._job})

    def _nothing(self) -> tuple[Computed, bytes]:
        return Computed(upto=self._task.grant.lo, partial={}, seconds=0.0), b"{}"

    # -- execution of units --------------------------------------------------------------------------------------------

    def _run_units(self) -> None:
        if (failed := self._prepare()) is not None:
            self._fail(failed)
        while self._unit < self._task.grant.hi and not self._should_end():
            self._unit_began = time.monotonic()
            ended, recorder, failed = self._start_unit()
            if ended.reason == "stopped":
                self._keep_stopped_output(recorder)
                return
            failed = failed or self._take(ended, recorder)
            if failed is not None:
                self._fail(failed)
            self._unit += 1
            self._task.upto = self._unit

    def _should_end(self) -> bool:
        """Return True if the finished units must be committed now, or if no further unit can start."""
        return bool(self._task.stop) or self.host.stopping() or (self._unit > self._first and self._is_long())

    def _is_long(self) -> bool:
        """Return True if the finished units have taken long, or have many values."""
        return time.monotonic() - self._began > LONG_SECONDS or self._value_bytes > MOST_VALUES

    def _prepare(self) -> Failure | None:
        """Prepare the working directory. Return the reason why no unit can start, or None. Raises HostFault."""
        command = self._command
        try:
            self._prepare_folder()
            workspace = self._take_workspace() if command.workspace else ""
            self._around = commands.ProgramContext(
                job=self._job,
                folder=str(self.place.folder.path),
                workspace=workspace,
                traceparent=self._task.facts.traceparent,
                tracestate=self._task.facts.tracestate,
                gpus=self._gpus(),
                secrets=self._persist(self.files.secrets) if command.secrets else {},
            )
            if command.python and has_module(command.module):
                self._around = replace(self._around, python_bin=str(Path(sys.executable).parent))
            elif command.python:
                return self._make_environment()
        except Stale:
            raise
        except JOBS_FAULTS as error:
            return not_started(error)
        except OSError as error:
            raise HostFault(f"cannot prepare the folders of a program: {error}") from error
        return None

    def _gpus(self) -> str:
        """Return the UUIDs of the reserved GPUs, separated by commas."""
        return ",".join(gpu.uuid for gpu in self.host.ledger.gpus(self.place.slot.name))

    def _take_workspace(self) -> str:
        """Reserve the job's workspace and return its path. Programs of another Unix user cannot use it meanwhile."""
        key, uid = (self._task.facts.tenant, self._command.workspace), self.place.uid
        if self._workspace is None:
            if not self.host.workspaces.take(key, uid, self._must_stop):
                raise LeaseLost("the job was stopped while its workspace was in use")
            self._workspace = key
        return str(self.host.places.workspace(*key, uid))

    def _prepare_folder(self) -> None:
        try:
            self._persist(lambda: self.place.prepare(self._task.facts, self._command, lambda: self.files))
        except (OSError, DamagedFile) as error:
            raise HostFault(f"cannot create the folder of a program: {error}") from error

    def _make_environment(self) -> Failure | None:
        recorder = Recorder()
        try:
            folder = self.host.environments.take(
                self.place.folder.path / self._command.python,
                self._task.facts.tenant,
                home=self.place.folder.path,
                environment=self._environment(self._unit, None),
                uid=self.place.uid,
                run=lambda order: _unless_stopped(self._run_program(order, recorder)),
                stopped=self._must_stop,
            )
        except BuildStopped as stopped:
            raise LeaseLost("the job was stopped") from stopped
        except InstallationFailed as error:
            self.place.keep(self._unit, recorder, ())
            last = next(iter(recorder.tail().strip().splitlines()[-1:]), "")
            words = f"cannot install the Python environment, {error}{last and ': '}{last}"
            return Failure(error=words, reason="not started", tail=recorder.tail())
        self._environment_taken = folder
        self._around = replace(self._around, python_bin=f"{folder}/bin")
        return None

    def _environment(self, unit: int, item: str | None) -> dict[str, str]:
        return commands.environment(self._command, self._around, unit=unit, attempt=self._attempt(unit), item=item)

    def _attempt(self, unit: int) -> int:
        return self._errors + 1 if unit == self._task.grant.lo and not self._task.went_on else 1

    def _start_unit(self) -> tuple[ProgramEnd, Recorder, Failure | None]:
        recorder = Recorder()
        try:
            if self.place.dirty:  # The cleanup after the previous unit failed
                self._prepare_folder()
            order = self._order(self._unit)
        except Stale:
            raise
        except JOBS_FAULTS as error:
            return ProgramEnd(code=0), recorder, not_started(error)
        self.host.running[self.place.slot.name] = (self._job, self._unit)
        line = Line(self._job, self._unit, self._attempt(self._unit), recorder, self.files)
        self.host.live.add(line)
        self.place.dirty = self._dirties_folder
        beside = Program(job=self._job, unit=self._unit, lease=self._token, order=order, until=self._until)
        try:
            with self.host.shells.beside(beside):
                return self._run_unit(order, recorder), recorder, None
        finally:
            self.host.live.remove(line)

    def _run_unit(self, order: Order, recorder: Recorder) -> ProgramEnd:
        """Run the current unit. Raises LeaseLost and GuardDied."""
        return self._run_program(order, recorder)

    def _run_program(self, order: Order, sink: Callable[[int, bytes], None]) -> ProgramEnd:
        """Run a program until it exits, after checking that the lease is valid. Raises LeaseLost and GuardDied."""
        self._wait_for_valid_lease()
        return self.place.slot.run(order, sink, self._look, self._until)

    def _wait_for_valid_lease(self) -> None:
        """Wait until a coordinator has confirmed the lease recently. Raises LeaseLost."""
        while self._remaining_seconds() <= 0:
            if self._must_stop():
                raise LeaseLost("no coordinator is reachable")
            time.sleep(RETRY_SECONDS)
        self._suspended = False

    def _order(self, unit: int) -> Order:
        command = self._command
        item = self._item(unit)
        return Order(
            argv=self._arguments(unit, item),
            folder=self._around.folder,
            environment=self._environment(unit, item),
            timeout_seconds=command.timeout_seconds,
            stop_signal_seconds=command.stop_signal_seconds,
            memory_bytes=command.memory_bytes or self.host.memory_bytes,
            processes=MOST_PROCESSES,
            uid=self.place.uid,
        )

    def _arguments(self, unit: int, item: str | None) -> list[str]:
        return program.arguments(self._command.spec, unit, None if item is None else json.loads(item))

    def _item(self, unit: int) -> str | None:
        """Return the item of a unit as JSON, or None if the job has no items."""
        if not self._command.has_items:
            return None
        if self._command.items_in_file:
            return self._persist(lambda: self.host.inputs.items(self._job, self.files)).line(unit)
        return json.dumps(program.item_of(self._command.spec, unit), ensure_ascii=False, separators=(",", ":"))

    def _take(self, ended: ProgramEnd, recorder: Recorder) -> Failure | None:
        """Store the program's output and clean up. Return the failure of the unit, or None."""
        if ended.error and (is_of_host(OSError(ended.errno, "")) or self._blames_host(ended)):
            raise HostFault(f"cannot start a program: {ended.error}")
        if not ended.error:
            self.host.cordon.record_start()
        failed, value = report.failure(ended, recorder.tail(), self._command.timeout_seconds), None
        try:
            if failed is None:
                failed, value = self._read_value(ended)
            if failed is None and not self._command.outputs:
                self._new_files += self.place.folder.new_files()
            self.place.keep(self._unit, recorder, self._command.outputs)
            self.place.restore()
        except OSError as error:
            failed = self._make_space(error, ended, recorder)
        if failed is None:
            self._ms.append(round(ended.seconds * 1000))
            self._attempts.append(self._attempt(self._unit))
            self._values.append(value)
        return failed

    def _make_space(self, error: OSError, ended: ProgramEnd, recorder: Recorder) -> Failure:
        """Delete program output that could not be stored. Return the failure of the program if it had filled the disk.

        Raises HostFault if the error has another cause, or if other files fill the disk. Files in a workspace remain,
        so a full workspace must count as a failed attempt. Otherwise, the job would fill the disks of all runners one
        by one.
        """
        self.place.discard()
        self.place.forget_unit(self._unit)
        is_full, workspace = self.host.cordon.is_disk_full(), self._command.workspace
        if error.errno not in DISK_FULL or (is_full and not workspace):
            raise HostFault(f"cannot store the output of a program: {error}") from error
        if not is_full:
            self.place.keep(self._unit, recorder, ())
        return report.disk_full(ended, recorder.tail(), workspace if is_full else "")

    def _blames_host(self, ended: ProgramEnd) -> bool:
        return self.host.cordon.record_failed_start(self._job, ended.error, self._can_start)

    def _can_start(self) -> bool:
        """Return True if this host can start a command that exists on every host."""
        folder, uid = self._around.folder, self.place.uid
        probe = Order(argv=list(PROBE), folder=folder, timeout_seconds=_PROBE_SECONDS, uid=uid)
        ended = self._run_program(probe, lambda *_: None)
        return not ended.error and not ended.code

    def _read_value(self, ended: ProgramEnd) -> tuple[Failure | None, Any]:
        """Return the program's value, or a failure if the value is invalid. Raises OSError."""
        try:
            return None, self._value()
        except (BadValue, ValueError, RecursionError) as error:
            return Failure(error=f"CLUSTER_RESULT: {error}", exit=0, seconds=round(ended.seconds, 3)), None

    def _value(self) -> Any:
        """Return the program's value. Store a large value as a file. Raises BadValue and ValueError."""
        text = self.place.folder.value()
        if text is None:
            return None
        value = values.parse(text)
        if len(text) <= self._command.value_bytes:
            self._value_bytes += len(text)
            return value
        self.place.keep(self._unit, None, (), text)
        return {"artifact": True}

    def _keep_stopped_output(self, recorder: Recorder) -> None:
        """Store the output of a program whose job was cancelled. A runner that is stopping has no time for this."""
        if self._task.stop != 2:
            return
        try:
            self.place.forget()
            self.place.discard()  # Deletes files first, because the output needs disk space
            self.place.keep(self._unit, recorder, ())
            if self.place.preserved_path is not None:
                self.files.keep(self.place.preserved_path, [self._unit])
        except (RedisError, OSError) as error:
            log.info("cannot store the output of a cancelled program: %s", error, extra={"job_id": self._job})

    # -- checks of a running unit --------------------------------------------------------------------------------------

    def _look(self) -> float | None:
        """Check a running program. Return its grace period in seconds if the program must stop, or None.

        Also releases the following units if the current one takes long.
        """
        grace, left = self._command.grace_seconds, self._remaining_seconds()
        if self._task.stop == 2:
            return max(0.0, min(grace, LONGEST_CANCEL, left))
        if self.place.slot.name in self.host.lost:
            log.error("another worker has claimed a program's GPU", extra={"job_id": self._job})
            return 0.0
        if self.host.stopping():
            return max(0.0, min(grace, left))
        self._note_suspension(suspended=left <= 0)
        if time.monotonic() - self._unit_began > LONG_SECONDS:
            self._let_others_go_on()
        return None

    def _note_suspension(self, *, suspended: bool) -> None:
        if suspended and not self._suspended:
            log.error("suspending a program because no coordinator is reachable", extra={"job_id": self._job})
        elif self._suspended and not suspended:
            log.warning("resuming a program because a coordinator is reachable again", extra={"job_id": self._job})
        self._suspended = suspended

    def _remaining_seconds(self) -> float:
        """Return the seconds until the program is suspended, unless a coordinator answers before."""
        return self._until() - time.monotonic()

    def _until(self) -> float:
        """Return the monotonic time at which the program is suspended."""
        return self._task.kept_at + TTL_SECONDS - MARGIN_SECONDS

    def _must_stop(self) -> bool:
        return self._task.stop == 2 or self.host.stopping()

    def _let_others_go_on(self) -> None:
        """Commit the finished units, and release the units after the current one. Does nothing if API calls are
        failing.
        """
        now = time.monotonic()
        if now - self._task.kept_at > 2 * LONG_SECONDS or now - self._helped_at < LONG_SECONDS:
            return
        self._helped_at = now
        try:
            if self._task.grant.hi > self._unit + 1:
                self._split()
            if self._ms and self.place.preserved_path is None:
                self._commit_and_go_on()
        except RedisError as error:
            log.info("cannot release the units after a long-running unit: %s", error, extra={"job_id": self._job})

    def _split(self) -> None:
        if self.host.store.leases.split(self._job, self._token, self._unit + 1):
            self._task.grant = replace(self._task.grant, hi=self._unit + 1)

    # -- results of the units ------------------------------------------------------------------------------------------

    def _collect_finished(self) -> tuple[Computed, bytes]:
        """Upload the files of the finished units, and return the partial result to commit."""
        partial = self._partial()
        if self._ms:
            self._upload(list(range(self._first, self._unit)))
        seconds = time.monotonic() - self._began
        return Computed(upto=self._unit, partial=partial, seconds=seconds), encode(partial)

    def _partial(self) -> Partial:
        return program.finished_partial(
            self._first, self.host.worker, self._ms, self._attempts, self._values, self._new_files
        )

    def _upload(self, units: list[int]) -> None:
        """Upload the output files of several units as one artifact of the job.

        If the coordinator rejects them, for example because it stores no artifacts, the first unit fails. If the files
        are only logs, they are lost instead.
        """
        folder = self.place.preserved_path
        if folder is None:
            return
        try:
            self._persist(lambda: self.files.keep(folder, units))
        except Stale:
            raise
        except CoordinatorRejects as error:
            only_logs = self.place.has_only_logs
            self.place.forget()
            if only_logs:
                self.host.say_once(f"cannot store the logs of programs: {_text(error)}")
                return
            self._forget_finished()
            self._fail(Failure(error=f"cannot store the unit's output files: {_text(error)}", exit=0))
        self.place.forget()

    def _forget_finished(self) -> None:
        self._unit = self._first
        self._ms, self._attempts, self._values, self._new_files = [], [], [], []

    def _commit_and_go_on(self) -> int:
        """Commit the finished units and continue with the current unit. Return the number of partials waiting to be
        merged.
        """
        committed = self.host.store.leases.commit(
            self._job,
            self._token,
            self._unit,
            encode(self._partial()),
            keep=True,
            lo=self._first,
            ms=round((time.monotonic() - self._began) * 1000),
            worker=self.host.worker,
            device=Device.RUNNER,
        )
        if not committed.merged:
            raise LeaseLost("the lease is stale")
        self._task.grant = replace(self._task.grant, lo=self._unit, errors=0)
        self._task.went_on = True
        self._first, self._began = self._unit, time.monotonic()
        self._ms, self._attempts, self._values, self._new_files, self._value_bytes = [], [], [], [], 0
        return committed.parts

    def _fail(self, failed: Failure) -> None:
        """Commit the finished units, and report that the current unit failed. Raises LeaseEnded."""
        attempt, parts, spec = self._attempt(self._unit), 0, self._command.spec
        self._upload(list(range(self._first, self._unit + 1)))
        if self._ms:
            parts = self._persist(self._commit_and_go_on)
        text = report.serialize_failure(
            failed, unit=self._unit, attempt=attempt, worker=self.host.worker, host=self.host.name
        )
        wait = program.retry_delay_ms(spec, attempt, random.random())
        self._persist(
            lambda: self.host.store.leases.fail_unit(
                self._job,
                self._token,
                failed.error,
                most=program.max_retries(spec),
                wait_ms=wait,
                row=text,
                unit=self._unit,
            )
        )
        raise LeaseEnded(parts)

    def _keep_on(self) -> None:
        """Commit the finished units once, without retries, before the lease ends."""
        try:
            if self._ms:
                self._upload(list(range(self._first, self._unit)))
                self._commit_and_go_on()
        except (RedisError, LeaseLost, OSError) as error:
            log.warning("cannot commit finished units, so they will run again: %s", error, extra={"job_id": self._job})

    def _persist(self, call: Callable[[], Answer]) -> Answer:
        """Repeat an API call until a coordinator answers. Raises LeaseLost if the lease ends first."""
        while True:
            try:
                return call()
            except Unreachable as error:
                log.warning("%s", describe_for_log(error))
                if self._must_stop():
                    raise LeaseLost("no coordinator is reachable") from error
                time.sleep(pause(error, RETRY_SECONDS))


def _unless_stopped(ended: ProgramEnd) -> ProgramEnd | None:
    return None if ended.reason == "stopped" else ended


def not_started(error: Exception) -> Failure:
    """Return the failure of a unit whose program could not be started."""
    return Failure(error=f"the program could not be started: {_text(error)}", reason="not started")


def _text(error: Exception) -> str:
    return getattr(error, "detail", "") or str(error)

"""Programs on the cluster's runners: submission with files, output, and output files.

with Cluster() as cluster:
    print(cluster.run(["python3", "train.py"], files=".").stdout)
    for value in cluster.map("module:function", range(100), files="."):
        print(value)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from threads_cluster.cli import formatting
from threads_cluster.client import answers, bodies, display, items, output, progress_bars
from threads_cluster.client.artifacts import Progress
from threads_cluster.client.connection import Connection, Patience
from threads_cluster.client.interrupts import CancelOnInterrupt
from threads_cluster.client.output import Piece, Shown, Stream
from threads_cluster.client.records import Job
from threads_cluster.client.resource import quoted
from threads_cluster.client.sse import Reader
from threads_cluster.errors import (
    ApiError,
    BadArgument,
    ClientError,
    JobEnded,
    NoRunner,
    NothingMore,
    UnexpectedAnswer,
    UnitFailed,
)
from threads_cluster.terminal import visible
from threads_protocol.answers import jobs as job_answers
from threads_protocol.answers import logs as log_answers

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

Json: TypeAlias = dict[str, Any]

KIND = "command"
#: Maximum number of units per page.
PAGE = 1000
#: States of units that are not retried.
ENDED = frozenset({"done", "dead"})
#: Maximum number of attempts to upload files, if they are deleted before the job is submitted.
_ATTEMPTS = 3
#: Maximum size in bytes of a list of stderr ranges.
_LARGEST_STREAMS = 16 << 20
#: Seconds within which a runner starts to send the output of a unit.
#: Bytes of earlier output that a runner sends when a client starts to follow a unit.
SETTLE_SECONDS, _OLD_BYTES = 2.5, 64 << 10
#: First and longest interval in seconds between requests for unfinished units.
_FIRST_STEP, _LONGEST_STEP = 0.1, 2.0
#: Exit code of a program that timed out.
#: Exit code of a program that the cluster failed to run.
TIMED_OUT, NOT_RUN = 124, 125

#: Python program that runners execute for `map`. Older runners set only CLUSTER_ITEM.
_CALL = """
import importlib, json, os, sys
name, _, path = sys.argv[1].partition(":")
call = importlib.import_module(name)
for part in path.split("."):
    call = getattr(call, part)
item = os.environ.get("CLUSTER_ITEM_JSON") or os.environ["CLUSTER_ITEM"]
text = json.dumps(call(json.loads(item)), allow_nan=False)
with open(os.environ["CLUSTER_RESULT"], "w") as file:
    file.write(text)
""".strip()
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, kw_only=True)
class Program:
    """Command to run on runners, with its options.

        program = Program(command=["python3", "train.py"], gpus=1, retries=2, outputs=["*.pt"])
        job_id = cluster.programs.submit(program, files=".")["job_id"]

    The cluster chooses the values of unset options.

    - `command`: list of arguments, or a text for `/bin/sh -c`. `{unit}` and `{item}` are replaced.
    - `env`, `secrets`: environment variables, and names of secrets that become environment variables.
    - `outputs`: glob patterns of output files, relative to the working directory.
    - `timeout_seconds`: seconds after which a unit fails.
    - `stop_signal_seconds`: seconds before the timeout at which the program receives SIGTERM.
    - `grace_seconds`: seconds between SIGTERM and SIGKILL when the job is cancelled.
    - `retries`: maximum number of retries of a failed unit. By default, a failed unit is not retried.
    - `batch`: maximum number of units in one lease.
    - `workspace`: name of a folder on the runner that is kept between attempts and between jobs.
    - `python`: path of a requirements file among the files. The program's `python3` then has the required packages.
    - `gpus`, `gpu_memory_mib`, `compute_capability`: GPUs for exclusive use, and the minimums for each GPU.
    - `cpus`, `memory_mib`: CPUs and memory of a unit.
    - `host`, `labels`: name of the host, and labels that the runner must have.
    """

    command: Sequence[str | Mapping[str, str]] | str
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    outputs: Sequence[str] = ()
    timeout_seconds: float | None = None
    stop_signal_seconds: float | None = None
    grace_seconds: float | None = None
    retries: int | None = None
    batch: int | None = None
    workspace: str | None = None
    python: str | None = None
    gpus: int | None = None
    gpu_memory_mib: int | None = None
    compute_capability: str | None = None
    cpus: float | None = None
    memory_mib: int | None = None
    host: str | None = None
    labels: Sequence[str] = ()

    def parameters(self) -> Json:
        """Return the parameters of a job for this program, without files and units.

        Example:
            print(Program(command=["hostname"], gpus=1).parameters())
        """
        command = self.command if isinstance(self.command, str) else [_argument(word) for word in self.command]
        if not command:
            raise BadArgument("the command is empty")
        plain = ("timeout_seconds", "stop_signal_seconds", "grace_seconds", "batch", "workspace")
        several = {"env": dict(self.env), "secrets": list(self.secrets), "outputs": list(self.outputs)}
        return {
            "command": command,
            **{name: value for name, value in several.items() if value},
            **{name: getattr(self, name) for name in plain if getattr(self, name) is not None},
            **({} if self.retries is None else {"retries": {"max": self.retries}}),
            **({} if self.python is None else {"python": {"requirements": self.python}}),
            **({"requirements": needs} if (needs := self._requirements()) else {}),
        }

    def _requirements(self) -> Json:
        names = ("gpus", "gpu_memory_mib", "compute_capability", "cpus", "memory_mib", "host")
        needs = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return needs | ({"labels": list(self.labels)} if self.labels else {})


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Result of a program that has finished. A program that failed has a result, too.

        ended = cluster.run(["python3", "train.py"], files=".")
        print(ended.exit, ended.stdout.decode())

    - `job_id`: ID of the job.
    - `exit`: exit code as in a shell: 128 plus the signal, 124 for a timeout, 125 if the program could not be run.
    - `reason`: why the cluster stopped the program, such as timeout or memory. Empty if it exited by itself.
    - `stdout`, `stderr`: output that the cluster stored. Large output is stored without its middle.
    - `seconds`, `worker`: duration of the program, and the runner that ran it.
    """

    job_id: str
    exit: int
    reason: str
    stdout: bytes
    stderr: bytes
    seconds: float | None
    worker: str | None

    def _repr_html_(self) -> str:
        state = "failed" if self.exit else "done"
        return display.block(
            display.heading("Program", state, f"job {self.job_id}"),
            display.note(f"exit code {self.exit}", self.reason, formatting.duration(self.seconds), self.worker or ""),
            display.output(self.stdout),
            display.output(self.stderr),
        )


class Programs:
    """Programs of a tenant. The token of the connection determines the tenant."""

    def __init__(self, cluster: Cluster, connection: Connection) -> None:
        self._cluster = cluster
        self._connection = connection

    # -- submission of programs ----------------------------------------------------------------------------------------

    def submit(
        self,
        /,
        program: Program,
        *,
        files: str | Path | None = None,
        exclude: Sequence[str] = (),
        count: int | None = None,
        values: Iterable[Any] | None = None,
        progress: Progress | None = None,
        sent: Callable[[Json], None] | None = None,
        **choices: Any,
    ) -> Json:
        """Upload the files and submit a job with one unit, `count` units or one unit per value. Return the response.

        - `program`: the program that each unit runs.
        - `files`: the folder to upload. `exclude` adds .gitignore patterns to those in .clusterignore. The upload
          replaces the previous upload from the same folder, which is deleted when no job uses it.
        - `values`: values that replace `{item}` in the command, one per unit.
        - `progress`, `sent`: called with the number of sent bytes, and with the response of `artifacts.put`.
        - `choices`: the options of `Cluster.submit`.

        Example:
            program = Program(command=["gzip", "-k", "{item}"], outputs=["*.gz"])
            job_id = cluster.programs.submit(program, files="logs", values=["a.log", "b.log"])["job_id"]
        """
        parameters = program.parameters() | ({} if count is None else {"count": count})
        listed = None if values is None else list(values)
        encoded = None if listed is None else items.lines(listed)
        choices = {"idempotency_key": None} | choices
        choices["idempotency_key"] = choices["idempotency_key"] or uuid.uuid4().hex
        for attempt in range(1, _ATTEMPTS + 1):
            if files is not None:
                parameters["files"] = self._put(Path(files), "run", exclude, progress, sent)
            if listed is not None and encoded is not None:
                parameters |= self._items(listed, encoded, Path(files or "."))
            try:
                return self._cluster.submit(KIND, parameters, **choices)
            except KeyboardInterrupt:
                self._undo(parameters, choices)
                raise
            except ApiError as error:
                if not _has_gone(error) or attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    def _undo(self, parameters: Json, choices: Json) -> None:
        """Cancel a job that may have been submitted, because the response was lost."""
        with suppress(ClientError):
            self._cluster.cancel(self._cluster.submit(KIND, parameters, **choices)["job_id"])

    def _put(
        self,
        path: Path,
        what: str,
        exclude: Sequence[str] = (),
        progress: Progress | None = None,
        sent: Callable[[Json], None] | None = None,
        place: Path | None = None,
    ) -> str:
        shown = {} if progress is None else {"progress": progress}
        answer = self._cluster.artifacts.put(path, name=_name(what, place or path), exclude=exclude, **shown)
        if sent is not None:
            sent(answer)
        artifact: str = answer["artifact"]["artifact_id"]
        return artifact

    def _items(self, listed: list[Any], encoded: list[bytes], place: Path) -> Json:
        if items.fit(encoded, listed):
            return {"items": listed}
        with tempfile.TemporaryDirectory(prefix="cluster-items-") as folder:
            file = Path(folder) / "items.jsonl"
            file.write_bytes(b"".join(line + b"\n" for line in encoded))
            return {"items_artifact": self._put(file, "items", place=place), "count": len(encoded)}

    # -- run and map ------------------------------------------------------------------------------------------------

    def require_runner(self, program: Program) -> None:
        """Raise NoRunner if no live runner could ever take a program. Call this before an upload of its files.

        Example:
            cluster.programs.require_runner(Program(command=["true"], gpus=8))
        """
        needed = {"requirements": needs} if (needs := program.parameters().get("requirements")) else {}
        why = self._cluster.estimate(KIND, {"command": ["true"], **needed})["unschedulable"]
        if why:
            raise NoRunner(why)

    def run(
        self,
        program: Program,
        *,
        files: str | Path | None = None,
        timeout: float | None = None,
        queue: bool = False,
        progress: bool = False,
    ) -> Ended:
        """Run a program in a copy of the folder `files` until it exits.

        Raises JobEnded if it was cancelled, and TimedOut after `timeout` seconds. After a timeout the program
        continues. Raises NoRunner if no live runner could ever take the program; with `queue`, waits for such a runner.
        Returns an `Ended` for failed programs too. `progress` shows a live display.

        Example:
            ended = cluster.programs.run(Program(command=["python3", "train.py"], gpus=1), files=".")
            print(ended.exit)
        """
        if not queue:
            self.require_runner(program)
        job_id = self.submit(program, files=files)["job_id"]
        with self._cancelling(job_id):
            job = progress_bars.follow(self._cluster.follow(job_id, 0.5, timeout), progress)
        if job["state"] == "cancelled":
            raise JobEnded(job_id, job["state"], job.get("error"))
        row = self.unit(job_id, 0)
        streams: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.show_rest(row, Shown(lambda stream, data: streams[stream].extend(data)))
        return Ended(
            job_id=job_id,
            exit=exit_code(row),
            reason=row.get("reason") or "",
            stdout=bytes(streams["stdout"]),
            stderr=bytes(streams["stderr"]),
            seconds=row.get("seconds"),
            worker=row.get("worker"),
        )

    def map(
        self,
        /,
        function: str | Callable[..., Any],
        values: Iterable[Any],
        *,
        files: str | Path | None = ".",
        queue: bool = False,
        progress: bool = False,
        **choices: Any,
    ) -> Mapped:
        """Call a Python function on runners, once for each value, and return an iterator over the return values.

        The arguments and errors are those of `Cluster.map`: `function` is `module:function` in the folder `files`, and
        `choices` accepts the fields of `Program`, and `name` and `tags` of the job. Raises NoRunner if no live runner
        could ever take the calls; with `queue`, waits for such a runner. `progress` shows a live display.

        Example:
            print(list(cluster.programs.map("work:square", values=range(100), files=".")))
        """
        labels = {name: choices.pop(name) for name in ("name", "tags") if name in choices}
        program = Program(command=call_command(function), **choices)
        if not queue:
            self.require_runner(program)
        job_id = self.submit(program, files=files, values=values, **labels)["job_id"]
        return Mapped(self, job_id, self._cancelling(job_id), progress)

    def _cancelling(self, job_id: str) -> CancelOnInterrupt:
        return CancelOnInterrupt(lambda: f"job {job_id}", lambda: self._cluster.cancel(job_id))

    # -- units of a job ------------------------------------------------------------------------------------------------

    def unit(self, job_id: str, number: int) -> Json:
        """Return one unit of a job. Raises BadArgument if the job has no unit with this number.

        Example:
            print(cluster.programs.unit(job_id, number=3)["state"])
        """
        page = self.page(job_id, number, 1, None)
        if not page["units"]:
            raise BadArgument(f"job {job_id} has the units 0..{int(page['total']) - 1}")
        row: Json = page["units"][0]
        return row

    def units(self, job_id: str, *, state: str | None = None, first: int = 0) -> Iterator[Json]:
        """Yield the units of a job from number `first` on. `state` selects one state. Pages are requested when needed.

        Example:
            for unit in cluster.programs.units(job_id, state="dead"):
                print(unit["unit"], unit["error"])
        """
        while True:
            rows = self.page(job_id, first, PAGE, state)["units"]
            yield from rows
            if len(rows) < PAGE:
                return
            first = rows[-1]["unit"] + 1

    def describe(self, job_id: str) -> str:
        """Return the HTML with which notebooks display a job.

        Example:
            html = cluster.programs.describe(job_id)
        """
        return Job(self._cluster.job(job_id)).to_html()

    def counts(self, job_id: str) -> dict[str, int]:
        """Return the number of a job's units in each state.

        Example:
            print(cluster.programs.counts(job_id)["done"])
        """
        counts: dict[str, int] = self.page(job_id, 0, 1, None)["counts"]
        return counts

    def states(self, job_id: str) -> list[tuple[int, int, str]]:
        """Return the states of a job's units as runs `(lo, hi, state)` of the units `lo` to `hi - 1`.

        Example:
            for lo, hi, state in cluster.programs.states(job_id):
                print(f"units {lo} to {hi - 1}: {state}")
        """
        path = f"/api/jobs/{quoted(job_id)}/unit-states"
        runs: list[tuple[int, int, str]] = self._ask(path, job_answers.UnitStates)["runs"]
        return runs

    def page(self, job_id: str, first: int, limit: int, state: str | None = None) -> Json:
        """Return up to `limit` units of a job, as `{total, counts, units}`.

        `first` is the number of the first unit, and `state` selects one state.

        Example:
            print(cluster.programs.page(job_id, first=0, limit=100)["counts"])
        """
        query = {"from": first, "limit": limit, "state": state}
        page: Json = self._ask(f"/api/jobs/{quoted(job_id)}/units", job_answers.Units, **query)
        numbers = [row["unit"] for row in page["units"]]
        if numbers != sorted(set(numbers)) or (numbers and numbers[0] < first):
            raise UnexpectedAnswer(self._cluster.url, "the list of units is out of order")
        return page

    def finished(self, job_id: str, watch: Callable[[Json], None] | None = None) -> Iterator[Json]:
        """Yield units in order when they are final.

        Raises JobEnded if the job finishes before the next unit is final. `watch` is called with each new state of the
        job.

        Example:
            for unit in cluster.programs.finished(job_id):
                print(unit["unit"], unit["state"])
        """
        first, step = 0, _FIRST_STEP
        while True:
            job = next(self._cluster.follow(job_id, first=0.0))
            if watch is not None:
                watch(job)
            page = self.page(job_id, first, PAGE, None)
            ready = [row for row, there in zip(page["units"], _leading(page["units"], first), strict=True) if there]
            yield from ready
            first += len(ready)
            if first >= int(page["total"]):
                return
            if ready:
                step = _FIRST_STEP
            elif job["state"] in ("done", "failed", "cancelled", "skipped"):
                raise JobEnded(job_id, job["state"], job.get("error"))
            else:
                next(self._cluster.follow(job_id, first=step))
                step = min(2 * step, _LONGEST_STEP)

    def value(self, row: Mapping[str, Any]) -> Any:
        """Return the JSON value that the unit `row` wrote to the file CLUSTER_RESULT, or None.

        Example:
            for unit in cluster.programs.units(job_id):
                print(cluster.programs.value(unit))
        """
        if row.get("value") != {"artifact": True}:
            return row.get("value")
        text = self._small(row, f"values/{row['unit']}.json", 2 << 20)
        return None if text is None else json.loads(text)

    # -- output of units -----------------------------------------------------------------------------------------------

    def follow(self, job_id: str, unit: int, tick: Callable[[], None]) -> Iterator[Piece]:
        """Yield the output of a running unit until the unit finishes. Broken connections are resumed.

        `tick` is called when data arrives. It can raise an exception.

        Example:
            for piece in cluster.programs.follow(job_id, unit=0, tick=lambda: None):
                print(piece.data.decode(), end="")
        """
        reader, enduring = Reader(), Patience(self._cluster.wait_patience)
        path = f"/api/jobs/{quoted(job_id)}/logs/{unit}/follow"
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": reader.last_id} if reader.last_id else {})
            try:
                with self._connection.stream(path, headers) as chunks:
                    for message in reader.messages(_ticking(chunks, tick, enduring)):
                        event = self._log_event(message)
                        if "state" in event:
                            return
                        if "data" in event:
                            yield self._piece(event)
                raise httpx.RemoteProtocolError("the stream ended before the unit finished")
            except NothingMore:
                return
            except (httpx.TransportError, ApiError) as error:
                self._connection.endure(error, enduring)

    def current(self, job_id: str, unit: int) -> Iterator[Piece]:
        """Yield the output that a running unit has written so far.

        The server does not report how much a running unit has written. A runner sends old output as fast as it can, so
        this ends when little has arrived for SETTLE_SECONDS.

        Example:
            for piece in cluster.programs.current(job_id, unit=0):
                print(piece.data.decode(), end="")
        """
        reader, began, received = Reader(), time.monotonic(), 0
        path = f"/api/jobs/{quoted(job_id)}/logs/{unit}/follow"
        headers = {"Accept": "text/event-stream"}
        with (
            suppress(httpx.ReadTimeout, NothingMore),
            self._connection.stream(path, headers, SETTLE_SECONDS) as chunks,
        ):
            for message in reader.messages(chunks):
                event = self._log_event(message)
                if "state" in event:
                    return
                if "data" in event:
                    piece = self._piece(event)
                    yield piece
                    received += len(piece.data)
                if time.monotonic() - began > SETTLE_SECONDS:
                    if received < _OLD_BYTES:
                        return
                    began, received = time.monotonic(), 0

    def _log_event(self, message: str) -> Json:
        event: Json = answers.checked(answers.Anything, bodies.parse(message), self._cluster.url)
        shape = log_answers.End if "state" in event else log_answers.Output if "data" in event else log_answers.Dropped
        return answers.checked(shape, event, self._cluster.url)

    def _piece(self, event: Json) -> Piece:
        try:
            data = base64.b64decode(event["data"], validate=True)
        except (binascii.Error, ValueError):
            raise UnexpectedAnswer(self._cluster.url, "the output is not valid base64") from None
        run = f"{event['attempt']}:{event['run']}"
        return Piece(run=run, offset=event["offset"], stream=event["stream"], data=data)

    def show_rest(self, row: Mapping[str, Any], shown: Shown) -> tuple[bool, int]:
        """Display the stored output of a unit that was not displayed yet.

        `row` is the unit, and `shown` is the output that was displayed. Returns True if the displayed output belongs to
        the same run of the program. Otherwise the stored output was displayed from its start. Also returns the number
        of bytes that are lost.

        Example:
            cluster.programs.show_rest(cluster.programs.unit(job_id, 0), Shown(lambda stream, data: print(data)))
        """
        log = self._file(row, f"logs/{row['unit']}")
        if log is None:
            return True, 0
        sha, size = log
        artifacts = self._cluster.artifacts
        cut = None
        if size >= output.LEAST_CUT_BYTES:
            cut = output.cut_of(artifacts.part(sha, output.FIRST_BYTES, output.DROPPED_LINE_BYTES), size)
        same = output.written(size, cut) >= shown.place and artifacts.part(sha, 0, len(shown.head)) == shown.head
        if not same:
            shown.forget()
        errors = self._errors(row)
        lost = output.lost(shown.place, cut)
        for first, end in output.ranges(shown.place, size, cut):
            at = first
            for data in artifacts.pieces(sha, first, end - first):
                for stream, part in output.parted(at, data, errors):
                    shown.show(stream, part)
                at += len(data)
        return same, lost

    def _errors(self, row: Mapping[str, Any]) -> list[tuple[int, int]]:
        text = self._small(row, f"logs/{row['unit']}.streams", _LARGEST_STREAMS)
        return [] if text is None else [(first, length) for first, length in json.loads(text)]

    # -- output files ------------------------------------------------------------------------------------------------

    def fetch_unit(self, row: Mapping[str, Any], folder: str | Path, *, replace: bool = False) -> Json:
        """Download the output files of one unit into `folder`. Return `{fetched_files, fetched_bytes}`.

        `row` is the unit, as `unit` and `units` return it. With `replace`, overwrites existing files, as a local run of
        the program would.

        Example:
            cluster.programs.fetch_unit(cluster.programs.unit(job_id, 0), "results")
        """
        prefix = f"outputs/{row['unit']}/"
        if not row.get("artifact"):
            return {"fetched_files": 0, "fetched_bytes": 0}
        return self._cluster.artifacts.fetch_part(
            row["artifact"],
            folder,
            lambda path: path.removeprefix(prefix) if path.startswith(prefix) else None,
            replace=replace,
        )

    def fetch(self, job_id: str, folder: str | Path, *, flat: bool = False) -> Json:
        """Download the output files of all finished units into `folder`.

        Return `{units, fetched_files, fetched_bytes}`. The file `a/b` of unit 3 becomes `3/a/b`. A value that is too
        large for the list of units becomes `values/3.json`. With `flat`, the file becomes `a/b`. Raises BadArgument if
        two units have a file of the same name.

        Example:
            print(cluster.programs.fetch(job_id, "results")["fetched_files"])
        """
        total, paths = {"units": 0, "fetched_files": 0, "fetched_bytes": 0}, _Paths(flat=flat)
        for artifact, several in _by_artifact(self.units(job_id)):
            paths.units = set(map(str, several))
            answer = self._cluster.artifacts.fetch_part(artifact, folder, paths)
            total["units"] = len(paths.seen)
            for name in ("fetched_files", "fetched_bytes"):
                total[name] += answer[name]
        return total

    def _file(self, row: Mapping[str, Any], path: str) -> tuple[str, int] | None:
        artifact = row.get("artifact")
        entry = self._cluster.artifacts.entry(artifact, path) if artifact else None
        return None if entry is None else (entry.sha, entry.size)

    def _small(self, row: Mapping[str, Any], path: str, most: int) -> bytes | None:
        file = self._file(row, path)
        if file is None:
            return None
        if file[1] > most:
            raise UnexpectedAnswer(self._cluster.url, f"{path} has {file[1]} bytes")
        return self._cluster.artifacts.part(file[0], 0, file[1])

    def _ask(self, path: str, shape: Any, **query: Any) -> Json:
        answer: Json = self._connection.ask("GET", path, shape, patience=self._cluster.wait_patience, **query)
        return answer


class Mapped(Iterator[Any]):
    """Iterator over the return values of a function, in the order of the calls. It waits for each value.

    `job_id` is the job's ID.
    """

    def __init__(self, programs: Programs, job_id: str, interrupts: CancelOnInterrupt, progress: bool) -> None:
        self.job_id = job_id
        self._programs = programs
        self._interrupts = interrupts
        self._rows = self._watched() if progress else programs.finished(job_id)

    def _repr_html_(self) -> str:
        return self._programs.describe(self.job_id)

    def _watched(self) -> Iterator[Json]:
        with progress_bars.ProgressBar() as progress:
            yield from self._programs.finished(self.job_id, progress.follow)

    def __next__(self) -> Any:
        with self._interrupts:
            row = next(self._rows)
        if row["state"] != "done":
            raise UnitFailed(self.job_id, row["unit"], failure(row))
        return self._programs.value(row)


class _Paths:
    """Mapping of paths in the artifact of several units to paths on disk."""

    def __init__(self, *, flat: bool) -> None:
        self.units: set[str] = set()
        #: Units that have output files.
        self.seen: set[str] = set()
        self._flat = flat
        self._owners: dict[str, str] = {}

    def __call__(self, path: str) -> str | None:
        what, _, rest = path.partition("/")
        unit = rest.partition("/")[0] if what == "outputs" else rest.removesuffix(".json")
        if what not in ("outputs", "values") or unit not in self.units or rest == unit:
            return None
        self.seen.add(unit)
        if what == "values":
            return path
        return self._alone(rest.removeprefix(f"{unit}/"), unit) if self._flat else rest

    def _alone(self, path: str, unit: str) -> str:
        owner = self._owners.setdefault(path, unit)
        if owner != unit:
            error = BadArgument(f"units {owner} and {unit} both stored the file {visible(path, 200)}")
            error.next = "fetch each unit into a separate folder, without --flat"
            raise error
        return path


def exit_code(row: Mapping[str, Any]) -> int:
    """Return the exit code of a unit's program, as in a shell."""
    if row["state"] == "done":
        return 0
    if row.get("reason") == "timeout":
        return TIMED_OUT
    code = row.get("exit")
    if not code or row.get("reason") == "lost":  # The unit failed although its program succeeded
        return NOT_RUN
    return 128 - int(code) if code < 0 else int(code)


def failure(row: Mapping[str, Any]) -> str:
    """Describe in a few words why a unit failed."""
    said, code, reason = row.get("error") or "", row.get("exit"), row.get("reason") or ""
    if said:
        return str(said)
    return reason or ("it did not run" if code is None else f"exit code {code}")


def _argument(word: Any) -> Any:
    """Convert a command's argument to JSON. A mapping is passed on, and any other value becomes text."""
    return dict(word) if isinstance(word, Mapping) else str(word)


def call_command(function: str | Callable[..., Any]) -> list[str]:
    """Return the command that calls a Python function with a unit's item. Raises the errors of `function_name`."""
    return ["python3", "-c", _CALL, function_name(function)]


def function_name(function: str | Callable[..., Any]) -> str:
    """Return `module:function` for a Python function. Raises BadArgument if a runner cannot import the function."""
    if not isinstance(function, str):
        function = f"{function.__module__}:{function.__qualname__}"
        if "<" in function or function.startswith("__main__:"):
            raise BadArgument(f"{function} cannot be imported on a runner; move the function into a module")
    if not _FUNCTION.fullmatch(function):
        raise BadArgument(f"the function must have the form module:function, as in mymodule:count; got {function!r}")
    return function


def _name(what: str, folder: Path) -> str:
    """Return the name of the artifact for uploads of this folder from this machine."""
    place = folder.resolve()
    plain = re.sub("[^a-z0-9]+", "-", place.name.lower())[:40].strip("-") or "folder"
    digest = hashlib.sha256(f"{socket.gethostname()}:{place}".encode(errors="surrogateescape")).hexdigest()
    return f"{what}-{plain}-{digest[:8]}"


def _has_gone(error: ApiError) -> bool:
    """Return True if the error means that an upload was deleted before a job used it."""
    fields = ("parameters.files", "parameters.items_artifact")
    return error.status in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT) and error.field in fields


def _leading(rows: Sequence[Mapping[str, Any]], first: int) -> Iterator[bool]:
    """Yield a value for each unit. It is True if this unit and all units before it are final."""
    ended = True
    for at, row in enumerate(rows):
        ended = ended and row["unit"] == first + at and row["state"] in ENDED
        yield ended


def _by_artifact(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, list[int]]]:
    """Yield each artifact with its units. The units of a lease share an artifact."""
    units: dict[str, list[int]] = {}
    for row in rows:
        if row.get("artifact"):
            units.setdefault(row["artifact"], []).append(row["unit"])
    yield from units.items()


def _ticking(chunks: Iterable[bytes], tick: Callable[[], None], enduring: Patience) -> Iterator[bytes]:
    for chunk in chunks:
        enduring.succeeded()
        tick()
        yield chunk

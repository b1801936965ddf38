"""Tests a lease in a runner: committed, failed and returned units, and stored files."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.kinds.command.definition import KIND
from jobs.store.server.connection import CoordinatorAway, CoordinatorRejects
from jobs.store.work.leases import Grant, Merge
from jobs.store.work.slots import JobFacts
from jobs.worker.lanes import LaneDied, LeaseEnded, Task
from runner import commands
from runner.files import folders, inputs
from runner.files.cache import FileCache
from runner.files.directories import Places
from runner.files.environments import LONGEST_LIST, Environments
from runner.files.folders import Folder
from runner.files.inputs import Inputs
from runner.files.working_directory import Workplace
from runner.files.workspaces import Workspaces
from runner.host import Host
from runner.host_errors import Cordon
from runner.lane import GuardLane
from runner.ledger import Ledger, Resources
from runner.live import Line, Live
from runner.programs.guard_messages import ProgramEnd
from runner.programs.recorder import Recorder
from runner.programs.slot import Slot
from tests.integration.live import until
from threads_cluster.ssh import guard
from threads_protocol import manifest
from threads_protocol.manifest import Entry

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guards need Linux")


class Leases:
    """Records the requests about leases in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def commit(self, job: str, token: str, upto: int, partial: bytes, **more: Any) -> Merge:
        self.calls.append(("commit", more["lo"], upto, more["keep"], json.loads(partial)))
        return Merge(merged=True, parts=1)

    def fail_unit(self, job: str, token: str, error: str, **more: Any) -> bool:
        self.calls.append(("fail", more["unit"], error, more["most"], more["wait_ms"], json.loads(more["row"])))
        return True

    def split(self, job: str, token: str, at: int) -> bool:
        self.calls.append(("split", at))
        return True

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


class Files(inputs.Files):
    """Files of a job in memory, and the stored files: (units, contents by path)."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.bytes = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
        self.entries = [
            Entry(kind="f", path=path, size=len(data), sha=hashlib.sha256(data).hexdigest())
            for path, data in files.items()
        ]
        self.kept: list[tuple[list[int], dict[str, bytes]]] = []
        self.rejects = ""
        #: Results of each unit of other jobs, and the fetched files with the units to which they belong.
        self.parents: dict[str, list[dict[str, Any]]] = {}
        self.fetched: list[tuple[str, str]] = []
        self.sent: list[tuple[int, int, list[tuple[str, bytes]]]] = []

    def manifest(self, which: str = "files") -> bytes:
        return manifest.serialize(self.entries)

    def fetch(self, entries: Sequence[Entry], write: Callable[[str, Iterator[bytes]], None], parent: str = "") -> None:
        self.fetched += [(parent, entry.path) for entry in entries]
        for entry in entries:
            write(entry.sha, iter([self.bytes[entry.sha]]))

    def results(self, units: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
        if self.rejects:
            raise CoordinatorRejects(self.rejects)
        return [self.parents[job][unit] for job, unit in units]

    def keep(self, folder: Path, units: Sequence[int]) -> str:
        if self.rejects:
            raise CoordinatorRejects(self.rejects)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.kept.append((list(units), files))
        return "a" * 64

    def secrets(self) -> dict[str, str]:
        return {"PASSWORD": "hidden"}

    def output(self, unit: int, attempt: int, offset: int, chunks: Sequence[tuple[str, bytes]]) -> bool:
        self.sent.append((unit, offset, list(chunks)))
        return True

    def replica(self, **fields: str | int) -> None:
        raise AssertionError("these jobs are not of a service")

    def lead(self) -> dict[str, Any]:
        raise AssertionError("these jobs are not of a service")


class Bench:
    """A runner with one slot and without a cluster."""

    def __init__(self, folder: Path, least_free: int = 0) -> None:
        places = Places(folder)
        places.make()
        self.leases, self.files, self.stopping = Leases(), Files({}), False
        resources = Resources(slots=1, cpus=1.0, memory_mib=1000)
        store: Any = type("Store", (), {"leases": self.leases})()
        self.host = Host(
            worker="runner-1",
            name="host-1",
            store=store,
            files=lambda job, lease, stopped: self.files,
            places=places,
            inputs=Inputs(FileCache(places.cache, 1 << 20)),
            ledger=Ledger(resources, None, "runner-1"),  # type: ignore[arg-type]
            environments=Environments(places.environments, 1 << 30),
            cordon=Cordon(places.work, least_free),
            stopping=lambda: self.stopping,
        )
        self.slot = Slot("0")
        self.lane = GuardLane(self.host, Workplace(places, self.slot, self.host.inputs))
        self.home = places.work / "0" / "home"

    def task(
        self, command: Any, lo: int = 0, hi: int = 1, errors: int = 0, job: str = "j", user: str = "", **more: Any
    ) -> Task:
        count: dict[str, Any] = {} if "items" in more or "count" in more else {"count": 1000}
        spec = json.loads(json.dumps(dict(KIND.plan(KIND.parameters(command=command, **count, **more)).spec)))
        facts = JobFacts(
            job_id=job,
            kind="command",
            spec=spec,
            queue="runner.normal",
            total=1000,
            expected_rate=1.0,
            nominal_rate=1.0,
            tenant="default",
            user=user,
        )
        return Task(facts, Grant(token="t", lo=lo, hi=hi, errors=errors))

    def run(self, command: Any, lo: int = 0, hi: int = 1, **more: Any) -> tuple[int, dict[str, Any]]:
        """Run a lease. Return its progress and the run of its partial."""
        computed, encoded = self.lane.compute(self.task(command, lo, hi, **more))
        self.partial = json.loads(encoded)
        return computed.upto, self.partial["runs"][0] if self.partial else {}

    def fail(self, command: Any, lo: int = 0, hi: int = 1, **more: Any) -> tuple[Any, ...]:
        """Run a lease that fails, and return the failure."""
        with pytest.raises(LeaseEnded):
            self.lane.compute(self.task(command, lo, hi, **more))
        return self.leases.calls[-1]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.lane.close()


def test_units_run_one_after_the_other_and_are_committed_at_the_end(bench: Bench) -> None:
    upto, run = bench.run(["true"], 3, 8)
    assert upto == 8
    assert (run["lo"], run["worker"], run["attempts"], len(run["ms"])) == (3, "runner-1", [1] * 5, 5)
    assert "values" not in run
    assert not bench.leases.calls and not bench.files.kept


def test_a_program_gets_its_variables_and_no_others(bench: Bench) -> None:
    text = "import json, os; json.dump(dict(os.environ), open(os.environ['CLUSTER_RESULT'], 'w'))"
    command = [sys.executable, "-c", text]
    _, run = bench.run(command, items=[{"a": 1}], errors=2, env={"MINE": "x"}, secrets=["PASSWORD"], workspace="w")
    [given] = run["values"]
    home = str(bench.home)
    workspace = given.pop("CLUSTER_WORKSPACE")
    assert workspace.startswith(str(bench.host.places.workspaces)) and Path(workspace).is_dir()
    given.pop("LC_CTYPE", None)  # Python's own
    assert given == {
        "HOME": home,
        "TMPDIR": home,
        "PATH": given["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "MINE": "x",
        "PASSWORD": "hidden",
        "CLUSTER_JOB_ID": "j",
        "CLUSTER_UNIT": "0",
        "CLUSTER_UNITS": "1",
        "CLUSTER_ITEM": '{"a":1}',
        "CLUSTER_ITEM_JSON": '{"a":1}',
        "CLUSTER_ATTEMPT": "3",
        "CLUSTER_RESULT": f"{home}/.cluster-result",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert run["attempts"] == [3]


@pytest.mark.parametrize(
    ("item", "given"),
    [
        ('"a b.txt"', "a b.txt"),
        ('""', ""),
        ('"\\u00fc\\n"', "ü\n"),
        ('"7"', "7"),
        ("7", "7"),
        ("null", "null"),
        ('["a"]', '["a"]'),
        ('{"k":"ü"}', '{"k":"ü"}'),
        ('"a\\u0000b"', '"a\\u0000b"'),
        ('"\\ud800"', '"\\ud800"'),
    ],
)
def test_a_text_item_is_given_as_it_is_and_as_json(item: str, given: str) -> None:
    """The text once had JSON quotes."""
    job, around = commands.parse({"total": 1}), commands.ProgramContext(job="j", folder="/x")
    environment = commands.environment(job, around, unit=0, attempt=1, item=item)
    assert (environment["CLUSTER_ITEM"], environment["CLUSTER_ITEM_JSON"]) == (given, item)


def test_a_shell_reads_a_text_item_without_quotes(bench: Bench) -> None:
    _, run = bench.run('printf \'"%s"\' "${CLUSTER_ITEM%.*}" > "$CLUSTER_RESULT"', items=["my photo.png"])
    assert run["values"] == ["my photo"]


def test_the_output_of_python_is_not_buffered_unless_the_job_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    around = commands.ProgramContext(job="j", folder="/x")
    own = commands.parse({"total": 1, "env": {"PYTHONUNBUFFERED": ""}})
    assert commands.environment(own, around, unit=0, attempt=1, item=None)["PYTHONUNBUFFERED"] == ""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    for env, expected in (({}, "1"), ({"PYTHONUNBUFFERED": ""}, "")):
        words = [sys.executable, "-c", f"import os; assert os.environ['PYTHONUNBUFFERED'] == {expected!r}"]
        assert guard.start({"folder": "/", "env": env, "words": words}).wait() == 0


def test_a_program_finds_its_jobs_place_in_a_trace_unless_it_names_another() -> None:
    job, around = commands.parse({"total": 1}), commands.ProgramContext(job="j", folder="/x", traceparent="00-a-b-01")
    assert commands.environment(job, around, unit=0, attempt=1, item=None)["TRACEPARENT"] == "00-a-b-01"
    own = commands.parse({"total": 1, "env": {"TRACEPARENT": "mine"}})
    assert commands.environment(own, around, unit=0, attempt=1, item=None)["TRACEPARENT"] == "mine"


CREATES = "mkdir -p out .cache __pycache__; touch a.txt b-$CLUSTER_UNIT.txt out/c.txt .cache/d __pycache__/e .hidden"


def test_new_files_that_a_job_without_outputs_does_not_keep_are_counted(bench: Bench) -> None:
    bench.run(CREATES, 0, 2)
    assert bench.partial["new_files"] == {"count": 6, "names": ["a.txt", "b-0.txt", "b-1.txt"]}
    bench.run(CREATES, outputs=["*.csv"])
    assert "new_files" not in bench.partial, "the job has selected its outputs"
    bench.run("touch .hidden; echo 1 > $CLUSTER_RESULT")
    assert "new_files" not in bench.partial


def test_files_of_the_job_are_not_new_and_the_search_for_new_ones_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path / "home")
    folder.fill(["in", "in/a.txt"], lambda path: (folder.path / path).mkdir() if path == "in" else touch(folder, path))
    touch(folder, "in/b.txt")
    assert folder.new_files() == ["in/b.txt"]
    for number in range(30):
        touch(folder, f"{number}.txt")
    monkeypatch.setattr(folders, "MOST_ENTRIES", 20)
    assert 18 <= len(folder.new_files()) <= 20


def touch(folder: Folder, path: str) -> None:
    (folder.path / path).touch()


def test_a_unit_that_fails_is_failed_after_what_finished_before_it_is_committed(bench: Bench) -> None:
    retries = {"max": 2, "initial_delay_seconds": 1, "jitter": False}
    text = 'echo out-$CLUSTER_UNIT; echo err >&2; test "$CLUSTER_UNIT" -lt 5 || exit 3'
    _, unit, error, most, wait_ms, row = bench.fail(text, 3, 8, retries=retries)
    assert bench.leases.names == ["commit", "fail"]
    assert bench.leases.calls[0][1:4] == (3, 5, True)
    assert (unit, error, most, wait_ms) == (5, "exit code 3: err", 2, 1000)
    assert (row["unit"], row["exit"], row["reason"], row["attempt"], row["worker"], row["host"]) == (
        5,
        3,
        "",
        1,
        "runner-1",
        "host-1",
    )
    assert row["tail"] == "err\n", "the reason is on stderr"
    [(units, files)] = bench.files.kept
    assert units == [3, 4, 5]
    assert set(files) == {f"logs/{unit}{end}" for unit in units for end in ("", ".streams")}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("echo progress; echo first >&2; echo 'bad value 7' >&2; echo last; exit 3", "exit code 3: bad value 7"),
        ("echo only stdout; echo; exit 3", "exit code 3: only stdout"),
        ("exit 3", "exit code 3"),
    ],
)
def test_the_reason_of_a_failure_is_the_last_line_of_stderr_or_else_of_stdout(
    bench: Bench, text: str, error: str
) -> None:
    assert bench.fail(text, 0, 1)[2] == error


def test_the_end_of_stderr_is_found_before_much_output_of_stdout() -> None:
    recorder = Recorder(first=64, last=1 << 16)
    recorder(1, b"bad value 7\n")
    for _ in range(50):
        recorder(0, b"x" * 4096)
    assert recorder.tail() == "bad value 7\n"


def test_a_later_attempt_of_the_first_unit_waits_longer(bench: Bench) -> None:
    retries = {"max": 5, "initial_delay_seconds": 1, "factor": 3, "jitter": False}
    call = bench.fail(["false"], 7, 9, errors=2, retries=retries)
    assert (call[1], call[4], call[5]["attempt"]) == (7, 9000, 3)


@pytest.mark.parametrize(
    ("command", "more", "exit", "reason", "words"),
    [
        (["sleep", "60"], {"timeout_seconds": 0.2}, 137, "timeout", "timeout_seconds, 0.2"),
        (["/no/such"], {}, 127, "not started", "/no/such: No such file"),
        ("kill -SEGV $$", {}, 139, "", "SIGSEGV"),
        ("echo { > $CLUSTER_RESULT", {}, 0, "", "CLUSTER_RESULT"),
        ("echo NaN > $CLUSTER_RESULT", {}, 0, "", "is not valid JSON"),
        ("echo 1e999 > $CLUSTER_RESULT", {}, 0, "", "is not valid JSON"),
        ("printf '\"\\\\ud800\"' > $CLUSTER_RESULT", {}, 0, "", "is not valid JSON"),
        ("printf '\\377\\3761\\0' > $CLUSTER_RESULT", {}, 0, "", "is not valid JSON"),
        (
            "printf '%0150d' 0 | tr 0 '[' > $CLUSTER_RESULT; printf '%0150d' 0 | tr 0 ']' >> $CLUSTER_RESULT",
            {},
            0,
            "",
            "more than 100 levels",
        ),
    ],
)
def test_failures_say_why(bench: Bench, command: Any, more: dict[str, Any], exit: int, reason: str, words: str) -> None:
    row = bench.fail(command, **more)[5]
    assert (row["exit"], row["reason"]) == (exit, reason)
    assert words in row["error"]


def test_the_row_of_a_failure_is_short_whatever_the_program_wrote(bench: Bench) -> None:
    row = bench.fail("head -c 5000 /dev/zero; exit 1")[5]
    assert len(json.dumps(row, separators=(",", ":"))) <= 4096
    assert row["tail"]


def test_a_unit_sees_its_jobs_files_and_nothing_of_the_unit_before(bench: Bench) -> None:
    bench.files = Files({"in.txt": b"input", "sub/x.txt": b"x"})
    text = "ls -A; cat in.txt; echo changed > in.txt; touch left .left; rm -r sub"
    for unit in range(2):
        assert bench.run(text, unit, unit + 1, files="a" * 64)[0] == unit + 1
        assert bench.files.kept[unit][1][f"logs/{unit}"] == b"in.txt\nsub\ninput"


def test_outputs_and_long_values_are_kept_and_short_values_are_in_the_partial(bench: Bench) -> None:
    text = (
        "mkdir -p out; echo $CLUSTER_UNIT > out/a.txt; touch other; test $CLUSTER_UNIT = 0 && echo 5 > $CLUSTER_RESULT"
        " || (printf '\"'; head -c 3000 /dev/zero | tr '\\0' x; printf '\"') > $CLUSTER_RESULT"
    )
    _, run = bench.run(text, 0, 2, outputs=["out/*.txt"])
    assert run["values"] == [5, {"artifact": True}]
    [(_, files)] = bench.files.kept
    assert set(files) == {"outputs/0/out/a.txt", "outputs/1/out/a.txt", "values/1.json"}
    assert json.loads(files["values/1.json"]) == "x" * 3000


def test_what_cannot_be_kept_fails_the_first_unit_and_nothing_is_committed(bench: Bench) -> None:
    bench.files.rejects = "the tenant has no room"
    call = bench.fail("echo x > out", 0, 3, outputs=["out"])
    assert bench.leases.names == ["fail"]
    assert call[1] == 0 and "no room" in call[2]


def test_where_logs_cannot_be_kept_units_end_as_they_end(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.files.rejects = "ARTIFACT_URL is not set"
    assert bench.run("echo x", 0, 1)[0] == 1
    assert bench.fail("echo y; exit 4", 1, 2)[5]["exit"] == 4
    assert caplog.text.count("cannot store the logs of programs: ARTIFACT_URL is not set") == 1


def test_a_program_that_leaves_folders_too_deep_to_be_walked_leaves_none(bench: Bench) -> None:
    deep = "import os\nfor _ in range(1500):\n    os.mkdir('d'); os.chdir('d')"
    assert bench.run([sys.executable, "-c", deep])[0] == 1
    assert not list(bench.home.iterdir())


#: A fake Python that creates environments. It adds each package to a list, and one package cannot be installed.
PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho looking; grep bad "$6" && echo no bad anywhere && exit 1; exit 0' > "$3/bin/python"
printf '#!/bin/sh\\necho mine' > "$3/bin/tool"
chmod +x "$3/bin/python" "$3/bin/tool"
echo made >> "$HOME/../made"
"""


def test_an_environment_is_made_once_for_each_list_of_packages(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    bench.host.environments = Environments(bench.host.places.environments, 1 << 30, str(tmp_path / "python"))
    bench.files = Files({"good.txt": b"numpy\n", "bad.txt": b"bad\n", "huge.txt": b"#" * (LONGEST_LIST + 1)})
    good = {"files": "a" * 64, "python": {"requirements": "good.txt"}}
    for unit in range(2):
        assert bench.run(["tool"], unit, unit + 1, **good)[0] == unit + 1
        assert bench.files.kept[unit][1] == {f"logs/{unit}": b"mine\n"}
    row = bench.fail(["tool"], job="k", files="a" * 64, python={"requirements": "bad.txt"})[5]
    assert row["reason"] == "not started"
    assert row["error"].endswith("pip failed with exit code 1: no bad anywhere")
    assert row["tail"].startswith("looking")
    assert (bench.home.parent / "made").read_text() == "made\nmade\n"
    assert bench.fail(["tool"], job="l", python={"requirements": "none.txt"}, files="a" * 64)[5]["error"].endswith(
        "cannot read the list of packages: No such file or directory"
    )
    huge = bench.fail(["tool"], job="m", python={"requirements": "huge.txt"}, files="a" * 64)[5]
    assert huge["error"].endswith("the list of packages exceeds 1048576 bytes")


def made(bench: Bench, name: str, job: str) -> set[str]:
    """Run a program with the environment of a list, and return the lists with existing environments."""
    assert bench.run(["tool"], job=job, files=job * 64, python={"requirements": name})[0] == 1
    tools = bench.host.places.environments.glob("*/bin/tool")
    return {tool.read_text().partition("# ")[2].strip() for tool in tools}


def test_environments_that_were_unused_longest_go_and_none_that_is_in_use(bench: Bench, tmp_path: Path) -> None:
    script = '#!/bin/sh\nmkdir -p "$3/bin"\nprintf \'#!/bin/sh\\n# %s\' "$(cat $HOME/*.txt)" > "$3/bin/tool"\n'
    pip = 'printf "#!/bin/sh\\nexit 0" > "$3/bin/python"\nchmod +x "$3/bin/"*\n'
    (tmp_path / "python").write_text(script + pip)
    (tmp_path / "python").chmod(0o755)
    bench.host.environments = Environments(bench.host.places.environments, 60, str(tmp_path / "python"))
    for job, name in zip("abac", "abac", strict=True):
        bench.files = Files({f"{name}.txt": name.encode()})
        there = made(bench, f"{name}.txt", job)
    assert there == {"a", "c"}, "60 bytes hold two of them"
    run = {
        "home": tmp_path,
        "environment": {},
        "uid": None,
        "run": lambda order: ProgramEnd(code=0),
        "stopped": lambda: False,
    }
    for name in "de":
        (tmp_path / name).write_text(name)
    (bench.host.places.environments / "half").mkdir()
    first = bench.host.environments.take(tmp_path / "d", "default", **run)  # type: ignore[arg-type]
    (first / "large").write_bytes(b"x" * (100 << 10))
    again = Environments(bench.host.places.environments, 60)
    kept = again.take(tmp_path / "d", "default", **run)  # type: ignore[arg-type]
    assert kept == first
    (first.with_suffix(".ready")).write_text("")
    again.take(tmp_path / "e", "default", **run)  # type: ignore[arg-type]
    assert first.exists() and len(list(bench.host.places.environments.iterdir())) == 4, "the others are too much"
    again.give_back(kept)
    (tmp_path / "f").write_text("f")
    again.take(tmp_path / "f", "default", **run)  # type: ignore[arg-type]
    assert not first.exists()


def test_a_workspace_is_of_one_user_at_a_time() -> None:
    """Slots with their own users would otherwise take the workspace from a running program."""
    workspaces, key = Workspaces(), ("default", "w")
    assert workspaces.take(key, 61_000, lambda: False) and workspaces.take(key, 61_000, lambda: False)
    assert not workspaces.take(key, 61_001, lambda: True)
    assert workspaces.take(("other", "w"), 61_001, lambda: True)
    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(workspaces.take(key, 61_001, lambda: False)))
    waiting.start()
    for _ in range(2):
        assert not taken
        workspaces.give_back(key, 61_000)
    waiting.join(30)
    assert taken == [True]
    workspaces.give_back(key, 61_001)
    assert workspaces.take(key, None, lambda: True)


# -- stops ---------------------------------------------------------------------------------------------------------


def during(bench: Bench, task: Task, act: Callable[[], object]) -> tuple[int, Any]:
    """Run a lease and call a function when its program is running."""
    ended: list[Any] = []

    def run() -> None:
        try:
            computed, _ = bench.lane.compute(task)
            ended.append(computed.upto)
        except (LeaseEnded, LaneDied) as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until((bench.home / "ready").exists)
    started = time.monotonic()
    act()
    thread.join(90)
    assert not thread.is_alive()
    return ended[0], time.monotonic() - started


WAITS = "touch ready; sleep 60"


def test_a_cancelled_program_is_stopped_its_log_is_kept_and_its_unit_given_back(bench: Bench) -> None:
    task = bench.task("echo begun; touch ready; sleep 60", 4, 6)
    upto, seconds = during(bench, task, lambda: task.ask_to_stop(2))
    assert upto == 4 and seconds < 50
    assert not bench.leases.calls
    assert bench.files.kept == [([4], {"logs/4": b"begun\n"})]


def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(bench: Bench) -> None:
    task = bench.task("trap '' TERM; touch ready; while :; do sleep 1; done", grace_seconds=0.5)
    upto, seconds = during(bench, task, lambda: task.ask_to_stop(2))
    assert upto == 0 and 0.4 < seconds < 50


def test_a_pause_lets_the_unit_end_and_starts_no_other(bench: Bench) -> None:
    task = bench.task("touch ready; until test -e end; do sleep 0.05; done", 0, 5)

    def pause() -> None:
        task.ask_to_stop(1)
        (bench.home / "end").touch()

    upto, _ = during(bench, task, pause)
    assert upto == 1


def test_a_runner_that_ends_stops_its_programs_and_gives_their_units_back(bench: Bench) -> None:
    task = bench.task("trap 'exit 0' TERM; touch ready; sleep 60 & wait", 2, 5)
    upto, seconds = during(bench, task, lambda: setattr(bench, "stopping", True))
    assert upto == 2 and seconds < 50
    assert set(bench.leases.names) <= {"split"}, "others go on behind a program that was slow to start"


def test_a_program_whose_lease_nobody_keeps_is_suspended_until_somebody_does(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    task = bench.task("touch ready; while ! test -e end; do date +%N > tick; sleep 0.01; done", 0, 1, grace_seconds=2)

    def be_cut_off() -> None:
        until((bench.home / "tick").exists)
        task.kept_at = time.monotonic() - 27.5
        until(lambda: "suspending a program" in caplog.text)
        until(lambda: unchanged(bench.home / "tick"))
        task.kept_at = time.monotonic()
        until(lambda: not unchanged(bench.home / "tick"))
        (bench.home / "end").touch()

    assert during(bench, task, be_cut_off)[0] == 1


def unchanged(path: Path) -> bool:
    before = path.read_bytes()
    time.sleep(1.0)
    return path.read_bytes() == before


def test_a_suspended_program_whose_lease_is_lost_never_runs_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    task = bench.task("trap 'date > late' TERM; touch ready; while :; do sleep 0.05; date +%N > tick; done", 0, 1)

    def lose_it() -> None:
        until((bench.home / "tick").exists)
        task.kept_at = time.monotonic() - 60
        until(lambda: "suspending a program" in caplog.text)
        until(lambda: unchanged(bench.home / "tick"))
        task.ask_to_stop(2)

    assert during(bench, task, lose_it)[0] == 0
    assert not (bench.home / "late").exists()


def test_no_program_starts_under_a_lease_that_nobody_keeps(bench: Bench) -> None:
    task = bench.task("touch ready; sleep 1", 0, 1)
    task.kept_at = time.monotonic() - 60
    thread = threading.Thread(target=lambda: bench.lane.compute(task))
    thread.start()
    time.sleep(0.5)
    assert not (bench.home / "ready").exists()
    task.kept_at = time.monotonic()
    until((bench.home / "ready").exists)
    thread.join(60)
    assert not thread.is_alive()


def test_what_ended_before_nobody_answered_is_committed_when_somebody_does(bench: Bench) -> None:
    """The delay does not matter: no process is running, and a commit is rejected if others have the lease."""
    kept, tries = bench.files.keep, []
    task = bench.task("echo x", 0, 1)

    def keep(folder: Path, units: Sequence[int]) -> str:
        tries.append(units)
        task.kept_at = time.monotonic() - 60
        if len(tries) < 3:
            raise CoordinatorAway("it is away", 0.01)
        return kept(folder, units)

    bench.files.keep = keep  # type: ignore[method-assign]
    assert bench.lane.compute(task)[0].upto == 1


def test_a_grace_is_no_longer_than_the_lease(bench: Bench) -> None:
    """A job can be cancelled, or a runner stopped, while no coordinator has answered for some time."""
    task = bench.task("trap '' TERM; touch ready; while :; do sleep 0.1; done", grace_seconds=20)

    def cancel() -> None:
        task.kept_at = time.monotonic() - 26.5
        task.ask_to_stop(2)

    upto, seconds = during(bench, task, cancel)
    assert upto == 0 and seconds < 18


def test_the_units_behind_a_long_one_go_to_others_and_what_is_finished_is_committed(bench: Bench) -> None:
    text = "test $CLUSTER_UNIT = 0 || { touch ready; sleep 60; }"
    task = bench.task(text, 0, 9)

    def wait_for_help() -> None:
        deadline = time.monotonic() + 50
        while len(bench.leases.calls) < 2 and time.monotonic() < deadline:
            task.kept_at = time.monotonic()
            time.sleep(0.05)
        task.ask_to_stop(2)

    upto, _ = during(bench, task, wait_for_help)
    assert bench.leases.calls[0] == ("split", 2)
    assert bench.leases.calls[1][:4] == ("commit", 0, 1, True)
    assert (task.grant.lo, task.grant.hi, upto) == (1, 2, 1)


def test_a_guard_that_dies_gives_the_lease_back_as_crashed_but_for_what_is_finished(bench: Bench) -> None:
    text = "test $CLUSTER_UNIT = 0 || { touch ready; sleep 60; }"
    error, _ = during(bench, bench.task(text, 0, 3), lambda: os.kill(bench.slot.pid, 9))
    assert isinstance(error, LaneDied)
    assert bench.leases.names == ["commit"]
    assert bench.run(["true"])[0] == 1, "the next lease has another guard"


# -- faults of the host --------------------------------------------------------------------------------------------


def test_a_coordinator_that_is_away_is_until(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, tries = bench.files.keep, []

    def keep(folder: Path, units: Sequence[int]) -> str:
        tries.append(units)
        if len(tries) < 3:
            raise CoordinatorAway("it is away", 0.01)
        return kept(folder, units)

    monkeypatch.setattr(bench.files, "keep", keep)
    assert bench.run("echo x")[0] == 1
    assert len(tries) == 3 and len(bench.files.kept) == 1


def test_a_host_where_nothing_can_be_started_takes_itself_out_of_service(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.PROBE", ("/no/shell",))
    for number in range(4):
        bench.fail(["/no/such"], job=f"j{number % 3}")
    assert bench.lane.ready
    upto, _ = bench.run(["/no/such"], job="j4")
    assert upto == 0 and bench.leases.names == ["fail"] * 4, "the last one was given back, and not failed"
    assert not bench.lane.ready
    row = bench.host.row(1)
    assert "of 4 jobs could not be started" in str(row["cordoned"]) and row["state"] == "draining"


def test_commands_that_are_not_there_are_their_jobs_fault_while_others_start(bench: Bench) -> None:
    for number in range(8):
        bench.fail(["/no/such"], job=f"j{number}")
        bench.run(["true"], job="good")
    assert bench.lane.ready


def test_commands_that_are_not_there_are_their_jobs_fault_where_a_shell_starts(bench: Bench) -> None:
    for number in range(20):
        bench.fail(["/no/such"], job=f"j{number}")
    assert bench.lane.ready and not bench.host.row(0)["cordoned"]


def test_a_runner_with_replicas_alone_is_idle_and_is_not_drained_before_they_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.host.ledger, "replicas", lambda: 1)
    row = bench.host.row(1)
    assert (row["state"], row["busy_lanes"]) == ("idle", 0)
    assert "state" not in bench.host.row(2), "a program runs beside it"
    assert "state" not in bench.host.row(1, draining=True)
    bench.host.cordon = Cordon(bench.host.places.work, least_free=1 << 60)
    assert bench.host.row(1)["state"] == "draining"


def test_a_runner_reports_its_gpus_and_the_jobs_that_reserved_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "gpus" not in bench.host.row(0), "it has no GPU"
    mine, free = ({"uuid": uuid, "temperature_celsius": 61.0} for uuid in ("GPU-a", "GPU-b"))
    monkeypatch.setattr(bench.host.telemetry, "read", lambda: [mine, free])
    entry = SimpleNamespace(job="j1", is_endless=False, gpus=[SimpleNamespace(uuid="GPU-a")])
    monkeypatch.setattr(bench.host.ledger, "running", lambda: {"0": entry})
    monkeypatch.setattr(bench.host.ledger, "renew", list)
    assert json.loads(str(bench.host.row(1)["gpus"])) == [{**mine, "job": "j1"}, free]


def test_a_unit_that_its_host_fails_again_and_again_counts_as_tried(bench: Bench, tmp_path: Path) -> None:
    """Otherwise, a program that breaks its folder would be retried forever."""
    wreck = "rm -rf ../kept; touch ../kept; echo x"
    assert [bench.run(wreck)[0] for _ in range(2)] == [0, 0]
    assert "the unit failed 3 times in a row because of this host" in bench.fail(wreck)[2]
    assert bench.run("echo y", job="k")[0] == 1, "others go on"
    assert "this host" not in str(bench.leases.calls[1:])


def test_a_runner_whose_folders_a_program_removed_goes_on(bench: Bench) -> None:
    bench.files = Files({"data": b"12"})
    assert bench.run("rm -rf ../../../* || true", files="a" * 64)[0] in (0, 1)
    assert bench.host.cordon.why() == "" or "cannot be looked at" in bench.host.cordon.why()
    assert bench.run("cat data", job="k", files="a" * 64, workspace="w")[0] == 1
    assert not bench.host.cordon.why()


def test_a_disk_without_room_takes_a_runner_out_of_service_until_there_is_some(tmp_path: Path) -> None:
    assert "MiB are free" in Cordon(tmp_path, least_free=1 << 62).why()
    assert not Cordon(tmp_path, least_free=1).why()


# -- records -------------------------------------------------------------------------------------------------------


def test_a_record_tells_stderr_apart_also_where_the_middle_was_dropped() -> None:
    recorder = Recorder(first=10, last=20)
    for _ in range(10):
        recorder(0, b"ooooo")
        recorder(1, b"eeeee")
    start, pieces = recorder.since(0, 7)
    assert (start, pieces) == (0, [("o", b"ooooo"), ("e", b"ee")])
    start, pieces = recorder.since(50, 100)
    assert start == 80 and pieces == [("o", b"ooooo"), ("e", b"eeeee")] * 2
    assert recorder.since(100, 10) == (100, [])


def test_ranges_of_stderr_are_places_in_the_log_that_is_kept(tmp_path: Path) -> None:
    recorder = Recorder(first=10, last=20)
    for _ in range(10):
        recorder(0, b"ooooo")
        recorder(1, b"eeeee")
    recorder.write(tmp_path, 7)
    log = (tmp_path / "7").read_bytes()
    ranges = json.loads((tmp_path / "7.streams").read_text())
    assert len(ranges) == 3
    assert all(log[start : start + size] == b"eeeee" for start, size in ranges)


def test_a_follower_gets_what_is_there_and_then_what_comes(bench: Bench) -> None:
    recorder = Recorder()
    line = Line("j", 3, 1, recorder, bench.files)
    recorder(0, b"before")
    Live.send(line)
    Live.send(line)
    recorder(1, b"after")
    Live.send(line)
    assert bench.files.sent == [(3, 0, [("o", b"before")]), (3, 6, [("e", b"after")])]


def test_a_later_follower_gets_the_output_from_its_start(bench: Bench) -> None:
    live, recorder = Live(), Recorder()
    recorder(0, b"text")
    line = Line("j", 3, 1, recorder, bench.files, sent=4)
    live.add(line)
    live.follow(["j"])
    until(lambda: bool(bench.files.sent))
    live.follow([])
    assert bench.files.sent[0] == (3, 0, [("o", b"text")])


def test_only_units_of_jobs_that_somebody_follows_are_sent(bench: Bench) -> None:
    live, recorder = Live(), Recorder()
    recorder(0, b"text")
    for job in ("j", "other"):
        live.add(Line(job, 3, 1, recorder, bench.files))
    live.follow(["j"])
    until(lambda: bool(bench.files.sent))
    live.follow([])
    assert [offset for _, offset, _ in bench.files.sent] == [0]

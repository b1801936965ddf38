"""Tests programs that stay alive between units: their answers, their ends, and who may share one."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.errors import InvalidRequest
from jobs.kinds.command.definition import KIND
from jobs.worker.lanes import LaneDied, LeaseEnded
from runner.files.folders import BadValue
from runner.files.inputs import ITEMS_FILE
from runner.files.working_directory import Workplace
from runner.programs import kept
from runner.programs.kept import KeptPrograms, Limits
from tests.integration.live import until
from tests.unit.test_runner_leases import Bench, Files

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guards need Linux")

#: Program that does what a unit's item says, and answers with its PID unless the item says something else.
PROGRAM = """
import json, os, pathlib, signal, socket, sys, time
ours, seen = socket.socket(fileno=0), 0
for line in ours.makefile():
    unit, seen = json.loads(line), seen + 1
    item = unit.get("item")
    answer = {"value": os.getpid()}
    if item == "exit": os._exit(3)
    if item == "leave": sys.exit()
    if item == "close": os.close(0); time.sleep(60)
    if item == "wait": pathlib.Path("ready").touch(); time.sleep(60)
    if item == "print": print("unit", unit["unit"])
    if item == "raise": print("why", file=sys.stderr); answer = {"error": "ValueError: no", "value": [1, 2]}
    if item == "raise long": answer = {"error": "no", "value": "x" * 5000}
    if item == "long": answer = {"value": "x" * 100_000}
    if item == "longest": answer = {"value": "x" * 1_040_000}
    if item == "endless": ours.sendall(b"x" * (2 << 20))
    if item == "text": ours.sendall(b"not JSON\\n"); continue
    if item == "list": ours.sendall(b"[1]\\n"); continue
    if item == "twice": ours.sendall(b"{}\\n{}\\n"); continue
    if item == "unit": answer = {"value": unit}
    if item == "env": answer = {"value": dict(os.environ)}
    if isinstance(item, dict):
        for name in item["write"]: pathlib.Path(name).write_text(name)
        answer = {"files": item["files"]}
    if item == "memory": kept = b"x" * (200 << 20)
    if item == "grow": kept = b"x" * (50 << 20)
    ours.sendall(json.dumps(answer).encode() + b"\\n")
"""
COMMAND: list[Any] = [sys.executable, "-c", {"literal": PROGRAM}]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.lane.close()


def values(bench: Bench, *items: Any, **more: Any) -> list[Any]:
    """Run a job with these items, and return its values."""
    upto, run = bench.run(COMMAND, 0, len(items), items=list(items), persistent=True, **more)
    assert upto == len(items)
    return list(run.get("values", ()))


def failure(bench: Bench, *items: Any, **more: Any) -> dict[str, Any]:
    """Run a job whose last unit fails, and return the record of the failure."""
    call = bench.fail(COMMAND, 0, len(items), items=list(items), persistent=True, **more)
    row: dict[str, Any] = call[-1]
    return row


#: Program that answers with what the descriptors contain that it receives with a unit, and cannot write to them.
READER = """
import json, os, socket
ours = socket.socket(fileno=0)
while True:
    line, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, 300)
    if not line: break
    contents = [os.read(each, 100).decode() for each in descriptors]
    for each in descriptors:
        try: os.write(each, b"x"); contents.append("written")
        except OSError: os.close(each)
    ours.sendall(json.dumps({"value": contents}).encode() + b"\\n")
"""


def run_with_files(bench: Bench, *named: Any, **files: bytes) -> dict[str, Any]:
    """Run a job whose items name these files of their artifact, and return the run of its partial."""
    lines = "".join(json.dumps({"files": names}) + "\n" for names in named).encode()
    bench.files = Files({ITEMS_FILE: lines, **files})
    command = [sys.executable, "-c", {"literal": READER}]
    more: dict[str, Any] = {"count": len(named), "items_artifact": "a" * 64, "persistent": True}
    try:
        computed, encoded = bench.lane.compute(bench.task(command, 0, len(named), **more))
    finally:
        bench.host.inputs.items("j", bench.files).close()
    assert computed.upto == len(named)
    run: dict[str, Any] = json.loads(encoded)["runs"][0]
    return run


def test_a_unit_receives_the_files_that_its_item_names(bench: Bench) -> None:
    run = run_with_files(bench, ["b", "a"], [], ["a"], a=b"one", b=b"two")
    assert run["values"] == [["two", "one"], [], ["one"]]
    opened = [path.resolve().name for path in Path("/proc/self/fd").iterdir()]
    assert not set(opened) & {hashlib.sha256(data).hexdigest() for data in (b"one", b"two")}


def test_a_file_that_an_item_names_must_exist(bench: Bench) -> None:
    with pytest.raises(LeaseEnded):
        run_with_files(bench, ["c"], a=b"one")
    assert "the artifact of items does not contain the file c" in str(bench.leases.calls[-1])


#: Program that answers with the results that it receives with a unit, and the contents of their files.
MERGER = """
import json, os, socket
ours, data, descriptors = socket.socket(fileno=0), b"", []
while True:
    piece, received, _, _ = socket.recv_fds(ours, 1 << 16, 253)
    if not piece: break
    data, descriptors = data + piece, descriptors + received
    if data.endswith(b"\\n"):
        contents = [os.read(each, 100).decode() for each in descriptors]
        for each in descriptors: os.close(each)
        results = json.loads(data).get("results")
        answer = {"value": [len(results), len(contents)] if len(contents) > 10 else [results, contents]}
        ours.sendall(json.dumps(answer).encode() + b"\\n")
        data, descriptors = b"", []
"""


def result(value: Any, **files: bytes) -> dict[str, Any]:
    """Return a result as a coordinator describes it. A slash in a path is written as two underscores."""
    listed = [
        [path.replace("__", "/"), len(data), hashlib.sha256(data).hexdigest()] for path, data in sorted(files.items())
    ]
    return {"value": value, "files": listed}


def merge(bench: Bench, parents: list[dict[str, Any]], *items: Any) -> list[Any]:
    """Run units that depend on units of a job with these results, and return their values."""
    bench.files.parents = {"a": parents}
    command = [sys.executable, "-c", {"literal": MERGER}]
    upto, run = bench.run(command, 0, len(items), items=list(items), persistent=True)
    assert upto == len(items)
    return list(run["values"])


def test_a_unit_receives_the_results_of_the_units_that_its_item_names(bench: Bench) -> None:
    one, two, text = b"one", b"two", b'{"of": "a file"}'
    bench.files = Files({"one": one, "two": two, "text": text})
    parents = [
        result(7),
        result(["x"], outputs__1__x=one, outputs__1__y=two),
        result({"artifact": True}, outputs__2__x=two, values__2=text),
    ]
    item = {"units": [["a", 1], ["a", 0], ["a", 2], ["a", 1]]}
    first, second, third = merge(bench, parents, item, {"units": []}, "text")
    files = {"value": ["x"], "files": ["x", "y"]}
    listed = [files, {"value": 7, "files": []}, {"value": {"of": "a file"}, "files": ["x"]}, files]
    assert first == [listed, ["one", "two", "two", "one", "two"]]
    assert second == third == [None, []]
    assert len(bench.files.fetched) == 3, "a file that is needed twice is fetched once"
    assert bench.files.fetched[0] == ("a:1", "outputs/1/x")


def test_a_unit_receives_more_files_than_linux_sends_at_once(bench: Bench) -> None:
    bench.files = Files({"x": b"x"})
    parents = [result(number, **{f"outputs__{number}__x": b"x"}) for number in range(501)]
    assert merge(bench, parents, {"units": [["a", number] for number in range(500)]}) == [[500, 500]]
    with pytest.raises(LeaseEnded):
        merge(bench, parents, {"units": [["a", number] for number in range(501)]})
    assert "more than 500 files" in str(bench.leases.calls[-1])


@pytest.mark.parametrize("units", [7, [["a"]], [["a", "x"]]])
def test_invalid_units_of_an_item_fail_the_unit(bench: Bench, units: Any) -> None:
    with pytest.raises(LeaseEnded):
        merge(bench, [result(1)], {"units": units})
    assert "the item's units must be a list" in str(bench.leases.calls[-1])


def test_a_result_that_cannot_be_read_fails_the_unit_before_it_starts(bench: Bench) -> None:
    bench.files.rejects = "units: job a was deleted, with its results"
    with pytest.raises(LeaseEnded):
        merge(bench, [], {"units": [["a", 0]]})
    row = bench.leases.calls[-1][-1]
    assert row["reason"] == "not started" and "job a was deleted" in row["error"]


def test_one_program_runs_the_units_of_several_jobs(bench: Bench) -> None:
    pids = values(bench, 1, 2, 3) + values(bench, 1, job="j2") + values(bench, 1, job="j3", timeout_seconds=50)
    assert len(set(pids)) == 1
    bench.lane.close()
    assert not Path(f"/proc/{pids[0]}").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"env": {"A": "2"}},
        {"secrets": ["PASSWORD"]},
        {"requirements": {"memory_mib": 300}},
        {"files": "a" * 64},
        {"user": "another"},
    ],
)
def test_a_job_with_other_settings_has_another_program(bench: Bench, more: dict[str, Any]) -> None:
    [first], [second] = values(bench, 1), values(bench, 1, job="j2", **more)
    assert first != second
    assert not Path(f"/proc/{first}").exists()


def test_programs_of_other_tenants_are_ended(bench: Bench) -> None:
    [pid] = values(bench, 1)
    bench.host.kept.end_of_others("default")
    assert Path(f"/proc/{pid}").exists()
    bench.host.kept.end_of_others("other")
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_reads_its_unit_and_its_job_s_input_once(bench: Bench) -> None:
    first, second = values(bench, "unit", "unit", input="hello", job="j2", errors=1)
    assert first == {"job": "j2", "unit": 0, "attempt": 2, "item": "unit", "input": "hello"}
    assert second == {"job": "j2", "unit": 1, "attempt": 1, "item": "unit"}
    [again] = values(bench, "unit", input="hello", job="j3")
    assert again["input"] == "hello"


def test_variables_of_a_unit_are_not_in_the_environment(bench: Bench) -> None:
    [found] = values(bench, "env", env={"MINE": "x"})
    assert found["MINE"] == "x" and not {name for name in found if name.startswith("CLUSTER_")}


def test_each_unit_has_its_own_output(bench: Bench) -> None:
    values(bench, "print", 1, "print")
    assert bench.files.kept == [([0, 1, 2], {"logs/0": b"unit 0\n", "logs/2": b"unit 2\n"})]


def test_a_unit_that_reports_an_error_fails_and_its_program_goes_on(bench: Bench) -> None:
    [before] = values(bench, 1)
    row = failure(bench, "raise", job="j2")
    assert (row["error"], row["reason"], row["exit"], row["tail"]) == ("ValueError: no", "error", 1, "why\n")
    assert row["value"] == [1, 2]
    assert bench.files.kept[-1] == ([0], {"logs/0": b"why\n", "logs/0.streams": b"[[0,4]]"})
    assert values(bench, 1, job="j3") == [before]


def test_a_long_value_of_an_error_is_kept_as_a_file(bench: Bench) -> None:
    assert "value" not in failure(bench, "raise long")
    assert bench.files.kept == [([0], {"values/0.json": b'"' + b"x" * 5000 + b'"'})]


def test_a_long_value_is_kept_as_a_file(bench: Bench) -> None:
    assert values(bench, "long") == [{"artifact": True}]
    assert bench.files.kept == [([0], {"values/0.json": b'"' + b"x" * 100_000 + b'"'})]


def test_files_that_an_answer_names_are_kept(bench: Bench) -> None:
    values(bench, {"write": ["a", "b"], "files": ["b"]}, {"write": ["c"], "files": ["c", "a"]})
    assert bench.files.kept == [([0, 1], {"outputs/0/b": b"b", "outputs/1/c": b"c", "outputs/1/a": b"a"})]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosuch", "'nosuch' does not exist"),
        ("/etc/passwd", "must be in the working directory"),
        ("../../x", "must be in the working directory"),
        (".", "not a regular file"),
        (7, "not a list of paths"),
    ],
)
def test_an_answer_cannot_name_other_files(bench: Bench, name: Any, words: str) -> None:
    assert words in failure(bench, {"write": [], "files": [name]})["error"]


def test_an_answer_cannot_name_a_file_behind_a_link(bench: Bench) -> None:
    values(bench, 1)
    (bench.home / "link").symlink_to("/etc")
    (bench.home / "direct").symlink_to("/etc/passwd")
    for name in ("link/passwd", "direct"):
        assert "not a regular file" in failure(bench, {"write": [], "files": [name]}, job=name[0])["error"]


def test_waiting_programs_leave_memory_to_jobs_that_require_it(bench: Bench) -> None:
    [pid] = values(bench, 1)
    facts = bench.task(["true"], requirements={"memory_mib": 999}).facts
    ledger, programs = bench.host.ledger, bench.host.kept
    assert ledger.take(bench.lane, facts)
    programs.end_until(lambda used: used <= ledger.unreserved_memory_bytes(), excluded=bench.lane.name)
    programs.end_until(lambda used: used <= ledger.unreserved_memory_bytes(excluded=bench.lane.name))
    assert Path(f"/proc/{pid}").exists()
    programs.end_until(lambda used: used <= ledger.unreserved_memory_bytes())
    assert not Path(f"/proc/{pid}").exists(), "an interpreter needs more than 1 MiB"
    ledger.give_back(bench.lane)


def test_a_program_does_not_wait_in_memory_that_another_job_has_reserved(bench: Bench) -> None:
    other: Any = SimpleNamespace(name="1")
    assert bench.host.ledger.take(other, bench.task(["true"], requirements={"memory_mib": 999}).facts)
    [pid] = values(bench, 1)
    bench.host.ledger.give_back(bench.lane)
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_with_gpus_waits_while_its_lane_has_reserved_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = SimpleNamespace(uuid="GPU-1")
    monkeypatch.setattr(bench.host.ledger, "gpus", lambda lane: (gpu,))
    [pid] = values(bench, 1)
    assert values(bench, 2, job="j2") == [pid]
    bench.host.ledger.give_back(bench.lane)
    assert not Path(f"/proc/{pid}").exists()


def test_a_slot_is_preferred_if_its_waiting_program_can_run_the_job(bench: Bench) -> None:
    values(bench, 1)
    same, other = (bench.task(command, persistent=True).facts for command in (COMMAND, ["true"]))
    assert bench.host.ledger.prefers(bench.lane, same) and not bench.host.ledger.prefers(bench.lane, other)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("exit", "exit code 3"),
        ("leave", "exited with exit code 0 before it answered"),
        ("text", "the program's answer is invalid"),
        ("list", "must be a JSON object, not list"),
        ("twice", "more than once"),
        ("endless", "the program's answer exceeds"),
        ("close", "closed its stdin"),
    ],
)
def test_a_unit_whose_program_ends_or_answers_nonsense_fails_alone(bench: Bench, item: str, words: str) -> None:
    row = failure(bench, 1, item)
    assert words in row["error"] and row["unit"] == 1
    assert bench.leases.names[-2:] == ["commit", "fail"], "the unit before is finished"
    [pid] = values(bench, 1, job="j2")
    assert pid


def test_a_value_beyond_the_limit_fails_its_unit(bench: Bench) -> None:
    assert values(bench, "longest") == [{"artifact": True}]


def test_a_unit_that_runs_too_long_is_killed_with_its_program(bench: Bench) -> None:
    row = failure(bench, "wait", timeout_seconds=0.5)
    assert row["reason"] == "timeout" and "timeout_seconds, 0.5" in row["error"]
    assert values(bench, 1, job="j2")


def test_a_unit_that_uses_too_much_memory_is_killed_with_its_program(bench: Bench) -> None:
    row = failure(bench, "memory", "wait", requirements={"memory_mib": 100}, timeout_seconds=50)
    assert row["reason"] == "memory"


def test_a_cancelled_unit_ends_its_program(bench: Bench) -> None:
    task = bench.task(COMMAND, 0, 1, items=["wait"], persistent=True, grace_seconds=0.1)
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(bench.lane.compute(task)[0].upto))
    thread.start()
    until((bench.home / "ready").exists)
    task.ask_to_stop(2)
    thread.join(60)
    assert done == [0] and not bench.leases.calls
    assert values(bench, 1, job="j2")


def test_a_dead_guard_costs_the_lease_and_the_next_program_starts(bench: Bench) -> None:
    [pid] = values(bench, 1)
    os.kill(bench.slot.pid, 9)
    until(lambda: not Path(f"/proc/{pid}").exists())
    try:
        [other] = values(bench, 1, job="j2")
    except LaneDied:
        [other] = values(bench, 1, job="j2")
    assert other != pid


def test_the_next_unit_runs_while_a_result_is_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Workplace.keep

    def keep_late(place: Workplace, unit: int, *more: Any) -> None:
        if unit == 0:
            until((bench.home / "second").exists)
        keep(place, unit, *more)

    monkeypatch.setattr(Workplace, "keep", keep_late)
    pid, second, third = values(bench, "print", {"write": ["second"], "files": []}, 1)
    assert second is None and pid == third
    assert bench.files.kept == [([0, 1, 2], {"logs/0": b"unit 0\n"})]


def test_a_program_that_runs_a_unit_too_early_is_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease ends with an error of the first unit, and the second unit runs again in another program."""

    def fail(*_: Any) -> None:
        raise BadValue("no")

    [pid] = values(bench, 1)
    monkeypatch.setattr(Workplace, "keep", fail)
    with pytest.raises(BadValue):
        values(bench, 1, 1, job="j2")
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_without_units_is_ended(bench: Bench) -> None:
    bench.host.kept = KeptPrograms(Limits(idle_seconds=0.1))
    [pid] = values(bench, 1)
    until(lambda: not Path(f"/proc/{pid}").exists())
    until(lambda: not bench.home.exists())
    assert values(bench, 1, job="j2") != [pid]


def test_another_program_in_the_slot_ends_the_one_that_waits(bench: Bench) -> None:
    [pid] = values(bench, 1)
    assert bench.run(["true"], job="j2")[0] == 1
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_is_replaced_after_its_number_of_units(bench: Bench) -> None:
    bench.host.kept = KeptPrograms(Limits(units=3))
    upto, run = bench.run(COMMAND, 0, 5, items=[1] * 5, persistent=True)
    assert (upto, len(set(run["values"]))) == (3, 1), "the lease ends early, so that the next one starts a program"
    [first, again] = values(bench, 1, job="j2") + values(bench, 1, job="j3")
    assert first == again != run["values"][0]


def test_a_program_that_has_grown_is_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LOOK_SECONDS", 0.0)
    bench.host.kept = KeptPrograms(Limits(growth_bytes=30 << 20))
    items: list[Any] = [1, 1, "grow", 1]
    upto, run = bench.run(COMMAND, 0, 4, items=items, persistent=True)
    assert (upto, len(set(run["values"]))) == (3, 1)
    assert run["values"][0] not in values(bench, 1, job="j2")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"command": ["echo", "{unit}"], "persistent": True}, "{unit} is not replaced"),
        ({"command": ["x"], "persistent": True, "outputs": ["a"]}, "parameters.outputs"),
        ({"command": ["x"], "persistent": True, "workspace": "w"}, "parameters.workspace"),
        ({"command": ["x"], "input": "a"}, "requires persistent"),
        ({"command": ["x"], "persistent": True, "input": "a\0"}, "the input"),
    ],
)
def test_what_a_persistent_program_cannot_have_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words.replace("{", r"\{").replace(".", r"\.")) as raised:
        KIND.plan(KIND.parameters(**more))
    assert isinstance(raised.value, InvalidRequest | ValueError)

"""Tests that `cluster verify-certificate` recomputes blocks of a search, and names the block of a forgery."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.kinds import registry
from jobs.models import Device
from jobs.worker import certificates
from tests.unit.command_runs import Run, runner
from threads_cluster import errors, settings
from threads_cluster.cli.commands import certificates as command

Json = dict[str, Any]
BITS = 20


@pytest.fixture(scope="module")
def result() -> Json:
    kind = registry.definition("collatz")
    plan = kind.plan(kind.parameters(mode="frontier", bits=BITS))
    spec = dict(plan.spec)
    _, partial = registry.kernel("collatz", Device.CPU).run(spec, 0, plan.total, lambda _: True)
    # Results are read from JSON.
    found: Json = json.loads(json.dumps(kind.result(spec, partial)))
    return found


@pytest.fixture
def forged(result: Json) -> Json:
    return copy.deepcopy(result)


def verify(result: Json, **chosen: Any) -> list[Json]:
    return list(certificates.verify({"result": result, **chosen}, threads=1))


def matching(lines: list[Json]) -> list[int]:
    return [line["matches"] for line in lines if "matches" in line]


def set_totals(result: Json) -> None:
    """Let the totals follow from the blocks, as a careful forger does."""
    rows = result["certificate"]
    result["survivors"] = sum(row[1] for row in rows)
    result["block_steps"] = sum(row[2] for row in rows)
    result["checksum"] = str(sum(int(row[3]) for row in rows) % 2**64)


def change_count(rows: list[list[Any]]) -> None:
    rows[20][1] += 1


def change_passes(rows: list[list[Any]]) -> None:
    rows[20][2] -= 1


def swap_checksums(rows: list[list[Any]]) -> None:
    rows[20][3], rows[30][3] = rows[30][3], rows[20][3]


FORGERIES = [(change_count, "survivors"), (change_passes, "passes"), (swap_checksums, "checksum")]


def test_all_blocks_of_a_result_match(result: Json) -> None:
    lines = verify(result)
    blocks = [row[0] for row in result["certificate"]]
    assert lines[0] == {"bits": BITS, "chosen": blocks, "of": len(blocks)}
    assert matching(lines) == blocks


@pytest.mark.parametrize(("forge", "name"), FORGERIES)
@pytest.mark.parametrize("is_careful", [False, True])
def test_recomputing_all_blocks_names_a_forged_one(
    forged: Json, forge: Callable[[Any], None], name: str, is_careful: bool
) -> None:
    forge(forged["certificate"])
    if is_careful:
        set_totals(forged)
    block = forged["certificate"][20][0]
    with pytest.raises(certificates.Refused, match=f"^block {block} is wrong: {name} is "):
        verify(forged)


@pytest.mark.parametrize(("forge", "name"), FORGERIES)
def test_a_named_block_is_recomputed(forged: Json, forge: Callable[[Any], None], name: str) -> None:
    forge(forged["certificate"])
    set_totals(forged)
    first, block = forged["certificate"][0][0], forged["certificate"][20][0]
    assert matching(verify(forged, blocks=[first])) == [first]
    with pytest.raises(certificates.Refused, match=f"^block {block} is wrong: {name} is "):
        verify(forged, blocks=[first, block])


def test_a_missing_block_is_named_without_recomputation(forged: Json) -> None:
    block = forged["certificate"].pop(20)[0]
    set_totals(forged)
    with pytest.raises(certificates.Refused, match=f"^block {block} is missing$"):
        next(certificates.verify({"result": forged, "sample": 1}, threads=1))


def test_a_block_that_is_listed_twice_is_refused(forged: Json) -> None:
    row = forged["certificate"][20]
    forged["certificate"].insert(20, row)
    with pytest.raises(certificates.Refused, match=f"^block {row[0]} is listed twice"):
        verify(forged, sample=1)


@pytest.mark.parametrize("name", ["survivors", "block_steps", "checksum", "statement", "verified", "bits"])
def test_totals_that_do_not_follow_from_the_blocks_are_refused(forged: Json, name: str) -> None:
    forged[name] = {"verified": False, "bits": BITS + 1}.get(name, 0)
    with pytest.raises(certificates.Refused, match="is missing" if name == "bits" else name):
        verify(forged, sample=1)


@pytest.mark.parametrize("change", [-1, 1])
def test_the_largest_value_is_recomputed(forged: Json, change: int) -> None:
    forged["largest_bits"] += change
    with pytest.raises(certificates.Refused, match="largest_bits"):
        verify(forged)


@pytest.mark.parametrize("other", [{}, [], None, {"bits": 20, "certificate": [[]], "largest_bits": 1}, {"bits": 5}])
def test_another_result_is_refused(other: Any) -> None:
    with pytest.raises(certificates.Refused, match=r"not a result of kind collatz, mode frontier|bits must"):
        verify(other)


def test_a_sample_is_random_and_has_no_block_twice(result: Json) -> None:
    several = [next(certificates.verify({"result": result, "sample": 9}, threads=1))["chosen"] for _ in range(3)]
    assert all(len(set(each)) == 9 for each in several)
    assert len(set(map(tuple, several))) == 3


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command. The program that recomputes blocks runs in this process."""

    def ask(question: Json, device: str) -> Any:
        assert device == "cpu"
        out = io.StringIO()
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(question)))
        monkeypatch.setattr(certificates, "write", lambda line: out.write(json.dumps(line) + "\n"))
        monkeypatch.setattr("jobs.worker.certificates.signal.signal", lambda *_: None)
        monkeypatch.setattr(certificates, "use_cpu_level", lambda _: "")
        assert certificates.main() == 0
        return map(json.loads, out.getvalue().splitlines())

    monkeypatch.setattr(command, "recompute", ask)
    return runner(capsys, "verify-certificate")


@pytest.fixture
def file(result: Json, tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"job_id": "j1", "result": result}))
    return path


def test_the_command_states_the_probability_of_a_sample(run: Run, file: Path, result: Json) -> None:
    total = len(result["certificate"])
    code, out, _ = run(file, "--sample", 9)
    assert (code, out) == (
        0,
        f"9 of {total:,} blocks match\na sample of this size finds one forged block with probability {9 / total:.2%}\n",
    )
    code, out, _ = run(file, "--json")
    found = json.loads(out)
    assert len(found.pop("matching")) == 40
    assert found == {"bits": BITS, "of": total, "probability": 40 / total}


def test_the_command_verifies_named_blocks_and_all_blocks(run: Run, file: Path, result: Json) -> None:
    total, block = len(result["certificate"]), result["certificate"][3][0]
    assert run(file, "--block", block) == (0, f"1 of {total:,} blocks match\n", "")
    statement = f"every number from 1 to 2^{BITS} - 1 reaches 1"
    assert run(file, "--all") == (0, f"{total:,} of {total:,} blocks match\n{statement}\n", "")


def test_the_command_refuses_a_forgery(run: Run, file: Path, forged: Json) -> None:
    change_count(forged["certificate"])
    file.write_text(json.dumps(forged))
    code, out, err = run(file, "--all")
    assert (code, out) == (errors.ALTERED, "")
    assert f"{file}: block {forged['certificate'][20][0]} is wrong: survivors is" in err
    code, out, err = run(file, "--sample", 1)
    assert (code, out) == (errors.ALTERED, "")
    assert f"cluster verify-certificate {file} --all" in err


def test_the_command_refuses_wrong_usage(run: Run, file: Path, tmp_path: Path) -> None:
    assert "choose one of" in run(file, "--all", "--sample", 3)[2]
    assert run(tmp_path / "none.json")[0] == errors.REFUSED
    code, _, err = run(file, "--block", 4096)
    assert code == errors.REFUSED and "block 4096 does not exist" in err
    file.write_text("text")
    code, _, err = run(file)
    assert code == errors.REFUSED and "is not JSON" in err


def test_the_command_needs_packages_to_compute_with(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    code, _, err = runner(capsys, "verify-certificate")(file)
    assert code == errors.REFUSED and "no packages to compute with" in err


def test_the_program_runs_with_the_packages_of_the_checkout(forged: Json) -> None:
    block = forged["certificate"].pop(20)[0]
    assert list(command.recompute({"result": forged, "sample": 1})) == [{"refused": f"block {block} is missing"}]


def test_a_program_that_ends_early_is_reported(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_TYPE", "runner")
    code, out, err = runner(capsys, "verify-certificate")(file)
    assert (code, out) == (errors.FAULT, "")
    assert "failed with exit code 2" in err

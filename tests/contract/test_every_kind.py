"""Tests the contract of kinds for every kind; `test_gpu_every_kind.py` tests GPU kernels."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from coordinator.jobs import scheduler
from jobs import errors
from jobs.kinds import registry
from jobs.models import Device
from tests.contract import every_kind

KINDS = registry.names()
#: Kinds whose units runners execute, and which have no kernel.
OF_RUNNERS = [kind for kind in KINDS if registry.program_kind(kind)]
ON_CPU = [kind for kind in KINDS if Device.CPU in every_kind.plan(kind).devices]
FOLDER = Path(registry.__file__).parent


def _readme(kind: str) -> str:
    path = FOLDER / kind / "README.md"
    return path.read_text() if path.exists() else ""


def test_there_are_kinds() -> None:
    assert {"collatz", "command", "thread"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_summary_is_a_sentence(kind: str) -> None:
    assert re.fullmatch(r"[A-Z0-9].*\.", registry.definition(kind).summary)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_plans_to_json_that_a_lease_can_carry(kind: str) -> None:
    plan = every_kind.plan(kind)
    assert 1 <= plan.total <= 2**53
    assert plan.grain >= 1
    assert 0 <= plan.offset < plan.grain
    assert json.loads(json.dumps(plan.spec)) == plan.spec
    assert len(json.dumps(plan.spec)) < 64 * 1024
    assert json.loads(json.dumps(plan.parameters)) == plan.parameters


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_parameters_submit_the_same_job_again(kind: str) -> None:
    definition, plan = registry.definition(kind), every_kind.plan(kind)
    again = definition.plan(definition.parameters.model_validate(plan.parameters))
    assert again.spec == plan.spec


@pytest.mark.parametrize("kind", ON_CPU)
def test_kernel_equals_reference(kind: str) -> None:
    every_kind.kernel_equals_reference(kind, Device.CPU, every_kind.plan(kind))


@pytest.mark.parametrize("kind", ON_CPU)
def test_any_cut_in_any_order_gives_the_same_result(kind: str) -> None:
    every_kind.any_cut_merges_to_the_whole(kind, Device.CPU, every_kind.plan(kind))


@pytest.mark.parametrize("kind", ON_CPU)
def test_a_stop_keeps_what_was_computed(kind: str) -> None:
    every_kind.a_stop_keeps_what_was_computed(kind, Device.CPU, every_kind.plan(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_parameters_are_errors(kind: str) -> None:
    with pytest.raises(ValueError, match="no_such_thing"):
        registry.definition(kind).parameters.model_validate({"no_such_thing": 1})


@pytest.mark.parametrize("kind", [kind for kind in ON_CPU if registry.definition(kind).result_schema])
def test_results_are_as_their_schema_says(kind: str) -> None:
    """Check the result of the example, and the partial result of its first half."""
    definition, plan = registry.definition(kind), every_kind.plan(kind)
    assert "$ref" not in json.dumps(definition.result_schema)
    schema = jsonschema_rs.validator_for(dict(definition.result_schema or {}))
    for units in {plan.total, (plan.total + 1) // 2}:
        schema.validate(
            every_kind.through_json(definition.result(plan.spec, every_kind.computed(kind, Device.CPU, plan, 0, units)))
        )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (FOLDER / kind).is_dir()])
def test_a_kind_brings_its_readme_and_published_answers(kind: str) -> None:
    assert len((FOLDER / kind / "README.md").read_text()) > 500
    assert json.loads((FOLDER / kind / "golden.json").read_text())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "## Files" in _readme(kind)])
def test_the_map_of_files_names_each(kind: str) -> None:
    """A README with a section `Files` names exactly the files of the kind."""
    section = _readme(kind).partition("## Files")[2].partition("\n## ")[0]
    files = {path.name for path in (FOLDER / kind).iterdir() if path.is_file() and path.suffix != ".md"} - {
        "__init__.py"
    }
    assert set(re.findall(r"`([\w.]+\.(?:py|cu|cuh|json))`", section)) == files


@pytest.mark.parametrize("kind", [kind for kind in ON_CPU if (FOLDER / kind).is_dir()])
def test_published_cases_are_what_the_kernel_answers(kind: str) -> None:
    """Cases of golden.json with parameters and result. A kind can have other cases too."""
    for case in json.loads((FOLDER / kind / "golden.json").read_text()).get("cases", []):
        job = every_kind.plan(kind, case["parameters"])
        partial = every_kind.computed(kind, Device.CPU, job, 0, job.total)
        assert registry.definition(kind).result(job.spec, partial) == case["result"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_kernels_or_is_for_runners(kind: str) -> None:
    """What the registry says from the names of files is what it can load, and what plans ask for."""
    devices = registry.devices(kind)
    assert devices and set(every_kind.plan(kind).devices) <= set(devices)
    for device in (Device.CPU, Device.GPU):
        with contextlib.suppress(errors.NoKernel):
            registry.kernel(kind, device)
            assert device in devices and kind in registry.kinds_for_device(device)
            continue
        assert device not in devices and kind not in registry.kinds_for_device(device)


@pytest.mark.parametrize("kind", OF_RUNNERS)
def test_a_kind_of_runners_has_no_kernel_and_is_never_small(kind: str) -> None:
    assert registry.devices(kind) == (Device.RUNNER,)
    assert not list((FOLDER / kind).glob("*_kernel.py"))
    assert every_kind.plan(kind).devices == (Device.RUNNER,)
    assert not scheduler.is_small(every_kind.plan(kind))


@pytest.mark.parametrize("kind", OF_RUNNERS)
def test_published_partials_in_any_order_merge_to_the_published_result(kind: str) -> None:
    """Cases of golden.json that are jobs by their partials. Units are counted once, and merge changes no argument."""
    running = registry.program_kind(kind)
    assert running
    for case in json.loads((FOLDER / kind / "golden.json").read_text())["merged"]:
        plan, before = every_kind.plan(kind, case["parameters"]), json.dumps(case["partials"])
        for partials in itertools.permutations(case["partials"]):
            whole = every_kind.through_json(functools.reduce(running.merge, partials))
            assert running.result(plan.spec, whole) == case["result"]
            assert [unit.unit for unit in running.finished_units(whole, 0, plan.total)] == list(range(plan.total))
            covered = [unit for lo, hi in running.finished_ranges(whole) for unit in range(lo, hi)]
            assert covered == list(range(plan.total))
        assert json.dumps(case["partials"]) == before
        jsonschema_rs.validator_for(running.result_schema).validate(case["result"])


def test_a_kind_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(errors.UnknownKind, match="collatz, "):
        registry.definition("nosuch")

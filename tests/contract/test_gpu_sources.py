"""Tests that the kernels' sources compile for the promised architectures, without a GPU."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker import selftest
from jobs.kinds import gpu, random, registry
from jobs.models import Device
from tests.gpu import devices, nvrtc
from tests.gpu.host_device import MISSING, HostDevice

ARCHITECTURES = ("sm_80", "sm_90")
IN_CI = os.environ.get("CI") == "true"
#: Shared memory in bytes that a block gets by default.
MOST_SHARED = 48 * 1024


SOURCES = [
    (kind, source)
    for kind in selftest.kinds()
    for source in registry.kernel(kind, Device.GPU).SOURCES  # type: ignore[attr-defined]
]
each_source = pytest.mark.parametrize(
    "source", [source for _, source in SOURCES], ids=[f"{kind}-{source.path.name}" for kind, source in SOURCES]
)


@pytest.fixture
def compiler() -> None:
    if nvrtc.library() is None:
        assert not IN_CI, "NVRTC is not installed"
        pytest.skip("NVRTC is not installed: make setup")


def test_there_are_sources() -> None:
    assert {kind for kind, _ in SOURCES} >= {"collatz", "thread"}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@each_source
def test_every_source_compiles_without_a_warning(source: gpu.Source, architecture: str) -> None:
    cubin, said = nvrtc.compiled(source.text(), architecture)
    assert cubin.startswith(b"\x7fELF") and not said
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)', source.text())
    assert names and all(name.encode() in cubin for name in names)


@pytest.mark.usefixtures("compiler")
@each_source
def test_no_kernel_spills_or_takes_more_shared_memory_than_a_block_has(source: gpu.Source) -> None:
    _, said = nvrtc.compiled(source.text(), "sm_90", "--ptxas-options=-v")
    spilled = [int(count) for count in re.findall(r"(\d+) bytes spill", said)]
    shared = [int(count) for count in re.findall(r"(\d+) bytes smem", said)]
    assert spilled and not any(spilled), said
    assert max(shared, default=0) <= MOST_SHARED, said


@pytest.mark.usefixtures("compiler")
def test_a_broken_source_is_refused_in_the_compilers_words() -> None:
    with pytest.raises(nvrtc.NotCompiled, match="undefined"):
        nvrtc.compiled('extern "C" __global__ void broken(int* x) { *x = nothing; }', "sm_90")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_source_that_the_host_cannot_compile_is_refused_too() -> None:
    with pytest.raises(RuntimeError, match="nothing"):
        HostDevice().compiled('extern "C" __global__ void broken(int* x) { *x = nothing; }')


@pytest.mark.parametrize("kind", selftest.kinds())
def test_python_defines_every_constant_that_a_source_shares_with_it(kind: str) -> None:
    """A name that both spell is defined in Python alone and passed on by `gpu.Source`."""
    folder = registry.folder(kind)
    spelled = {name for path in folder.rglob("*.py") for name in constants(path)}
    for path in (*folder.rglob("*.cu"), *folder.rglob("*.cuh")):
        twice = spelled & set(re.findall(r"^#define (\w+) ", path.read_text(), re.MULTILINE))
        assert not twice, f"{path}: take {', '.join(sorted(twice))} out, and name them in the Source's constants"


def constants(path: Path) -> Iterator[str]:
    """Names in capitals that a module assigns numbers to, without a leading underscore."""
    for node in ast.parse(path.read_text()).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            names = (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
            yield from (name for name in names if name.isupper() and not name.startswith("_"))


def test_the_shared_random_words_have_pythons_constants() -> None:
    text = (gpu.SHARED / "random.cuh").read_text()
    defined = dict(re.findall(r"^#define SPLITMIX_(\w+) (0x\w+)ull$", text, re.MULTILINE))
    assert {name: int(value, 16) for name, value in defined.items()} == {
        name: getattr(random, name) for name in ("GOLDEN", "FIRST_FACTOR", "SECOND_FACTOR")
    }


@pytest.mark.parametrize("kind", selftest.kinds())
def test_what_a_gpu_must_know_is_true(kind: str) -> None:
    """Each known answer, by the CPU kernel, and by the reference where that takes no minutes."""
    definition = registry.definition(kind)
    for asked in selftest.questions(kind):
        plan = definition.plan(definition.parameters.model_validate(asked["parameters"]))
        assert Device.GPU in plan.devices
        found = registry.kernel(kind, Device.CPU).run(plan.spec, asked["lo"], asked["hi"], lambda _: True)[1]
        assert json.loads(json.dumps(found)) == asked["partial"]
        if asked["hi"] - asked["lo"] < 10_000:
            expected = registry.reference(kind).run(plan.spec, asked["lo"], asked["hi"])
            assert json.loads(json.dumps(expected)) == asked["partial"]


def test_a_gpu_that_knows_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.set_device(devices.device(most_blocks=8, most_threads=64))
    assert all(selftest.run(kind) > 0 for kind in ("collatz", "thread"))
    (first, *_), told = selftest.questions("thread"), selftest.questions
    first["partial"]["cells"]["0"]["digest"] ^= 1
    monkeypatch.setattr(selftest, "questions", lambda kind: [first] if kind == "thread" else told(kind))
    with pytest.raises(selftest.SelfTestFailed, match="wrong cells"):
        selftest.run("thread")
    gpu.set_device(None)

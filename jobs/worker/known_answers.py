"""Self-test of kernels: a kernel must reproduce stored results before the worker takes work of its kind.

Correct source code can still produce wrong machine code or results. Causes are a stale compilation cache, a damaged
disk, a compiler bug and a faulty processor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.kinds import registry
from jobs.models import Device

#: Files of test cases: lists of {parameters, lo, hi, partial, source}. CPUs also run the cases for GPUs.
FILES = {Device.CPU: ("cpu_known.json", "gpu_known.json"), Device.GPU: ("gpu_known.json",)}


class WrongAnswer(Exception):
    """A kernel returned a result that differs from the stored result; the message names the wrong fields."""


def files(kind: str, device: Device) -> Iterator[Path]:
    """Return the paths of the kind's test files for a device. The files need not exist."""
    return (registry.folder(kind) / name for name in FILES[device])


def questions(kind: str, device: Device) -> list[dict[str, Any]]:
    """Return all test cases of a kind for a device, or an empty list if the kind has none."""
    return [asked for file in files(kind, device) if file.is_file() for asked in json.loads(file.read_text())]


def check(kind: str, device: Device) -> None:
    """Run all test cases of a kind on its compiled kernel.

    Raises WrongAnswer if a partial result is wrong. Errors of the kernel propagate.
    """
    for asked in questions(kind, device):
        ask(kind, device, asked)


def ask(kind: str, device: Device, asked: dict[str, Any]) -> None:
    """Run one test case of a kind. Raises WrongAnswer if the kernel's result differs from the stored result."""
    definition = registry.definition(kind)
    plan = definition.plan(definition.parameters.model_validate(asked["parameters"]))
    lo, hi = asked["lo"], asked["hi"]
    upto, partial = registry.kernel(kind, device).run(plan.spec, lo, hi, lambda _: True)
    answer = json.loads(json.dumps(partial))
    if upto != hi or answer != asked["partial"]:
        names = sorted(answer.keys() | asked["partial"].keys())
        wrong = [name for name in names if answer.get(name) != asked["partial"].get(name)]
        raise WrongAnswer(
            f"units {lo}..{hi - 1} of {json.dumps(asked['parameters'])}: wrong {', '.join(wrong) or 'units'}"
        )

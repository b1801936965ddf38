"""Questions whose answers are known, which a kernel must answer before it gets work.

Compiled code may be wrong without any of its sources being so: a cache that holds another state's, a damaged disk, a
compiler or a processor with a fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.kinds import registry
from jobs.models import Device

#: Beside a kind's kernel: lists of {parameters, lo, hi, partial, source}. A CPU answers a GPU's questions too.
FILES = {Device.CPU: ("cpu_known.json", "gpu_known.json"), Device.GPU: ("gpu_known.json",)}


class WrongAnswer(Exception):
    """A kernel does not know what it should; the message says what."""


def files(kind: str, device: Device) -> Iterator[Path]:
    """Files with the kind's questions for a device, whether or not they exist."""
    return (registry.folder(kind) / name for name in FILES[device])


def questions(kind: str, device: Device) -> list[dict[str, Any]]:
    """All that the kind brings for a device; empty when it brings none."""
    return [asked for file in files(kind, device) if file.is_file() for asked in json.loads(file.read_text())]


def check(kind: str, device: Device) -> None:
    """Ask a warm kernel all of its kind's questions. Raises WrongAnswer, or what the kernel raises."""
    for asked in questions(kind, device):
        ask(kind, device, asked)


def ask(kind: str, device: Device, asked: dict[str, Any]) -> None:
    """Raises WrongAnswer unless the kernel's partial equals the known one, or what the kernel raises."""
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

"""Self-test of a GPU before it takes work: known questions and answers of each kind that has a kernel for GPUs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from jobs.kinds import registry
from jobs.models import Device

#: Beside a kind's kernel: a list of {parameters, lo, hi, partial, source}.
FILE = "gpu_known.json"


class Failed(Exception):
    """The GPU does not know what it should; the message says what."""


def kinds() -> list[str]:
    """Return the kinds that have a kernel for GPUs."""
    return list(registry.computed_on(Device.GPU))


def questions(kind: str) -> list[dict[str, Any]]:
    """Raises Failed when a kind brings none."""
    file = Path(str(registry.definition(kind).__file__)).with_name(FILE)  # type: ignore[attr-defined]
    known = json.loads(file.read_text()) if file.is_file() else []
    if not known:
        raise Failed(f"kind {kind} has a GPU kernel but no known answers: write {file}")
    return list(known)


def run() -> dict[str, float]:
    """Warms every kernel and asks all; seconds by kind. Raises Failed, or what the device raises."""
    seconds = {}
    for kind in kinds():
        started = time.perf_counter()
        registry.kernel(kind, Device.GPU).warm()
        for asked in questions(kind):
            _ask(kind, asked)
        seconds[kind] = round(time.perf_counter() - started, 3)
    return seconds


def _ask(kind: str, asked: dict[str, Any]) -> None:
    definition = registry.definition(kind)
    plan = definition.plan(definition.Parameters.model_validate(asked["parameters"]))
    lo, hi = asked["lo"], asked["hi"]
    upto, partial = registry.kernel(kind, Device.GPU).run(plan.spec, lo, hi, lambda _: True)
    if upto != hi or json.loads(json.dumps(partial)) != asked["partial"]:
        wrong = [key for key in asked["partial"] if partial.get(key) != asked["partial"][key]]
        raise Failed(
            f"{kind}, units {lo}..{hi - 1} of {json.dumps(asked['parameters'])}: wrong {', '.join(wrong) or 'keys'}"
        )

"""Self-test of a GPU before it gets work: compares kernels with the known answers of each kind."""

from __future__ import annotations

import time
from typing import Any

from jobs.kinds import registry
from jobs.models import Device
from jobs.worker import known_answers


class SelfTestFailed(Exception):
    """A kernel returned a wrong answer. The message contains the wrong fields."""


def kinds() -> list[str]:
    """Return the kinds that have a GPU kernel."""
    return list(registry.kinds_for_device(Device.GPU))


def questions(kind: str) -> list[dict[str, Any]]:
    """Return the test cases of a kind with known answers. Raises SelfTestFailed if there are none."""
    known = known_answers.questions(kind, Device.GPU)
    if not known:
        (file,) = known_answers.files(kind, Device.GPU)
        raise SelfTestFailed(f"kind {kind} has a GPU kernel but no known answers: write {file}")
    return known


def run(kind: str) -> float:
    """Compile the kernel of a kind and check its known answers. Return the duration in seconds.

    Raises SelfTestFailed, DeviceLost, or errors of the compiler.
    """
    started = time.perf_counter()
    registry.warm(kind, Device.GPU)
    for asked in questions(kind):
        _ask(kind, asked)
    return round(time.perf_counter() - started, 3)


def _ask(kind: str, asked: dict[str, Any]) -> None:
    try:
        known_answers.ask(kind, Device.GPU, asked)
    except known_answers.WrongAnswer as error:
        raise SelfTestFailed(f"{kind}, {error}") from error

"""Reads of a command's spec by whoever runs its units: arguments, items, waits between attempts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.kinds import program_arguments
from jobs.kinds import program_texts as texts
from jobs.kinds.program_arguments import Argument
from jobs.models import Partial, Spec
from threads_protocol.numbers import short

#: Most bytes of one argument, with the NUL at its end, as Linux has it; and of all of them.
MAX_WORD, MAX_WORDS = 128 << 10, 1 << 20
SHELL = ("/bin/sh", "-c")
UNIT, ITEM = "{unit}", "{item}"
#: A wait with jitter is this part of the whole one at least.
_LEAST_WAIT = 0.5


def arguments(spec: Spec, unit: int, item: Any = None) -> list[str]:
    """Return the words of one unit's program: {unit} and {item} are filled in once, and never in what was filled in.

    ValueError, in words for people, where its item makes them too long or has a NUL.
    """
    command: list[Argument] | str = spec["command"]
    if isinstance(command, str):
        return [*SHELL, command]
    filled = {UNIT: str(unit), ITEM: item_text(item)}
    if complaint := does_not_fit(command, filled):
        raise ValueError(f"unit {unit}: {complaint}")
    return [program_arguments.filled(word, filled) for word in command]


def does_not_fit(command: Sequence[Argument], filled: Mapping[str, str]) -> str:
    """Return why these texts cannot be filled in; empty: they can. Takes no longer than the command is."""
    if complaint := texts.problem(filled[ITEM]) if program_arguments.uses(command, ITEM) else "":
        return f"the item {texts.shown(filled[ITEM])} {complaint}"
    total = 0
    for number, word in enumerate(command, 1):
        size = len(program_arguments.text_of(word).encode()) + 1
        if isinstance(word, str):
            size += sum(word.count(place) * (len(text.encode()) - len(place)) for place, text in filled.items())
        total += size
        if size > MAX_WORD:
            return f"word {number} has {size} bytes with its item {short(filled[ITEM])}; at most {MAX_WORD}"
    return f"the words have {total} bytes with the item; at most {MAX_WORDS}" if total > MAX_WORDS else ""


def item_of(spec: Spec, unit: int) -> Any:
    """Return a unit's item, where they are in the spec; None where the job has none."""
    return spec["items"][unit] if spec["items"] is not None else None


def item_text(item: Any) -> str:
    """Return what {item} stands for: a text as it is, any other value as JSON."""
    return item if isinstance(item, str) else texts.as_json(item)


def most_errors(spec: Spec) -> int:
    """Return how often a unit may fail and is tried again."""
    return int(spec["retries"]["max"])


def wait_ms(spec: Spec, attempt: int, dice: float) -> int:
    """Return the wait after a unit's attempt 1, 2, ... has failed; `dice`: a number in [0, 1) that draws the jitter."""
    retries = spec["retries"]
    seconds, longest = float(retries["initial_delay_seconds"]), float(retries["max_delay_seconds"])
    if retries["factor"] > 1:
        for _ in range(attempt - 1):
            if not 0 < seconds < longest:
                break
            seconds *= retries["factor"]
    share = _LEAST_WAIT + dice * (1 - _LEAST_WAIT) if retries["jitter"] else 1.0
    return round(min(seconds, longest) * share * 1000)


def finished(
    lo: int, worker: str, ms: Sequence[int], attempts: Sequence[int], values: Sequence[Any] | None = None
) -> Partial:
    """Return the partial of units from `lo` on that ended with exit code 0 on one worker, a number each."""
    run = {"lo": lo, "worker": worker, "ms": list(ms), "attempts": list(attempts)}
    if values is not None and any(value is not None for value in values):
        run["values"] = list(values)
    return {"runs": [run]}

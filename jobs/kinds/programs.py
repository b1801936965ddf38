"""Derives the arguments, item and retry delays of a program's unit from the spec of its job, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.kinds import program_arguments, program_partials
from jobs.kinds import program_texts as texts
from jobs.kinds.program_arguments import Argument
from jobs.models import Partial, Spec
from threads_protocol.numbers import short

#: Linux limits in bytes: for one argument with its terminating NUL, and for all arguments together.
MAX_WORD, MAX_WORDS = 128 << 10, 1 << 20
SHELL = ("/bin/sh", "-c")
UNIT, ITEM = "{unit}", "{item}"
#: Minimum fraction of a retry delay that remains when jitter is applied.
_LEAST_WAIT = 0.5


def arguments(spec: Spec, unit: int, item: Any = None) -> list[str]:
    """Return the arguments of a unit's program, with {unit} replaced by the unit's number and {item} by its item.

    Placeholders inside inserted values are not replaced. Raises ValueError with a message for users if the item makes
    an argument too long or contains a NUL.
    """
    command: list[Argument] | str = spec["command"]
    if isinstance(command, str):
        return [*SHELL, command]
    filled = {UNIT: str(unit), ITEM: item_text(item)}
    if complaint := fit_error(command, filled):
        raise ValueError(f"unit {unit}: {complaint}")
    return [program_arguments.fill(word, filled) for word in command]


def fit_error(command: Sequence[Argument], filled: Mapping[str, str]) -> str:
    """Return the reason why the values do not fit into the command, or an empty string.

    Takes time linear in the length of the command.
    """
    if complaint := texts.problem(filled[ITEM]) if program_arguments.uses(command, ITEM) else "":
        return f"the item {texts.shorten(filled[ITEM])} {complaint}"
    total = 0
    for number, word in enumerate(command, 1):
        size = len(program_arguments.text_of(word).encode()) + 1
        if isinstance(word, str):
            size += sum(word.count(place) * (len(text.encode()) - len(place)) for place, text in filled.items())
        total += size
        if size > MAX_WORD:
            return f"argument {number} has {size} bytes with item {short(filled[ITEM])}; the maximum is {MAX_WORD}"
    return f"the arguments have {total} bytes; the maximum is {MAX_WORDS}" if total > MAX_WORDS else ""


def item_of(spec: Spec, unit: int) -> Any:
    """Return the unit's item from the spec, or None if the job has no items."""
    return spec["items"][unit] if spec["items"] is not None else None


def item_text(item: Any) -> str:
    """Return the text that replaces {item}: a string unchanged, any other value as JSON."""
    return item if isinstance(item, str) else texts.as_json(item)


def max_retries(spec: Spec) -> int:
    """Return the maximum number of retries of a failed unit."""
    return int(spec["retries"]["max"])


def retry_delay_ms(spec: Spec, attempt: int, dice: float) -> int:
    """Return the delay in milliseconds before a unit is retried after `attempt` failed attempts.

    `dice` in [0, 1) determines the jitter.
    """
    retries = spec["retries"]
    seconds, longest = float(retries["initial_delay_seconds"]), float(retries["max_delay_seconds"])
    if retries["factor"] > 1:
        for _ in range(attempt - 1):
            if not 0 < seconds < longest:
                break
            seconds *= retries["factor"]
    share = _LEAST_WAIT + dice * (1 - _LEAST_WAIT) if retries["jitter"] else 1.0
    return round(min(seconds, longest) * share * 1000)


def finished_partial(
    lo: int,
    worker: str,
    ms: Sequence[int],
    attempts: Sequence[int],
    values: Sequence[Any] | None = None,
    new_files: Sequence[str] = (),
) -> Partial:
    """Return the partial result of consecutive units that exited with code 0 on one worker. The first unit is `lo`.

    `new_files` are paths of files that the units created and that were not kept.
    """
    run = {"lo": lo, "worker": worker, "ms": list(ms), "attempts": list(attempts)}
    if values is not None and any(value is not None for value in values):
        run["values"] = list(values)
    return {"runs": [run]} | program_partials.describe_new_files(new_files)

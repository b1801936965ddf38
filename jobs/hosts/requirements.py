"""Requirements of programs: what a runner must have for a job, and what one lacks.

`store/lua/programs.lua` has the same rule for what a runner can take now; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Bytes of the requirements of a job, as `canonical` writes them.
MAX_BYTES = 2048

#: Requirements on the sort of GPU.
_SORT = ("gpu_memory_mib", "compute_capability")

#: Requirements of a job: gpus (a number), gpu_memory_mib and compute_capability ("8.0") that each of them has at least,
#: cpus, memory_mib, host (its name), labels (all are needed).
Requirements = Mapping[str, Any]
#: What a runner has: cpus, memory_mib, gpus (a row each: memory_mib, compute_capability), host, labels.
Offer = Mapping[str, Any]


@dataclass(frozen=True)
class Shortfall:
    """Requirement that a runner does not meet."""

    #: Requirement and value, such as "gpus 4", and what the runner has of it.
    needed: str
    has: str
    #: Part of it that the runner has, 0..1.
    part: float = 0.0


def canonical(requirements: Requirements) -> str:
    """Return requirements as a text that is the same for equal ones; empty for none."""
    given = {name: value for name, value in requirements.items() if value not in (None, [], ())}
    if "labels" in given:
        given["labels"] = sorted(set(given["labels"]))
    return json.dumps(given, sort_keys=True, separators=(",", ":")) if given else ""


def lacking(requirements: Requirements, offer: Offer) -> list[str]:
    """Return what a runner lacks for these requirements, in words for people; empty when it can take them."""
    return [f"{each.needed}, and it has {each.has}" for each in shortfalls(requirements, offer)]


def shortfalls(requirements: Requirements, offer: Offer) -> list[Shortfall]:
    """Return the requirements that a runner does not meet."""
    return [
        *_lacking_gpus(requirements, offer.get("gpus", ())),
        *_lacking_amounts(requirements, offer),
        *_lacking_names(requirements, offer),
    ]


def nearest(requirements: Requirements, offers: Iterable[tuple[str, Offer]]) -> tuple[str, Sequence[Shortfall]] | None:
    """Return the runner that lacks least, by name, and what it lacks; None for no runner."""
    known = [(name, shortfalls(requirements, offer)) for name, offer in offers]
    return min(known, key=lambda one: (len(one[1]), -sum(each.part for each in one[1]), one[0]), default=None)


def capability(text: Any) -> tuple[int, int]:
    """Return a compute capability as numbers that can be compared; (0, 0) for what is none."""
    major, _, minor = str(text or "").partition(".")
    return (int(major), int(minor or 0)) if major.isdecimal() and (minor or "0").isdecimal() else (0, 0)


def gpus_needed(requirements: Requirements) -> int:
    """Return how many GPUs the requirements are for: one where only the sort of GPU is named."""
    return int(requirements.get("gpus", any(name in requirements for name in _SORT)))


def _lacking_gpus(requirements: Requirements, gpus: Sequence[Mapping[str, Any]]) -> list[Shortfall]:
    needed = gpus_needed(requirements)
    memory, least = requirements.get("gpu_memory_mib", 0), capability(requirements.get("compute_capability"))
    fit = sum(gpu["memory_mib"] >= memory and capability(gpu["compute_capability"]) >= least for gpu in gpus)
    if fit >= needed:
        return []
    sort = [f"{name} {requirements[name]}" for name in _SORT if name in requirements]
    what = f"gpus {needed} with {' and '.join(sort)}" if sort else f"gpus {needed}"
    return [Shortfall(what, str(fit), fit / needed)]


def _lacking_amounts(requirements: Requirements, offer: Offer) -> list[Shortfall]:
    """Return what there is too little of: CPUs, memory."""
    short = []
    for name in ("cpus", "memory_mib"):
        needed, has = requirements.get(name, 0), offer.get(name, 0)
        if has < needed:
            short.append(Shortfall(f"{name} {needed:.15g}", f"{has:.15g}", max(has, 0) / needed))
    return short


def _lacking_names(requirements: Requirements, offer: Offer) -> list[Shortfall]:
    """Return what is there or not: the host, labels."""
    short = []
    host, own = requirements.get("host", ""), offer.get("host", "")
    if host not in ("", own):
        short.append(Shortfall(f"host {host}", f"host {own}" if own else "none"))
    missing = sorted(set(requirements.get("labels", ())) - set(offer.get("labels", ())))
    if missing:
        short.append(Shortfall(f"labels {', '.join(missing)}", ", ".join(sorted(offer.get("labels", ()))) or "none"))
    return short

"""Comparison of a job's requirements with the capacity of runners.

`store/lua/programs.lua` checks the same requirements against free capacity. A test compares both implementations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Maximum size in bytes of a job's requirements as canonical JSON.
MAX_BYTES = 2048

#: Requirements that refer to the type of a GPU.
_SORT = ("gpu_memory_mib", "compute_capability")

#: Requirements of a job: gpus (count), gpu_memory_mib and compute_capability ("8.0"), cpus, memory_mib, host, labels.
Requirements = Mapping[str, Any]
#: Capacity of a runner. Keys: cpus, memory_mib, gpus (list with memory_mib and compute_capability), host, labels.
Offer = Mapping[str, Any]


@dataclass(frozen=True)
class Shortfall:
    """Requirement of a job that a runner does not meet."""

    #: The requirement in words, such as "4 GPUs".
    needed: str
    has: str
    #: Fraction of the requirement that the runner meets, from 0 to 1.
    part: float = 0.0


def canonical(requirements: Requirements) -> str:
    """Encode requirements as canonical JSON, so that equal requirements have equal texts. No requirements give ""."""
    given = {name: value for name, value in requirements.items() if value not in (None, [], ())}
    if "labels" in given:
        given["labels"] = sorted(set(given["labels"]))
    return json.dumps(given, sort_keys=True, separators=(",", ":")) if given else ""


def describe_shortfalls(requirements: Requirements, offer: Offer) -> list[str]:
    """Return a message for each requirement that a runner does not meet."""
    return [f"{each.needed}, but it has {each.has}" for each in shortfalls(requirements, offer)]


def shortfalls(requirements: Requirements, offer: Offer) -> list[Shortfall]:
    """Return the requirements that a runner does not meet, with the runner's values."""
    return [
        *_gpu_shortfalls(requirements, offer.get("gpus", ())),
        *_amount_shortfalls(requirements, offer),
        *_name_shortfalls(requirements, offer),
    ]


def describe(requirements: Requirements) -> str:
    """Return requirements in words, such as "2 GPUs and label ssd"."""
    words = [_describe_gpus(requirements)] if gpus_needed(requirements) else []
    words += [_describe_amount(name, requirements[name]) for name in ("cpus", "memory_mib") if name in requirements]
    words += [f"host {requirements['host']}"] if "host" in requirements else []
    words += [_describe_labels(requirements["labels"])] if requirements.get("labels") else []
    return " and ".join(words)


def _describe_gpus(requirements: Requirements) -> str:
    needed = gpus_needed(requirements)
    memory, capability = (requirements.get(name) for name in _SORT)
    sort = [f"{memory} MiB"] if memory else []
    sort += [f"compute capability {capability}"] if capability else []
    return f"{needed} GPU{'' if needed == 1 else 's'}{' with ' if sort else ''}{' and '.join(sort)}"


def _describe_amount(name: str, amount: float) -> str:
    unit = "MiB of memory" if name == "memory_mib" else "CPU" if amount == 1 else "CPUs"
    return f"{amount:.15g} {unit}"


def _describe_labels(labels: Sequence[str]) -> str:
    return f"label{'' if len(labels) == 1 else 's'} {', '.join(labels)}"


def nearest(requirements: Requirements, offers: Iterable[tuple[str, Offer]]) -> tuple[str, Sequence[Shortfall]] | None:
    """Return the name of the runner that misses the fewest requirements, and its shortfalls.

    Returns None if there is no runner.
    """
    known = [(name, shortfalls(requirements, offer)) for name, offer in offers]
    return min(known, key=lambda one: (len(one[1]), -sum(each.part for each in one[1]), one[0]), default=None)


def capability(text: Any) -> tuple[int, int]:
    """Parse a CUDA compute capability into two comparable numbers. Return (0, 0) if it is invalid."""
    major, _, minor = str(text or "").partition(".")
    return (int(major), int(minor or 0)) if major.isdecimal() and (minor or "0").isdecimal() else (0, 0)


def gpus_needed(requirements: Requirements) -> int:
    """Return the number of GPUs that a job requires. A job that requires only a GPU type needs one GPU."""
    return int(requirements.get("gpus", any(name in requirements for name in _SORT)))


def _gpu_shortfalls(requirements: Requirements, gpus: Sequence[Mapping[str, Any]]) -> list[Shortfall]:
    needed = gpus_needed(requirements)
    memory, least = requirements.get("gpu_memory_mib", 0), capability(requirements.get("compute_capability"))
    fit = sum(gpu["memory_mib"] >= memory and capability(gpu["compute_capability"]) >= least for gpu in gpus)
    if fit >= needed:
        return []
    return [Shortfall(_describe_gpus(requirements), str(fit), fit / needed)]


def _amount_shortfalls(requirements: Requirements, offer: Offer) -> list[Shortfall]:
    """Return the shortfalls in CPUs and memory."""
    short = []
    for name in ("cpus", "memory_mib"):
        needed, has = requirements.get(name, 0), offer.get(name, 0)
        if has < needed:
            short.append(Shortfall(_describe_amount(name, needed), f"{has:.15g}", max(has, 0) / needed))
    return short


def _name_shortfalls(requirements: Requirements, offer: Offer) -> list[Shortfall]:
    """Return the shortfalls in the host name and in labels."""
    short = []
    host, own = requirements.get("host", ""), offer.get("host", "")
    if host not in ("", own):
        short.append(Shortfall(f"host {host}", f"host {own}" if own else "none"))
    missing = sorted(set(requirements.get("labels", ())) - set(offer.get("labels", ())))
    if missing:
        short.append(Shortfall(_describe_labels(missing), ", ".join(sorted(offer.get("labels", ()))) or "none"))
    return short

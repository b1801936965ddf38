"""Estimate whether a service's replicas fit into the memory of a runner. Reject only weights that cannot fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from engines.memory import Need, short
from jobs import errors
from jobs.hosts import requirements
from jobs.hosts.requirements import Offer

_MEBIBYTE = 1 << 20
#: Memory requirements, which are not used to select runners, because the estimate reports insufficient memory.
_MEMORY = ("memory_mib", "gpu_memory_mib")


class Judged(TypedDict):
    """Estimated memory of one replica, stored with the service's specification."""

    weights_bytes: int
    kept_bytes: int
    margin_bytes: int
    needed_bytes: int
    #: Memory of the largest live runner that meets the requirements, or None if there is none.
    available_bytes: int | None
    #: Explanation of the estimate, with the result of the comparison.
    words: str


def judged(need: Need, needed: Mapping[str, Any], runners: Mapping[str, Offer], *, force: bool) -> Judged:
    """Return the memory estimate of a replica.

    Raises InvalidRequest if the weights exceed the memory of each runner, unless `force` is set.
    """
    there = [(available(need, needed, offer), name) for name, offer in runners.items() if _fits(needed, offer)]
    most, name = max(there, default=(None, ""))
    words = f"{need.words}; {_compared(need, most, name)}"
    if most is not None and need.weights > most and not force:
        detail = f"model: the weights do not fit: {words}. Use a smaller model, require more memory, or set force"
        raise errors.InvalidRequest(detail, field="model")
    return {
        "weights_bytes": need.weights,
        "kept_bytes": need.cache_bytes,
        "margin_bytes": need.margin_bytes,
        "needed_bytes": need.bytes,
        "available_bytes": most,
        "words": words,
    }


def _compared(need: Need, most: int | None, name: str) -> str:
    if most is None:
        return "no live runner meets the requirements, so the available memory is unknown"
    there = f"{name} has {short(most)}"
    return f"{there}, which is enough" if need.bytes <= most else f"{there}, which is not enough"


def available(need: Need, needed: Mapping[str, Any], offer: Offer) -> int:
    """Return a runner's memory in bytes for a replica, on the devices on which the engine stores its model."""
    host = min(int(offer.get("memory_mib", 0)), needed.get("memory_mib") or 1 << 40) * _MEBIBYTE
    sizes = sorted((int(gpu["memory_mib"]) for gpu in offer.get("gpus", ())), reverse=True)
    gpus = int(sum(sizes[: requirements.gpus_needed(needed)]) * _MEBIBYTE * need.share)
    return {"host": host, "gpus": gpus, "both": host + gpus}[need.where]


def _fits(needed: Mapping[str, Any], offer: Offer) -> bool:
    return not requirements.describe_shortfalls(
        {name: value for name, value in needed.items() if name not in _MEMORY}, offer
    )

"""Artifacts that a worker leaves of the units that it computed, and that the job holds."""

from __future__ import annotations

import re

from coordinator.artifacts.trees import Trees
from coordinator.work.leased import stale
from jobs import errors
from jobs.store.work.outputs import MAX_RANGES, MAX_UNITS, LeasedUnits, Outputs

_RANGE = re.compile(r"([0-9]{1,16})(?:-([0-9]{1,16}))?")
#: Form of a text of units.
UNITS = r"^[0-9]{1,16}(-[0-9]{1,16})?(,[0-9]{1,16}(-[0-9]{1,16})?){0,999}$"


def ranges(text: str) -> list[tuple[int, int]]:
    """Return the ranges of a text such as 3-17,20, each with its end. InvalidRequest for others, or too many units."""
    found = [_RANGE.fullmatch(part) for part in text.split(",")]
    pairs = [(int(each[1]), int(each[2] or each[1]) + 1) for each in found if each]
    if len(pairs) != len(found) or len(pairs) > MAX_RANGES or any(lo >= hi for lo, hi in pairs):
        raise errors.InvalidRequest("units: must be units and ranges of them, such as 3-17,20", field="units")
    if sum(hi - lo for lo, hi in pairs) > MAX_UNITS:
        raise errors.InvalidRequest(f"units: at most {MAX_UNITS} of them can be named at once", field="units")
    return pairs


def keep(trees: Trees, outputs: Outputs, lease: LeasedUnits, units: str, text: bytes) -> str:
    """Commit a manifest for the job's tenant as what these units left; return the artifact's id.

    Conflict with the field lease when the lease has ended meanwhile; else errors as `Trees.commit`.
    """
    pairs = ranges(units)
    how, new = trees.commit_by(lease.tenant, text, lambda new: outputs.keep(lease, pairs, new))
    if how == "stale":
        raise stale(lease.job_id)
    if how == "units":
        detail = f"units: the lease has the units {lease.lo} to {lease.hi - 1}, and others were named"
        raise errors.InvalidRequest(detail, field="units")
    return new.id

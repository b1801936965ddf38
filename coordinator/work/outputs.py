"""Store the output of units that a worker has computed as artifacts of the job."""

from __future__ import annotations

import re

from coordinator.artifacts.trees import Trees
from coordinator.work.lease_check import stale
from jobs import errors
from jobs.store.work.outputs import MAX_RANGES, MAX_UNITS, LeasedUnits, Outputs

_RANGE = re.compile(r"([0-9]{1,16})(?:-([0-9]{1,16}))?")
#: Pattern of a list of units and unit ranges.
UNITS = r"^[0-9]{1,16}(-[0-9]{1,16})?(,[0-9]{1,16}(-[0-9]{1,16})?){0,999}$"


def ranges(text: str) -> list[tuple[int, int]]:
    """Parse a list such as 3-17,20 into half-open ranges. Raises InvalidRequest for an invalid or too long list."""
    found = [_RANGE.fullmatch(part) for part in text.split(",")]
    pairs = [(int(each[1]), int(each[2] or each[1]) + 1) for each in found if each]
    if len(pairs) != len(found) or len(pairs) > MAX_RANGES or any(lo >= hi for lo, hi in pairs):
        raise errors.InvalidRequest("units: must be a list of units and ranges, such as 3-17,20", field="units")
    if sum(hi - lo for lo, hi in pairs) > MAX_UNITS:
        raise errors.InvalidRequest(f"units: must contain at most {MAX_UNITS} units", field="units")
    return pairs


def keep(trees: Trees, outputs: Outputs, lease: LeasedUnits, units: str, text: bytes) -> str:
    """Commit a manifest as the output of these units in the job's tenant, and return the artifact ID.

    Raises Conflict with the field `lease` if the lease has ended, and the errors of `Trees.commit`.
    """
    pairs = ranges(units)
    how, new = trees.commit_by(lease.tenant, text, lambda new: outputs.keep(lease, pairs, new))
    if how == "stale":
        raise stale(lease.job_id)
    if how == "units":
        detail = f"units: must be within the lease, which has units {lease.lo} to {lease.hi - 1}"
        raise errors.InvalidRequest(detail, field="units")
    return new.id

"""Validate the marks that a worker submits with a result. Marks must follow from the job's specification and result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from pydantic_core import from_json

from jobs import errors, marks
from jobs.kinds import registry
from jobs.store import Store
from jobs.store.work.bounds import READ_BYTES
from jobs.store.work.slots import Description


class SubmittedMarks(NamedTuple):
    """Marks of one job in the format of the Redis functions, and the job's encoded result."""

    job_id: str
    marks: str
    result: bytes


def check(store: Store, left: Iterable[SubmittedMarks]) -> None:
    """Raise InvalidRequest for marks that do not follow from the job and its result. Deleted jobs are ignored."""
    some = [one for one in left if one.marks != "[]"]
    jobs = store.slots.described([one.job_id for one in some]) if some else []
    for one, job in zip(some, jobs, strict=True):
        wrong = _find_invalid_mark(job, one) if job else None
        if wrong:
            raise errors.InvalidRequest(f"marks: {wrong[:80]} is not a mark of job {one.job_id}", field="marks")


def _find_invalid_mark(job: Description, left: SubmittedMarks) -> str | None:
    """Return the first invalid mark, or None if all are valid."""
    named = [tuple(row) for row in json.loads(left.marks)]
    if job.kind not in registry.names():
        return named[0][0] if named else None
    definition = registry.definition(job.kind)
    if job.version != str(definition.model_version):  # the stored specification may have another format
        names = {f"{job.kind}:{name}" for name in definition.mark_kinds}
        return next((mark[0] for mark in named if mark[0] not in names), None)
    try:
        allowed = {
            tuple(row) for row in json.loads(marks.serialize_marks(job.kind, json.loads(job.spec), _read(left.result)))
        }
    except Exception:  # the result may be malformed
        allowed = set()
    return next((" ".join(mark) for mark in named if mark not in allowed), None)


def _read(result: bytes) -> dict[str, object]:
    """Decode a result. A large result is treated as empty, because decoding it would delay other calls."""
    return from_json(result) if len(result) <= READ_BYTES else {}

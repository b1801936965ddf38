"""Marks that a worker leaves with a result: those that the job's specification and this result say, and no others."""

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


class Left(NamedTuple):
    """Marks of one job as the functions take them, and its result, encoded."""

    job_id: str
    marks: str
    result: bytes


def check(store: Store, left: Iterable[Left]) -> None:
    """Raise InvalidRequest for marks that a job does not leave. A job that is gone leaves none whatever is said."""
    some = [one for one in left if one.marks != "[]"]
    jobs = store.slots.described([one.job_id for one in some]) if some else []
    for one, job in zip(some, jobs, strict=True):
        wrong = _wrong(job, one) if job else None
        if wrong:
            raise errors.InvalidRequest(f"marks: job {one.job_id} leaves no mark {wrong[:80]}", field="marks")


def _wrong(job: Description, left: Left) -> str | None:
    """Return the first mark that the job does not leave, None without one."""
    named = [tuple(row) for row in json.loads(left.marks)]
    if job.kind not in registry.names():
        return named[0][0] if named else None
    definition = registry.definition(job.kind)
    if job.version != str(definition.model_version):  # its specification is not that of this release
        names = {f"{job.kind}:{name}" for name in definition.mark_kinds}
        return next((mark[0] for mark in named if mark[0] not in names), None)
    try:
        allowed = {
            tuple(row) for row in json.loads(marks.serialize_marks(job.kind, json.loads(job.spec), _read(left.result)))
        }
    except Exception:  # what a result of no meaning does to its kind
        allowed = set()
    return next((" ".join(mark) for mark in named if mark not in allowed), None)


def _read(result: bytes) -> dict[str, object]:
    """Return a result; nothing of a large one, which would hold up every other call."""
    return from_json(result) if len(result) <= READ_BYTES else {}

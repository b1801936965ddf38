"""Serialize the dependencies and dependents of a job. Functions here are pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator import decoding
from jobs.store.work.relations import JobRelations
from threads_protocol.answers import jobs as answers

#: State that a dependency must reach, by submission field.
_NEEDS = {"after": "done", "after_any": "ended"}
#: Fields of a job's hash that contain its dependencies.
FIELDS = ("state", "root", *_NEEDS)


def parents(row: Mapping[str, str]) -> dict[str, str]:
    """Return the dependencies of a job, each with the required state: "done" or "ended".

    Raises ValueError if a field is not a list of job IDs.
    """
    return {parent: need for name, need in _NEEDS.items() for parent in _ids(decoding.parse_json(row.get(name, "[]")))}


def _ids(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("dependencies must be a list of job IDs")
    return value


def build_relations(job_id: str, row: Mapping[str, str], stored: JobRelations) -> answers.Relations:
    """Return the dependencies and dependents of a job.

    `row` contains the FIELDS of the job's hash.
    """
    before: list[answers.Parent] = [
        {"job_id": parent, "state": stored.states.get(parent), "needed": need, "met": parent not in stored.needs}
        for parent, need in parents(row).items()
    ]
    answer: answers.Relations = {
        "job_id": job_id,
        "parents": before,
        "children": [_build_related(one, stored) for one in stored.children],
        "children_count": stored.children_count,
        "skipped": [_build_related(one, stored) for one in stored.skips],
        "skipped_count": stored.skips_count,
    }
    if row["state"] == "skipped" and "root" in row:
        answer["root"] = row["root"]
    return answer


def _build_related(job_id: str, stored: JobRelations) -> answers.Related:
    return {"job_id": job_id, "state": stored.states.get(job_id)}

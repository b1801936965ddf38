"""Jobs before and after a job, as the API shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator import decoding
from jobs.store.work.relations import JobRelations
from threads_protocol.answers import jobs as answers

#: What a job may need of a parent, by the field of its submission.
_NEEDS = {"after": "done", "after_any": "ended"}
#: Fields of a job's hash from which its parents are read.
FIELDS = ("state", "root", *_NEEDS)


def parents(row: Mapping[str, str]) -> dict[str, str]:
    """Return the parents of a job as its submission named them, each with what is needed: done or ended.

    ValueError for what is no list of texts.
    """
    return {parent: need for name, need in _NEEDS.items() for parent in _ids(decoding.parse_json(row.get(name, "[]")))}


def _ids(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("what it comes after is no list of jobs")
    return value


def build_relations(job_id: str, row: Mapping[str, str], stored: JobRelations) -> answers.Relations:
    """Return the jobs before and after one, by its FIELDS and what is stored of those."""
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

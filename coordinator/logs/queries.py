"""Read stored logs of units, and explain why a unit has none."""

from __future__ import annotations

import json
from typing import Any

from coordinator.cluster import Cluster
from coordinator.logs import excerpts
from coordinator.logs.texts import Stream, Texts
from jobs import errors
from jobs.kinds import registry
from jobs.store.work.outputs import Outputs, UnitState
from threads_protocol.answers import logs as answers
from threads_protocol.states import TERMINAL, JobState


def unit(outputs: Outputs, job_id: str, number: int, *, look: bool = True) -> UnitState:
    """Return the state of a unit. Raise NotFound if the unit does not exist or its job runs no programs.

    See `Outputs.unit` for `look`.
    """
    found = outputs.unit(job_id, number, look=look)
    if found is None:
        raise errors.missing("job", job_id, "job_id")
    if not found.artifact and not _runs_programs(found.kind):
        raise errors.NotFound(f"jobs of kind {found.kind} do not run programs, so they have no logs", field="job_id")
    if number >= found.total:
        raise errors.NotFound(
            f"unit {number} does not exist; job {job_id} has units 0 to {found.total - 1}", field="unit"
        )
    return found


def _runs_programs(kind: str) -> bool:
    return kind in registry.names() and registry.program_kind(kind) is not None


def log(
    outputs: Outputs, texts: Texts, job_id: str, number: int, stream: Stream, start: int, limit: int
) -> tuple[bytes, int]:
    """Return bytes of a unit's log and its total size. Raise NotFound with the reason if there is no log."""
    found = unit(outputs, job_id, number, look=False)
    read = texts.read(found.tenant, found.artifact, number, stream, start, limit) if found.artifact else None
    if read is None:
        found = found if found.state else unit(outputs, job_id, number)
        raise errors.NotFound(f"unit {number} {_explain_missing_log(found, job_id, number)}", field="unit")
    return read


def search(
    cluster: Cluster,
    texts: Texts,
    job_id: str,
    first: int,
    state: str | None,
    stream: Stream,
    text: str,
    lines: int,
) -> answers.LogExcerpts:
    """Return lines of the logs of units from number `first` on. Raise NotFound if the job runs no programs."""
    tenant = unit(cluster.store.outputs, job_id, 0, look=False).tenant
    page = cluster.queries.jobs.units_page(job_id, first, excerpts.MOST_UNITS, state)["units"]
    found, count = excerpts.read(texts, tenant, page, stream, text, lines)
    if count < len(page):
        following: int | None = page[count]["unit"]
    else:
        following = page[-1]["unit"] + 1 if len(page) == excerpts.MOST_UNITS else None
    return {"units": found, "searched": count, "next": following}


def _explain_missing_log(found: UnitState, job_id: str, number: int) -> str:
    if found.state == "running" and found.job_state not in TERMINAL:
        return f"is still running; follow it at GET /api/jobs/{job_id}/logs/{number}/follow"
    if found.state == "waiting":
        ended = found.job_state in TERMINAL
        return f"was not started, because its job is {found.job_state}" if ended else "has not started"
    if found.state == "retrying":
        return "wrote nothing in its failed attempt, and is waiting for the next attempt"
    return "wrote nothing"


def end(texts: Texts, found: UnitState, number: int) -> answers.End:
    """Return how a unit ended. Raise Unavailable if the artifact store is unavailable."""
    try:
        size = texts.size(found.tenant, found.artifact, number)
    except (errors.NotFound, errors.Broken):  # the log is lost
        size = 0
    state = found.state if found.state in ("done", "dead") else found.job_state
    return {"state": state, "exit": 0 if state == JobState.DONE.value else _exit(found.failure), "bytes": size}


def _exit(failure: str) -> int | None:
    try:
        row: Any = json.loads(failure or "{}")
    except ValueError:
        return None
    code = row.get("exit") if isinstance(row, dict) else None
    return code if type(code) is int else None

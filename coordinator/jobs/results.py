"""Combine the stored results of many jobs into one JSON response of limited size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from jobs.store import Store
from jobs.store.work.job_reads import Head

#: Maximum total size in bytes of the results in one response.
RESULTS_BYTES = 16 << 20


class StoredResult(NamedTuple):
    """Stored result of a job, or the length of a result that is too long to send.

    `text` is empty if there is no result.
    """

    text: bytes
    length: int = 0


def many(store: Store, ids: Sequence[str], hidden: frozenset[str] = frozenset()) -> bytes:
    """Return the state of each job, and the result of done jobs, as one JSON response.

    Results are inserted as stored, without parsing. Hidden jobs count as missing. The results together have at most
    RESULTS_BYTES: each job has an equal share, and unused bytes are available to larger results in order.
    """
    seen = [job_id for job_id in ids if job_id not in hidden]
    answers = dict(zip(seen, _answers(store, seen, RESULTS_BYTES // len(ids)), strict=True)) if seen else {}
    return b'{"answers":[' + b",".join(answers.get(job_id) or _missing(job_id) for job_id in ids) + b"]}"


def _missing(job_id: str) -> bytes:
    return _answer(job_id, (None, None, None), StoredResult(b""))


def _answers(store: Store, ids: Sequence[str], share: int) -> list[bytes]:
    heads, beginnings = store.job_reads.result_beginnings(ids, share)
    stored = [StoredResult(text) for text in beginnings]
    if long := [place for place, text in enumerate(beginnings) if len(text) > share]:
        left = RESULTS_BYTES - sum(len(text) for text in beginnings if len(text) <= share)
        del beginnings
        stored = _add_long_results(store, ids, stored, long, left)
    return [_answer(*one) for one in zip(ids, heads, stored, strict=True)]


def _add_long_results(
    store: Store, ids: Sequence[str], stored: Sequence[StoredResult], long: Sequence[int], left: int
) -> list[StoredResult]:
    """Add the `long` results that fit into `left` bytes, and only the length of the others."""
    cut = set(long)
    whole = [StoredResult(b"") if place in cut else text for place, text in enumerate(stored)]
    fitting = []
    for place, length in zip(long, store.job_reads.result_lengths([ids[place] for place in long]), strict=True):
        whole[place] = StoredResult(b"", length)
        if length <= left:
            left -= length
            fitting.append(place)
    for place, text in zip(fitting, store.job_reads.result_texts([ids[place] for place in fitting]), strict=True):
        whole[place] = StoredResult(text)
    return whole


def _answer(job_id: str, head: Head, stored: StoredResult) -> bytes:
    state, kind, error = (value.decode(errors="replace") if value else None for value in head)
    answer: dict[str, Any] = {"job_id": job_id, "type": kind, "state": state}
    if state is None:
        answer = {"job_id": job_id, "state": None, "error": f"no job {job_id}"}
    elif stored.length:
        answer |= {"result_at": f"/api/jobs/{job_id}/result", "result_bytes": stored.length}
    elif not stored.text and error:
        answer["error"] = error
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
    return text[:-1] + b',"result":' + stored.text + b"}" if stored.text and state else text

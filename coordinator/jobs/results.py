"""Results of many jobs as one answer, within a bound of bytes; results are sent as they are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from jobs.store import leases, skipped

#: Bytes of results that one answer for many jobs holds.
RESULTS_BYTES = 16 << 20


class Stored(NamedTuple):
    """A job's result as it is stored, empty while there is none; or only its length, where it is too long to send."""

    text: bytes
    length: int = 0


def many(client: leases.Client, ids: Sequence[str]) -> bytes:
    """State and, once done, result of each as one JSON answer; results are spliced in as they are stored.

    Holds at most RESULTS_BYTES of results: each has its share, and what is left goes to larger ones in their order.
    """
    share = RESULTS_BYTES // len(ids)
    pipe = client.pipeline(transaction=False)
    for job_id in ids:
        pipe.hmget(leases.key(job_id), "state", "kind", "error")
        pipe.getrange(leases.key(job_id, "result"), 0, share)  # a byte more than the share: the result is longer
    replies: list[Any] = skipped.replies(pipe)
    replies = [reply or (b"" if place % 2 else [None, None, None]) for place, reply in enumerate(replies)]
    rows, stored = replies[::2], [Stored(text) for text in replies[1::2]]
    if long := [place for place, text in enumerate(replies[1::2]) if len(text) > share]:
        left = RESULTS_BYTES - sum(len(text) for text in replies[1::2] if len(text) <= share)
        del replies
        stored = _with_long(client, ids, stored, long, left)
    return b'{"answers":[' + b",".join(map(_answer, ids, rows, stored)) + b"]}"


def _with_long(
    client: leases.Client, ids: Sequence[str], stored: list[Stored], long: list[int], left: int
) -> list[Stored]:
    """The same with those results in `long` that fit into `left` bytes; of the others the length."""
    keys = {place: leases.key(ids[place], "result") for place in long}
    pipe = client.pipeline(transaction=False)
    for key in keys.values():
        pipe.strlen(key)
    found = [Stored(b"") if place in keys else text for place, text in enumerate(stored)]
    taken = client.pipeline(transaction=False)
    fitting = []
    for place, length in zip(long, pipe.execute(), strict=True):
        found[place] = Stored(b"", length)
        if length <= left:
            left -= length
            fitting.append(place)
            taken.get(keys[place])
    for place, text in zip(fitting, taken.execute(), strict=True):
        found[place] = Stored(text or b"")
    return found


def _answer(job_id: str, row: Sequence[bytes | None], stored: Stored) -> bytes:
    state, kind, error = (value.decode(errors="replace") if value else None for value in row)
    answer: dict[str, Any] = {"job_id": job_id, "type": kind, "state": state}
    if state is None:
        answer = {"job_id": job_id, "state": None, "error": f"no job {job_id}"}
    elif stored.length:
        answer |= {"result_at": f"/api/jobs/{job_id}/result", "result_bytes": stored.length}
    elif not stored.text and error:
        answer["error"] = error
    head = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
    return head[:-1] + b',"result":' + stored.text + b"}" if stored.text and state else head

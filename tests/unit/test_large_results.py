"""Tests results of tens of megabytes: they delay no other requests, and a coordinator never holds a complete one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.cluster import Cluster
from jobs.encoding import packed
from jobs.encoding.json_reader import JsonReader
from jobs.kinds.thread import definition
from jobs.store import keys
from jobs.store.work.job_reads import PIECE_BYTES, JobReads
from tests.unit.artifact_bench import TOKEN, Bench

CORES = 4
#: Number of events of a trace with 21 MB.
MOST = 125_000


def trace_of(events: int) -> bytes:
    """Return a trace as stored by a worker, with slices on several cores, each of a different thread."""
    slices = ",".join(
        f'{{"pid":1,"ph":"X","tid":{number % CORES},"dur":1.5,"name":"T0.{number}","cat":"d1","args":'
        f'{{"path":"T0.{number}","parent":"T0","depth":1,"work_us":1.5,"wait_us":0.0,"children":0}}'
        f',"ts":{2.0 * (number // CORES)}}}'
        for number in range(events)
    )
    about = {
        "type": "thread",
        "cell": 0,
        "cores": CORES,
        "scheduler": "fifo",
        "replica": 0,
        "digest": "0" * 16,
        "until_us": 2.0 * events / CORES,
        "deadlocked": False,
        "truncated": False,
        "parameters": {},
    }
    return f'{{"displayTimeUnit":"ns","traceEvents":[{slices}],"otherData":{json.dumps(about)}}}'.encode()


@pytest.fixture
def bench(any_redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(any_redis_url, tmp_path / "store")) as made:
        yield made


def traced(bench: Bench, text: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a job whose questions are all answered with this text."""
    body = {"type": "thread", "parameters": {"seed": 1, "replicas": 1, "cores": CORES, "scheduler": "fifo"}}
    job = str(bench.ask("POST", "/api/submit", body).json()["job_id"])
    bench.store.client.set(keys.job_result(job), text)
    bench.store.client.hset(keys.job(job), "state", "done")
    monkeypatch.setattr(Cluster, "ask_question", lambda *_: job)
    return job


def exchange(bench: Bench, talk: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> tuple[Any, float]:
    """Return the result of requests to the application, and the longest time for which its event loop was blocked."""

    async def go() -> tuple[Any, float]:
        gaps = list[float]()
        ticking = asyncio.create_task(tick(gaps))
        transport = httpx.ASGITransport(bench.app)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            found = await talk(client)
        ticking.cancel()
        return found, max(gaps)

    return asyncio.run(go())


async def tick(gaps: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - before)


def parsing_seconds(text: bytes) -> float:
    began = time.perf_counter()
    json.loads(text)
    return time.perf_counter() - began


def test_windows_of_a_large_trace_hold_up_no_other_request(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is never blocked for half the time that parsing the whole text takes.

    The best of three attempts counts, since other processes take the CPU now and then.
    """
    text = trace_of(MOST)
    job = traced(bench, text, monkeypatch)
    longest = []
    for _ in range(3):
        bench.app.state.coordinator.cluster.packers.clear()
        answer, gap = exchange(bench, lambda client: client.get(f"/api/jobs/{job}/trace.bin"))
        assert answer.status_code == 200, answer.text
        longest.append(gap)
    assert min(longest) < min(parsing_seconds(text) for _ in range(3)) / 2, longest
    facts, _ = packed.unpack(answer.content)
    assert facts["slices"] == MOST and facts["level"] == "bins"


def test_a_large_trace_is_never_in_memory_as_a_whole() -> None:
    text = trace_of(MOST // 5)
    pieces = (text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES))
    tracemalloc.start()
    try:
        window = definition.KIND.binary("trace", JsonReader(pieces))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    slices, columns = packed.unpack(window({"px": "16384"}))
    assert slices["slices"] == len(columns["start"]) == MOST // 5
    # Names of threads take most of the memory. The whole parsed text would be ten times as large.
    assert peak < 1.5 * len(text) + 4 * PIECE_BYTES and kept < len(text), (kept, peak, len(text))


def test_a_trace_that_many_ask_for_at_once_is_prepared_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = traced(bench, trace_of(20_000), monkeypatch)
    made, prepare = list[int](), definition.KIND.binary

    def counted(name: str, answer: JsonReader) -> Any:
        made.append(threading.get_ident())
        return prepare(name, answer)

    monkeypatch.setattr(definition.KIND, "binary", counted)

    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(client.get(f"/api/jobs/{job}/trace.bin?px={px}") for px in range(1, 9)))

    answers, _ = exchange(bench, talk)
    assert [answer.status_code for answer in answers] == [200] * 8 and len(made) == 1
    assert made[0] != threading.get_ident(), "not within the loop"


@pytest.mark.parametrize(
    "length", [2, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 5]
)
def test_a_result_comes_as_it_is_stored_in_pieces(bench: Bench, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    stored = b'"' + b"x" * (length - 2) + b'"'
    job = traced(bench, stored, monkeypatch)
    whole, read = list[int](), JobReads.result_piece

    def counted(self: JobReads, job_id: str, start: int) -> bytes:
        piece = read(self, job_id, start)
        whole.append(len(piece))
        return piece

    monkeypatch.setattr(JobReads, "result_piece", counted)
    question = bench.ask("GET", f"/api/jobs/{job}/trace.json")
    assert question.content == stored and int(question.headers["Content-Length"]) == length
    assert max(whole, default=0) <= PIECE_BYTES and sum(whole) == max(0, length - PIECE_BYTES)
    result = bench.ask("GET", f"/api/jobs/{job}/result")
    assert result.content.endswith(b', "result": ' + stored + b"}")
    assert int(result.headers["Content-Length"]) == len(result.content) and result.json()["job_id"] == job


def test_a_result_that_is_deleted_meanwhile_breaks_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = traced(bench, b'"' + b"x" * 3 * PIECE_BYTES + b'"', monkeypatch)
    read = JobReads.result_piece

    def deleted(self: JobReads, job_id: str, start: int) -> bytes:
        bench.store.client.delete(keys.job_result(job))
        return read(self, job_id, start)

    monkeypatch.setattr(JobReads, "result_piece", deleted)
    answer = bench.ask("GET", f"/api/jobs/{job}/result")
    assert len(answer.content) < int(answer.headers["Content-Length"]), "whoever reads it knows that the end is missing"

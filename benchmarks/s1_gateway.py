"""S1: what the gateway adds to an engine that is asked directly: a request, 32 streams, and requests at its bound.

The engine is a stand-in that costs nothing (paced_engine.py), once as a replica behind a coordinator, once beside it.
One client process asks both in turns. With `TUNNEL=1` the replica is reached through its runner's tunnel.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import uvloop

from benchmarks.measure import Row, in_turns
from tests.integration.live import Live, until
from tests.ports import free_port

TOKEN = "a-token-of-the-benchmark-of-the-gateway"
ENGINE = Path(__file__).parent / "load" / "paced_engine.py"
#: Rounds of all, and requests of a round.
ROUNDS, REQUESTS = 5, 200
STREAMS, TOKENS, PACE, UNPACED_TOKENS = 32, 200, 50, 2000
GOAL_ADDED_MS = 2.0
#: Requests that pass at once, bytes of a prompt at the bound, and requests beyond it.
MOST, PROMPT_BYTES, BEYOND = 100, 64 << 10, 20
_SIGN = b'"delta"'
T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """Where requests go."""

    port: int

    def head(self, size: int) -> bytes:
        lines = (
            "POST /v1/chat/completions HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
            f"Content-Length: {size}",
            "Connection: close",
        )
        return "\r\n".join([*lines, "", ""]).encode()


def run() -> list[Row]:
    with _served() as (ours, peer, live):
        return [_added(ours, peer), *_streams(ours, peer), *_at_the_bound(ours, live)]


@contextlib.contextmanager
def _served() -> Iterator[tuple[Side, Side, Live]]:
    """Give the gateway of a cluster with one replica, the engine beside it, and the cluster."""
    with tempfile.TemporaryDirectory(prefix="gateway-") as folder, contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runner-")))
        place.chmod(0o711)
        live = Live(Path(folder), workers=0, CLUSTER_TOKEN=TOKEN, HOST_ID="host-0", ARTIFACT_URL=f"file://{folder}/a")
        stack.callback(live.stop)
        live.start_redis()
        live.start_coordinator()
        live.start_runner(0, 2, RUNNER_DIR=str(place), SERVICE_ADDRESS="tunnel" if os.environ.get("TUNNEL") else "")
        live.wait_ready(1)
        _serve(live)
        port = free_port()
        alone = stack.enter_context(subprocess.Popen([sys.executable, str(ENGINE), str(port)]))
        stack.callback(alone.terminate)
        until(lambda: _answers(port))
        yield Side(live.ports[0]), Side(port), live


def _serve(live: Live) -> None:
    command = [sys.executable, str(ENGINE), "{port}"]
    body = {"name": "paced", "engine": "http", "parameters": {"command": command}, "max_concurrent_requests": MOST}
    answer = live.post("/api/services", body)
    answer.raise_for_status()
    until(lambda: live.get("/api/services/paced")["ready"] == 1)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        return _asked(http.client.HTTPConnection("127.0.0.1", port), Side(port)) > 0
    return False


# -- a request ------------------------------------------------------------------------------------------------------


def _asked(connection: http.client.HTTPConnection, side: Side) -> float:
    """Return the seconds of one request."""
    body = json.dumps({"model": "paced", "prompt": "once", "max_tokens": 1})
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    began = time.perf_counter()
    connection.request("POST", "/v1/completions", body, headers)
    answer = connection.getresponse()
    assert answer.status == 200 and b" tok" in answer.read(), answer.status
    return time.perf_counter() - began


def _added(ours: Side, peer: Side) -> Row:
    """Return the median of a request through the gateway and of one without, asked one after the other."""
    with contextlib.ExitStack() as stack:
        mine, other = (
            stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", side.port)))
            for side in (ours, peer)
        )

        def median(connection: http.client.HTTPConnection, side: Side) -> float:
            return 1000 * statistics.median(_asked(connection, side) for _ in range(REQUESTS))

        through, direct = in_turns(lambda: median(mine, ours), lambda: median(other, peer), ROUNDS, "S1@added-p50")
    added = through - direct
    name = f"the goal; {through:.2f} ms through the gateway, {direct:.2f} ms without"
    return Row(id="S1@added-p50", ours=added, peer=GOAL_ADDED_MS, unit="ms", peer_name=name, less_is_better=True)


# -- streams --------------------------------------------------------------------------------------------------------


async def _streamed(side: Side, tokens: int, pace: float, prompt: str = "hello") -> tuple[int, int]:
    """Return the status of one stream and how many tokens came."""
    asked: dict[str, Any] = {
        "model": "paced",
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "max_tokens": tokens,
        "pace": pace,
    }
    body = json.dumps(asked).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
    writer.write(side.head(len(body)) + body)
    status, count, rest = int((await reader.readline()).split()[1]), 0, b""
    while piece := await reader.read(1 << 16):
        data = rest + piece
        count += data.count(_SIGN)
        rest = data[-len(_SIGN) + 1 :]
    writer.close()
    return status, count


async def _rate(side: Side, tokens: int, pace: float) -> float:
    """Return tokens/s of all streams together."""
    began = time.perf_counter()
    ended = await asyncio.gather(*(_streamed(side, tokens, pace) for _ in range(STREAMS)))
    took = time.perf_counter() - began
    assert all(one == (200, tokens) for one in ended), ended
    return STREAMS * tokens / took


def _streams(ours: Side, peer: Side) -> Iterator[Row]:
    for name, tokens, pace in (("32-streams", TOKENS, PACE), ("32-streams-unpaced", UNPACED_TOKENS, 0)):

        def rate(side: Side, tokens: int = tokens, pace: float = pace) -> float:
            return _run(_rate(side, tokens, pace))

        through, direct = in_turns(lambda: rate(ours), lambda: rate(peer), ROUNDS, f"S1@{name}")
        said = f"the engine asked directly, {f'{pace} tokens/s a stream' if pace else 'as fast as it is read'}"
        yield Row(id=f"S1@{name}", ours=through, peer=direct, unit="tokens/s", peer_name=said)


# -- the bound ------------------------------------------------------------------------------------------------------


async def _held(side: Side, process: psutil.Process) -> tuple[int, int, float]:
    """Return how many streams of MOST that pass and MOST that wait ended, how many beyond were refused, and MiB."""
    prompt, before = "x" * PROMPT_BYTES, process.memory_info().rss
    first = [asyncio.create_task(_streamed(side, 60, 20, prompt)) for _ in range(2 * MOST)]
    await asyncio.sleep(2)
    beyond = await asyncio.gather(*(_streamed(side, 1, 0, prompt) for _ in range(BEYOND)))
    grown = (process.memory_info().rss - before) / (1 << 20)
    ended = await asyncio.gather(*first)
    return sum(one == (200, 60) for one in ended), sum(status == 429 for status, _ in beyond), grown


def _at_the_bound(ours: Side, live: Live) -> Iterator[Row]:
    process = psutil.Process(live.processes["coordinator-0"].pid)
    ended, refused, grown = _run(_held(ours, process))
    name = f"all of those that pass and wait, prompts of {PROMPT_BYTES >> 10} KiB; {grown:.0f} MiB more for them"
    yield Row(id="S1@bound-answered", ours=ended, peer=2 * MOST, unit="", peer_name=name)
    said = "all beyond: 429"
    yield Row(id="S1@bound-refused", ours=refused, peer=BEYOND, unit="", peer_name=said)


def _run(what: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(what)

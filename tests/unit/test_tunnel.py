"""Tests streams through one channel: every byte once and in order, with slow readers and disconnections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from jobs.network.tunnel import MAX_MESSAGE, MAX_STREAMS, WINDOW, InvalidMessage, Kind, Stream, Tunnel


class Pair:
    """Two connected ends. Opened streams answer with the data that they receive."""

    def __init__(self) -> None:
        self.left = Tunnel(lambda data: self._pass(self.right, data))
        self.right = Tunnel(lambda data: self._pass(self.left, data), self._accept)
        self.ports: list[int] = []
        self.accepted: list[Stream] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.serve: Any = echo

    async def _pass(self, to: Tunnel, data: bytes) -> None:
        assert len(data) <= MAX_MESSAGE
        await asyncio.sleep(0)
        to.hear(data)

    def _accept(self, stream: Stream, port: int) -> None:
        self.ports.append(port)
        self.accepted.append(stream)
        task = asyncio.get_running_loop().create_task(self.serve(stream))
        self.tasks.add(task)


async def echo(stream: Stream) -> None:
    while data := await stream.read(10_000):
        await stream.write(data)
    await stream.end()


async def nothing(stream: Stream) -> None:
    pass


async def whole(stream: Stream) -> bytes:
    got = bytearray()
    while data := await stream.read(random.randint(1, 1 << 16)):
        got += data
    return bytes(got)


def run(what: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(what, 60))


def test_streams_bring_every_byte_in_order_beside_each_other() -> None:
    async def one(pair: Pair, seed: int) -> None:
        sent = random.Random(seed).randbytes(3 * WINDOW + seed)
        stream = await pair.left.open(8000 + seed)

        async def write() -> None:
            await stream.write(sent)
            await stream.end()

        writing = asyncio.create_task(write())
        assert await whole(stream) == sent
        await writing
        await stream.close()

    async def all_of_them() -> None:
        pair = Pair()
        await asyncio.gather(*(one(pair, seed) for seed in range(8)))
        assert sorted(pair.ports) == list(range(8000, 8008))
        await asyncio.gather(*pair.tasks)

    run(all_of_them())


def test_a_stream_that_nobody_reads_holds_up_its_writer_and_no_other() -> None:
    async def held() -> None:
        pair = Pair()
        pair.serve = nothing
        slow = await pair.left.open(1)
        writing = asyncio.create_task(slow.write(bytes(2 * WINDOW)))
        await asyncio.sleep(0.05)
        assert not writing.done()
        pair.serve = echo
        quick = await pair.left.open(2)
        await quick.write(b"hello")
        assert await quick.read(100) == b"hello"
        got = 0
        while got < 2 * WINDOW:
            got += len(await pair.accepted[0].read(1 << 20))
        await writing
        assert got == 2 * WINDOW

    run(held())


def test_what_was_sent_before_the_end_is_read_and_then_the_end() -> None:
    async def ended() -> None:
        pair = Pair()

        async def answer(stream: Stream) -> None:
            await stream.write(b"all of it")
            await stream.end()
            await stream.close()

        pair.serve = answer
        stream = await pair.left.open(1)
        await asyncio.gather(*pair.tasks)
        assert stream.is_readable
        assert [await stream.read(3), await stream.read(99), await stream.read(99)] == [b"all", b" of it", b""]
        with pytest.raises(BrokenPipeError):
            await stream.write(b"more")

    run(ended())


def test_a_tunnel_that_closes_breaks_off_those_who_read_and_write() -> None:
    async def broken() -> None:
        pair = Pair()
        pair.serve = nothing
        reads, writes = await pair.left.open(1), await pair.left.open(2)
        tasks = [asyncio.create_task(reads.read(1)), asyncio.create_task(writes.write(bytes(2 * WINDOW)))]
        await asyncio.sleep(0.05)
        pair.left.close()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [ConnectionResetError, BrokenPipeError]
        with pytest.raises(ConnectionError):
            await pair.left.open(3)
        await reads.close()

    run(broken())


def test_no_more_streams_are_open_than_there_may_be_and_those_that_ended_do_not_count() -> None:
    async def many() -> None:
        pair = Pair()
        pair.serve = nothing
        for _ in range(2 * MAX_STREAMS):
            await (await pair.left.open(1)).close()
        open_now = [await pair.left.open(1) for _ in range(MAX_STREAMS)]
        with pytest.raises(ConnectionRefusedError):
            await pair.left.open(1)
        await open_now[0].close()
        await pair.left.open(1)

    run(many())


NONSENSE = {
    "empty": b"",
    "short": b"\2\0",
    "unknown": b"\x09\0\0\0\1",
    "no port": b"\1\0\0\0\2",
    "no count": bytes([Kind.CREDIT]) + b"\0\0\0\1" + b"\0",
    "too much credit": bytes([Kind.CREDIT]) + b"\0\0\0\1" + b"\xff\xff\xff\xff",
    "opened again": b"\1\0\0\0\1\0\0\0\5",
    "more than a window": bytes([Kind.DATA]) + b"\0\0\0\1" + bytes(WINDOW + 1),
}


@pytest.mark.parametrize("message", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_told_and_changes_nothing(message: bytes) -> None:
    async def told() -> None:
        pair = Pair()
        pair.serve = nothing
        await pair.left.open(1)
        with pytest.raises(InvalidMessage):
            pair.right.hear(message)

    run(told())


def test_a_coordinator_takes_in_no_stream_and_what_belongs_to_none_is_passed_over() -> None:
    async def passed_over() -> None:
        pair = Pair()
        with pytest.raises(InvalidMessage):
            pair.left.hear(b"\1\0\0\0\1\0\0\0\5")
        for kind in (Kind.BEAT, Kind.DATA, Kind.CREDIT, Kind.END, Kind.CLOSE):
            pair.left.hear(bytes([kind]) + b"\0\0\0\7" + bytes(4))
        with suppress(ConnectionError):
            await pair.left.beat()

    run(passed_over())


def test_an_end_that_does_not_read_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.network.tunnel.SILENT_SECONDS", 0.1)

    async def stuck(_data: bytes) -> None:
        await asyncio.Event().wait()

    async def all_of_them() -> None:
        tunnel = Tunnel(stuck)
        several = await asyncio.gather(*(tunnel.open(port) for port in range(1, 5)), return_exceptions=True)
        assert all(isinstance(one, ConnectionResetError) for one in several) and tunnel.closed
        with pytest.raises(InvalidMessage, match="closed"):
            tunnel.hear(bytes(5))

    run(all_of_them())

"""Listeners to the stream of events that read what comes: python -m benchmarks.load.listeners PORT COUNT

Once each has its first bytes, prints a line a second, as JSON: bytes read since the start and seconds of CPU. Ends with
its stdin.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop


class Listener(asyncio.Protocol):
    """One stream; counts what it reads in `read`."""

    #: Bytes that all listeners of this process have read.
    read = 0

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(
            b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        Listener.read += len(data)
        if not self.begun.is_set():
            assert data.startswith(b"HTTP/1.1 200"), data
            self.begun.set()


async def main(port: int, count: int) -> None:
    """Listen until stdin ends."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    streams = [(await loop.create_connection(Listener, "127.0.0.1", port))[1] for _ in range(count)]
    await asyncio.gather(*(stream.begun.wait() for stream in streams))
    while not ended.is_set():
        print(json.dumps({"read": Listener.read, "cpu": time.process_time()}), flush=True)
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))

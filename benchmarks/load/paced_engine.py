"""Stand-in for an engine that costs nothing: `python paced_engine.py PORT [ADDRESS]`.

Answers GET at once, POST with one token, and a POST with `"stream": true` with `max_tokens` frames at `pace` a second;
pace 0: as fast as they are read. It knows nothing of keys.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

import uvloop

_FRAME = b'data: {"choices":[{"index":0,"delta":{"content":" tok"}}]}\n\n'
_USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d}}\n\n'
_DONE = b"data: [DONE]\n\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n\r\n"
_WHOLE = json.dumps({"choices": [{"text": " tok"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()


async def _stream(writer: asyncio.StreamWriter, count: int, pace: float) -> None:
    writer.write(_HEAD % (b"text/event-stream", b"Connection: close"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(count):
        if pace:
            await asyncio.sleep(began + (number + 1) / pace - loop.time())
        writer.write(_FRAME)
        await writer.drain()
    writer.write(_USAGE % count + _DONE)
    await writer.drain()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answer one request; False after a stream, whose end is the connection's."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    sizes = [int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length")]
    body = json.loads(await reader.readexactly(sizes[0])) if sizes else {}
    if body.get("stream"):
        await _stream(writer, int(body["max_tokens"]), float(body.get("pace", 0)))
        return False
    writer.write(_HEAD % (b"application/json", b"Content-Length: %d" % len(_WHOLE)) + _WHOLE)
    await writer.drain()
    return True


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while await _answer(reader, writer):
            pass
    writer.close()


async def _main(port: int, address: str) -> None:
    server = await asyncio.start_server(_serve, address, port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), *(sys.argv[2:] or ["127.0.0.1"])))

"""A program on a host: its output as it comes, its exit code, and an end that leaves nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from threads_cluster.client.output import Stream
from threads_cluster.ssh import guard
from threads_cluster.ssh.configuration import Node
from threads_cluster.ssh.pool import Pool
from threads_cluster.ssh.refusals import Passing

#: Some output of a program; None: it has ended.
Piece: TypeAlias = tuple[Stream, bytes] | None
_SOURCE = Path(guard.__file__).read_text()
#: Reads the request, and runs what is in it; no secret is among the words of a process.
_READ = "import json,sys;r=json.loads(sys.stdin.buffer.readline());exec(r['source']);main(r)"
_PIECE_BYTES = 64 << 10
#: Pieces that wait to be written here; then the program waits.
_PIECES = 16
#: Times that somebody is said to wait within the time after which nobody is.
_SIGNS = 4


@dataclass(frozen=True, kw_only=True)
class Program:
    """Program that is to run."""

    words: Sequence[str]
    #: From the root of the host.
    folder: str
    env: Mapping[str, str] = field(default_factory=dict)
    #: Seconds until it is ended; 0: never.
    timeout_seconds: float = 0.0


class Remote:
    """One start of a program on a host. Used in the pool's event loop."""

    def __init__(self, pool: Pool, node: Node, program: Program) -> None:
        self._pool, self._node, self._program = pool, node, program
        #: Seconds without a sign from here after which the host ends the program.
        self.silent_seconds = pool.config.ssh.timeout
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue(_PIECES)
        self._process: Any = None
        self._last_sign = monotonic()
        self._open = contextlib.AsyncExitStack()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start it. HostTrouble where that cannot be asked for."""
        connection = await self._open.enter_async_context(self._pool.channel(self._node))
        python = shell_path(self._node.python or "python3")
        self._process = await connection.create_process(f'exec {python} -c "{_READ}"', encoding=None)
        request = {
            "source": _SOURCE,
            "words": list(self._program.words),
            "folder": self._program.folder,
            "env": dict(self._program.env),
            "silent_seconds": self.silent_seconds,
            "timeout_seconds": self._program.timeout_seconds,
        }
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._last_sign = monotonic()
        readers = [self._read("stdout", self._process.stdout), self._read("stderr", self._process.stderr)]
        self.tasks = [asyncio.ensure_future(self._all(readers)), asyncio.ensure_future(self._say_waiting())]

    async def _all(self, readers: Sequence[Any]) -> None:
        await asyncio.gather(*readers)
        await self._pieces.put(None)

    async def _read(self, stream: Stream, reader: Any) -> None:
        with contextlib.suppress(Exception):  # the connection was lost, which the missing exit code tells
            while data := await reader.read(_PIECE_BYTES):
                await self._pieces.put((stream, data))

    async def _say_waiting(self) -> None:
        with contextlib.suppress(Exception):
            while True:
                await asyncio.sleep(self.silent_seconds / _SIGNS)
                self._process.stdin.write(b".")
                self._last_sign = monotonic()

    async def piece(self) -> Piece:
        """Return what it has written; None at its end."""
        return await self._pieces.get()

    async def code(self) -> int:
        """Return its exit code, 128 and its number for a signal. Passing where the connection was lost before."""
        with contextlib.suppress(Exception):
            await self._process.wait_closed()
        status = self._process.exit_status
        await self.leave()
        if status is None or self._process.exit_signal:
            raise Passing(self._node, "the connection was lost while the program ran")
        return int(status)

    async def end(self) -> None:
        """Have the host end it and all that it has started; `piece` then comes to its end."""
        for task in self.tasks[1:]:
            task.cancel()
        with contextlib.suppress(Exception):
            self._process.stdin.write_eof()

    async def leave(self) -> None:
        """Free what this start holds."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._process is not None:
            self._process.close()
        with contextlib.suppress(Exception):
            await self._open.aclose()

    def quiet_seconds(self) -> float:
        """Seconds until the host has ended it for sure, had the last sign from here been the last it has heard."""
        return self._last_sign + self.silent_seconds + guard.GRACE_SECONDS + 1 - monotonic()


def shell_path(path: str) -> str:
    """Return a path as a word of any shell; ~/ is the home there."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)

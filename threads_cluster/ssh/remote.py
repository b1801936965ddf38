"""Execution of a program on a host over SSH: stream its output, return its exit code, and end all its processes."""

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
from threads_cluster.ssh.refusals import TransientTrouble

#: Output of a program, or None after the program has exited.
Piece: TypeAlias = tuple[Stream, bytes] | None
_SOURCE = Path(guard.__file__).read_text()
#: Command that reads the request from stdin and executes it. Secrets do not appear in process arguments.
_READ = "import json,sys;r=json.loads(sys.stdin.buffer.readline());exec(r['source']);main(r)"
_PIECE_BYTES = 64 << 10
#: Maximum number of unread pieces of output. Beyond this number, the program blocks.
_PIECES = 16
#: Number of keep-alive bytes that are sent within the silence timeout.
_SIGNS = 4


@dataclass(frozen=True, kw_only=True)
class Program:
    """Program to run on a host, with its settings."""

    words: Sequence[str]
    #: Working directory on the host, as an absolute path.
    folder: str
    env: Mapping[str, str] = field(default_factory=dict)
    #: Timeout in seconds. 0 means no timeout.
    timeout_seconds: float = 0.0


class Remote:
    """Run of a program on a host. Use it in the event loop of the connection pool."""

    def __init__(self, pool: Pool, node: Node, program: Program) -> None:
        self._pool, self._node, self._program = pool, node, program
        #: Seconds without keep-alive bytes after which the host kills the program.
        self.silent_seconds = pool.config.ssh.timeout
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue(_PIECES)
        self._process: Any = None
        self._last_sign = monotonic()
        self._open = contextlib.AsyncExitStack()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the program. Raises HostTrouble if the host cannot be reached."""
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
        with contextlib.suppress(Exception):  # A missing exit code reports that the connection was lost
            while data := await reader.read(_PIECE_BYTES):
                await self._pieces.put((stream, data))

    async def _say_waiting(self) -> None:
        with contextlib.suppress(Exception):
            while True:
                await asyncio.sleep(self.silent_seconds / _SIGNS)
                self._process.stdin.write(b".")
                self._last_sign = monotonic()

    async def piece(self) -> Piece:
        """Return the next output of the program, or None after the program has exited."""
        return await self._pieces.get()

    async def code(self) -> int:
        """Return the exit code of the program, or 128+n after signal n. Raises TransientTrouble for a lost
        connection.
        """
        with contextlib.suppress(Exception):
            await self._process.wait_closed()
        status = self._process.exit_status
        await self.leave()
        if status is None or self._process.exit_signal:
            raise TransientTrouble(self._node, "lost the connection while the program was running")
        return int(status)

    async def end(self) -> None:
        """Make the host kill the program and all of its child processes. Soon afterwards, `piece` returns None."""
        for task in self.tasks[1:]:
            task.cancel()
        with contextlib.suppress(Exception):
            self._process.stdin.write_eof()

    async def leave(self) -> None:
        """Release the connection and stop all tasks of this run."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._process is not None:
            self._process.close()
        with contextlib.suppress(Exception):
            await self._open.aclose()

    def quiet_seconds(self) -> float:
        """Return the seconds after which the host has certainly killed the program."""
        return self._last_sign + self.silent_seconds + guard.GRACE_SECONDS + 1 - monotonic()


def shell_path(path: str) -> str:
    """Quote a path for any shell. A path that starts with ~/ is in the home directory on the host."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)

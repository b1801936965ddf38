"""Program that stays alive between units. It reads each unit as a line of JSON, and answers with a line of JSON.

The program's stdin is a socket: the program reads units from it, and writes its answers to the same descriptor.
"""

from __future__ import annotations

import contextlib
import json
import math
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.programs import processes, values
from runner.programs.guard_messages import Order, ProgramEnd
from runner.programs.slot import GuardDied, Slot, make_drain

#: Maximum size of an answer in bytes, with its line end.
MOST_ANSWER = (1 << 20) + (64 << 10)
#: Maximum number of bytes per read of an answer.
_READ_BYTES = 1 << 16
#: Maximum number of descriptors that Linux sends at once.
_MOST_DESCRIPTORS = 253
#: Seconds in which a program that has closed its stdin must exit. Then it is killed.
EXIT_SECONDS = 1.0


class BadAnswer(Exception):
    """The program's answer is not valid. The message contains the reason."""


class PersistentProgram:
    """Program in a slot that runs one unit after another. Not thread-safe."""

    def __init__(self, slot: Slot, order: Order, until: Callable[[], float]) -> None:
        """Start the program. The order's timeout is ignored, because each unit has its own. Raises GuardDied."""
        self._slot = slot
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._sink: Callable[[int, bytes], None] = lambda *_: None
        self._drain, outputs = make_drain(self._write_output)
        self._ended: ProgramEnd | None = None
        #: Exchange of a unit that was sent after the answer to the unit before.
        self._sent: _Exchange | None = None
        slot.start(replace(order, timeout_seconds=0.0), [theirs.detach(), *outputs], until)

    @property
    def alive(self) -> bool:
        """Return True if the program can run another unit."""
        return self._ended is None and self._sent is None and not _is_readable(self._ours)

    @property
    def has_next(self) -> bool:
        """Return True if the program has received the next unit already. Call `run` for it next."""
        return self._sent is not None

    def run(
        self,
        unit: Mapping[str, Any] | None,
        sink: Callable[[int, bytes], None],
        look: Callable[[], float | None],
        until: Callable[[], float],
        descriptors: Sequence[int] = (),
        following: Callable[[dict[str, Any]], Mapping[str, Any] | None] = lambda answer: None,
    ) -> dict[str, Any] | ProgramEnd:
        """Run a unit, and return the program's answer, or how the program ended instead.

        `unit` is None for a unit that the program has received already. `descriptors` are sent with the unit.
        `following` is called with the answer. It can return the next unit, so that the program does not wait until the
        answer is stored. The other parameters are those of `Slot.run`. Raises GuardDied, and BadAnswer. The program
        must then be closed.
        """
        self._sink, began = sink, time.monotonic()
        exchange = self._sent or _Exchange(self._ours, _encode(unit), descriptors)
        self._sent = None
        supervision = _Supervision(look)
        try:
            self._ended = self._slot.exchange(exchange, self._drain, supervision.look, until)
            if self._ended is None and exchange.closed:
                supervision.end_after(EXIT_SECONDS)
                self._ended = self._slot.exchange(_Silence(), self._drain, supervision.look, until)
        except GuardDied:
            self._ended = ProgramEnd(code=128 + signal.SIGKILL)
            raise
        if supervision.expired:
            raise BadAnswer("the program closed its stdin without an answer, and did not exit")
        if self._ended is not None:
            return replace(self._ended, seconds=time.monotonic() - began)
        self._read_rest()
        answer = exchange.answer()
        if (more := following(answer)) is not None:
            self._sent = _Exchange(self._ours, _encode(more))
            self._sent.proceed(select.POLLOUT)
        return answer

    def _write_output(self, stream: int, data: bytes) -> None:
        self._sink(stream, data)

    def _read_rest(self) -> None:
        """Read the output that the program wrote before its answer."""
        while pipes := [pipe for pipe in self._drain.pipes() if _is_readable(pipe)]:
            for pipe in pipes:
                self._drain.read(pipe)

    def rest(self) -> None:
        """Let the program wait for the next unit without a time limit. Its further output belongs to no unit."""
        self._sink = lambda *_: None
        self._slot.keep(math.inf)

    def memory_bytes(self) -> int:
        """Return the resident memory of the program and its descendants."""
        return processes.memory_bytes(processes.descendants(self._slot.pid))

    def close(self) -> None:
        """Kill the program and wait until all of its processes have exited. Raises GuardDied."""
        try:
            if self._ended is None:
                self._slot.stop(0.0)
                self._ended = self._slot.exchange(_Silence(), self._drain, lambda: None, lambda: math.inf)
        finally:
            self._drain.close()
            self._ours.close()


class _Supervision:
    """Checks of a running unit. A program that has closed its stdin is also stopped after some time."""

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self._stopping = False
        self._end_at = math.inf
        #: True if the program was stopped because it did not exit in time.
        self.expired = False

    def end_after(self, seconds: float) -> None:
        """Stop the program after some seconds, unless it is stopping already."""
        self._end_at = math.inf if self._stopping else time.monotonic() + seconds

    def look(self) -> float | None:
        if self._stopping:
            return None
        grace = self._look()
        if grace is None and time.monotonic() > self._end_at:
            self.expired, grace = True, 0.0
        self._stopping = grace is not None
        return grace


class _Exchange:
    """One unit that is sent, and its answer."""

    def __init__(self, ours: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
        self._ours, self._left = ours, memoryview(message)
        #: Descriptors that are sent together with the first bytes of the message, as many as possible with each byte.
        self._descriptors = descriptors
        self._received = bytearray()
        #: True if the program has exited, or has closed its stdin.
        self.closed = False

    def fileno(self) -> int:
        return self._ours.fileno()

    def events(self) -> int:
        return select.POLLIN | (select.POLLOUT if self._left else 0)

    def proceed(self, events: int) -> bool:
        with contextlib.suppress(BlockingIOError, OSError):
            if self._left and events & select.POLLOUT:
                self._left = self._left[self._send() :]
        if events & ~select.POLLOUT:
            self._receive()
        return self.closed or b"\n" in self._received or len(self._received) > MOST_ANSWER

    def _send(self) -> int:
        if not self._descriptors:
            return self._ours.send(self._left)
        first, rest = self._descriptors[:_MOST_DESCRIPTORS], self._descriptors[_MOST_DESCRIPTORS:]
        sent = socket.send_fds(self._ours, [self._left[:1] if rest else self._left], list(first))
        self._descriptors = rest
        return sent

    def _receive(self) -> None:
        try:
            data = self._ours.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.closed = not data
        self._received += data

    def answer(self) -> dict[str, Any]:
        """Return the answer. Raises BadAnswer."""
        line, end, rest = self._received.partition(b"\n")
        if not end:
            raise BadAnswer(f"the program's answer exceeds {MOST_ANSWER} bytes")
        if self._left or rest:
            raise BadAnswer("the program answered before it had read the unit, or more than once")
        try:
            answer = values.parse(bytes(line))
        except (ValueError, RecursionError) as error:
            raise BadAnswer(f"the program's answer is invalid: {error}") from error
        if not isinstance(answer, dict):
            raise BadAnswer(f"the program's answer must be a JSON object, not {type(answer).__name__}")
        return answer


class _Silence:
    """Conversation in which nothing is said: the program is only waited for."""

    def fileno(self) -> int:
        return -1

    def events(self) -> int:
        return 0

    def proceed(self, events: int) -> bool:
        return False


def _encode(unit: Mapping[str, Any] | None) -> bytes:
    return json.dumps(unit, separators=(",", ":")).encode() + b"\n"


def _is_readable(descriptor: socket.socket | int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))

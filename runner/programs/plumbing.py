"""Descriptors between a shell and who is attached to it: a terminal, or three pipes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios

#: Bytes of one read.
_READ_BYTES = 16 << 10


class Plumbing:
    """Our ends, which never block, and `theirs`: a shell's stdin, stdout and stderr, for whoever passes them on.

    One thread reads, another one writes.
    """

    def __init__(self, theirs: tuple[int, int, int], keyboard: int, outputs: dict[int, str]) -> None:
        self.theirs = theirs
        self._keyboard: int | None = keyboard
        #: Those that may have more, and the name of each one's stream.
        self._outputs = outputs
        self._ours = {keyboard, *outputs}
        for descriptor in self._ours:
            os.set_blocking(descriptor, False)

    def read(self, seconds: float) -> tuple[str, bytes] | None:
        """Return a stream and bytes that came from it, empty for none within that time; None: no more can come.

        Of a terminal that nobody has open more can come: its session may open it again.
        """
        if not self._outputs:
            return None
        poll = select.poll()
        for descriptor in self._outputs:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * seconds):
            stream = self._outputs[descriptor]
            with contextlib.suppress(BlockingIOError):
                if data := self._read(descriptor):
                    return stream, data
                del self._outputs[descriptor]
        return "o", b""

    @staticmethod
    def _read(descriptor: int) -> bytes:
        return os.read(descriptor, _READ_BYTES)

    def write(self, data: bytes, seconds: float) -> int:
        """Pass input on; return how many bytes were taken within that time, all where the shell reads none any more."""
        if self._keyboard is None:
            return len(data)
        poll = select.poll()
        poll.register(self._keyboard, select.POLLOUT)
        if not poll.poll(1000 * seconds):
            return 0
        try:
            return os.write(self._keyboard, data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def end_input(self) -> None:
        """Let the shell read the end of its input. At a terminal people type that."""
        if self._keyboard is not None and self._keyboard not in self._outputs:
            os.close(self._keyboard)
            self._ours.discard(self._keyboard)
            self._keyboard = None

    def resize(self, rows: int, columns: int) -> None:
        """Say how large the terminal is; of pipes nothing."""

    def close_theirs(self) -> None:
        """Close the shell's ends, where they were passed to nobody."""
        for descriptor in self.theirs:
            os.close(descriptor)

    def close(self) -> None:
        """Close our ends."""
        for descriptor in self._ours:
            os.close(descriptor)
        self._ours, self._outputs, self._keyboard = set(), {}, None


class Terminal(Plumbing):
    """A pseudo-terminal; `uid` may open it by its name."""

    def __init__(self, rows: int, columns: int, uid: int | None = None) -> None:
        ours, theirs = os.openpty()
        if uid is not None:
            os.fchown(theirs, uid, -1)
        super().__init__((theirs, os.dup(theirs), os.dup(theirs)), ours, {ours: "o"})
        self._descriptor = ours
        self.resize(rows, columns)

    @staticmethod
    def _read(descriptor: int) -> bytes:
        try:
            return os.read(descriptor, _READ_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise HungUp from None

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class HungUp(Exception):
    """Nobody has the terminal open now."""


def pipes() -> Plumbing:
    """Return three pipes."""
    (stdin, keyboard), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
    return Plumbing((stdin, stdout, stderr), keyboard, {out: "o", err: "e"})

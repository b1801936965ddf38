"""Standard streams of an attached shell: a terminal or three pipes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios

#: Maximum number of bytes per read.
_READ_BYTES = 16 << 10


class Streams:
    """Non-blocking ends of a shell's standard streams. `theirs` are the ends that the shell gets.

    The caller passes them on. One thread can read while another one writes.
    """

    def __init__(self, theirs: tuple[int, int, int], keyboard: int, outputs: dict[int, str]) -> None:
        self.theirs = theirs
        self._keyboard: int | None = keyboard
        #: Stream name of each open output descriptor.
        self._outputs = outputs
        self._ours = {keyboard, *outputs}
        for descriptor in self._ours:
            os.set_blocking(descriptor, False)

    def read(self, seconds: float) -> tuple[str, bytes] | None:
        """Return a stream's name and its next bytes. Return None if all streams have ended.

        The bytes are empty after the timeout. A terminal never ends, because the session can open it again.
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
        """Write input for the shell until the timeout, and return the number of bytes written.

        If the shell has closed its input, all bytes count as written.
        """
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
        """Close the standard input of the shell. Does nothing for a terminal, where users type an end-of-file
        character.
        """
        if self._keyboard is not None and self._keyboard not in self._outputs:
            os.close(self._keyboard)
            self._ours.discard(self._keyboard)
            self._keyboard = None

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal. Does nothing for pipes."""

    def close_theirs(self) -> None:
        """Close the shell's ends of the streams, unless a process has received them."""
        for descriptor in self.theirs:
            os.close(descriptor)

    def close(self) -> None:
        """Close this process' ends of the streams."""
        for descriptor in self._ours:
            os.close(descriptor)
        self._ours, self._outputs, self._keyboard = set(), {}, None


class Terminal(Streams):
    """Pseudo-terminal of a shell. The Unix user `uid` can open it by name."""

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
    """No process has the terminal open any more."""


def pipes() -> Streams:
    """Return the standard streams of a shell without a terminal, which are three pipes."""
    (stdin, keyboard), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
    return Streams((stdin, stdout, stderr), keyboard, {out: "o", err: "e"})

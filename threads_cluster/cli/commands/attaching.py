"""The command `cluster attach`, which opens a shell in a running unit, with a terminal or with pipes."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from threads_cluster import errors, settings
from threads_cluster.cli import show
from threads_cluster.cli.running import CLUSTER_FAILURE, check_reader, ending_signals, note, write
from threads_cluster.cli.session import Session
from threads_cluster.client.attachments import Attachment, Shown, Terminal

#: Timeout in seconds for a request for output.
_WAIT_SECONDS, _LATE_SECONDS = 10.0, 8.0
#: Minimum interval in seconds between requests while a shell prints much output.
#: Number of bytes above which a response counts as much output.
_PACE_SECONDS, _MUCH = 0.02, 4096
_READ_BYTES = 16 << 10
#: Interval in seconds between keep-alive requests while the user types nothing.
_ALIVE_SECONDS = 10.0
#: Pattern of valid values for the environment variable TERM.
_NAME = re.compile(r"[A-Za-z0-9._+-]{1,64}")
#: Keys that close the shell if they are typed at the start of a line, as in ssh.
_LEAVE = b"~."
#: Messages to users for the reasons why a shell ended.
_WHY = {
    "program": "the program exited, which ended its shell",
    "silent": "this client was silent for 30 s, so the cluster ended the shell",
    "lost": "the runner is not responding; the shell ends when the runner exits or its lease expires",
    "lease": "the runner lost its lease of the unit, which ended the shell",
    "off": "the runner does not allow shells (RUNNER_ATTACH=0)",
    "left": "another client ended the shell",
    "memory": "the shell was killed because it exceeded the program's memory limit",
    "processes": "the shell was killed because it had too many processes",
}


def attach(session: Session, job_id: str, unit: int, command: Sequence[str] | None, *, terminal: bool | None) -> int:
    """Run a shell in a unit until it exits, and return its exit code. SIGTERM and SIGHUP close the shell.

    An early Ctrl-C also closes it. If `terminal` is None, the shell gets a terminal if stdin and stdout are terminals.
    """
    with_terminal = sys.stdin.isatty() and sys.stdout.isatty() if terminal is None else terminal
    typing = session.another()
    attachment = session.cluster.attachment(job_id, typing)
    for cluster in (session.cluster, typing):
        cluster.notify(lambda error: show.say(f"\r{error}; retrying\r"))
    with ending_signals() as received:
        try:
            asked = attachment.ask(unit, command, _size() if with_terminal else None)
            return _Attached(attachment, unit, asked["unit_state"], with_terminal=with_terminal).serve()
        except KeyboardInterrupt:
            _leave(attachment)
            return 128 + (received[0] if received else signal.SIGINT)
        except BaseException:
            _leave(attachment)
            raise


def _leave(attachment: Attachment) -> None:
    with suppress(errors.ClientError, KeyboardInterrupt):
        attachment.leave()


def _size() -> Terminal:
    name, columns, rows = settings.variable("TERM") or "", 80, 24
    with suppress(OSError):
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
    return Terminal(rows=max(1, rows), columns=max(1, columns), name=name if _NAME.fullmatch(name) else "xterm")


class _Attached:
    """Local side of a shell that runs on a runner."""

    def __init__(self, attachment: Attachment, unit: int, unit_state: str, *, with_terminal: bool) -> None:
        self._attachment, self._unit, self._with_terminal = attachment, unit, with_terminal
        self._asked_at = time.monotonic()
        self._said = ""
        self._keys = _InputThread(attachment, with_terminal=with_terminal)
        self._say_waits(unit_state)

    def serve(self) -> int:
        """Print the output of the shell until it ends, and return its exit code."""
        with _raw(self._with_terminal, self._keys.wake) as make_raw:
            try:
                shown = self._show(make_raw)
            finally:
                self._keys.stop()
        return self._ended(shown)

    def _show(self, make_raw: Callable[[], None]) -> Shown:
        upto, began = 0, False
        while True:
            shown = self._attachment.read(upto, _WAIT_SECONDS)
            if shown.state != "asked" and not began:
                began = True
                make_raw()
                self._keys.start()
            for stream, data in shown.pieces:
                write(stream, data)
            upto = shown.upto
            if shown.state == "ended" and not shown.pieces:
                return shown
            self._keys.check()
            check_reader()
            if not began:
                self._say_waits(shown.unit_state)
            if sum(len(data) for _, data in shown.pieces) > _MUCH:
                time.sleep(_PACE_SECONDS)

    def _say_waits(self, unit_state: str) -> None:
        late = time.monotonic() - self._asked_at > _LATE_SECONDS
        text = ""
        if unit_state != "running":
            text = (
                f"unit {self._unit} is {unit_state}; the shell starts when the unit runs. Press Ctrl-C to stop waiting."
            )
        elif late:
            text = "the runner has not started the shell yet"
        if text and text != self._said:
            self._said = text
            note(text)

    def _ended(self, shown: Shown) -> int:
        if self._keys.left:
            note("detached; the program keeps running")
            return 0
        if shown.reason:
            note(_WHY.get(shown.reason, shown.reason))
        return CLUSTER_FAILURE if shown.exit is None else shown.exit


class _InputThread(threading.Thread):
    """Thread that sends stdin and changes of the terminal's size to the shell."""

    def __init__(self, attachment: Attachment, *, with_terminal: bool) -> None:
        super().__init__(name="keys", daemon=True)
        self._attachment, self._with_terminal = attachment, with_terminal
        self._woken, self._wakes = os.pipe()
        self._ended = False
        self._error: BaseException | None = None
        self._line_begins, self._kept = True, b""
        #: True if the user closed the shell.
        self.left = False

    def run(self) -> None:
        """Send stdin to the shell until stdin or the shell ends."""
        try:
            self._type()
        except errors.ApiError as error:
            if error.status != 404:  # 404 means that the shell has ended
                self._error = error
        except BaseException as error:
            self._error = error

    def _type(self) -> None:
        """Send stdin to the shell. While the user types nothing, send keep-alive requests.

        The thread that reads output cannot send them, because it can be blocked.
        """
        stdin = sys.stdin.fileno()
        heard, goes_on = [self._woken, stdin], self._attachment.write(b"", size=self._size())
        while goes_on and not self._ended:
            ready, _, _ = select.select(heard, [], [], _ALIVE_SECONDS)
            if self._woken in ready:
                os.read(self._woken, 4096)
                goes_on = self._ended or self._attachment.write(b"", size=self._size())
            elif stdin in ready:
                data = os.read(stdin, _READ_BYTES)
                goes_on = self._pass_on(data)
                if not data:
                    heard.remove(stdin)
            else:
                goes_on = self._attachment.write(b"")

    def _pass_on(self, data: bytes) -> bool:
        """Send keys or the end of stdin to the shell. Return False if the shell has ended."""
        typed = self._without_leave(data) if self._with_terminal else data
        if self.left:
            self._attachment.leave(typing=True)
            return False
        return (not typed and bool(data)) or self._attachment.write(typed, closed=not data)

    def _without_leave(self, data: bytes) -> bytes:
        """Remove escape sequences at the start of a line. The sequence ~. closes the shell, and ~~ types a single ~."""
        typed = bytearray()
        for byte in data:
            key = bytes([byte])
            if self._kept:
                self._kept = b""
                if key == _LEAVE[1:]:
                    self.left = True
                    return bytes(typed)
                typed += b"" if key == b"~" else b"~"
            elif self._line_begins and key == _LEAVE[:1]:
                self._kept = key
                continue
            typed += key
            self._line_begins = key in (b"\r", b"\n", b"\x03", b"\x04")
        return bytes(typed)

    def _size(self) -> tuple[int, int] | None:
        if not self._with_terminal:
            return None
        found = _size()
        return found.rows, found.columns

    def wake(self) -> None:
        """Make the thread check whether the size of the terminal has changed."""
        os.write(self._wakes, b"w")

    def check(self) -> None:
        """Raise the error that stopped the thread. If there was no error, do nothing."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop sending input to the shell."""
        self._ended = True
        with suppress(OSError):
            self.wake()


@contextmanager
def _raw(with_terminal: bool, resized: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Yield a function that puts the terminal into raw mode. Afterwards, restore the previous mode.

    `resized` is called when the size of the terminal changes.
    """
    if not with_terminal or not sys.stdin.isatty():
        yield lambda: None
        return
    before, handler = termios.tcgetattr(sys.stdin), signal.getsignal(signal.SIGWINCH)
    signal.signal(signal.SIGWINCH, lambda *_: resized())
    try:
        yield lambda: tty.setraw(sys.stdin)
    finally:
        signal.signal(signal.SIGWINCH, handler)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

"""`cluster attach`: a shell beside a running unit, at this terminal or between pipes."""

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
from threads_cluster.cli.running import OWN, check_reader, ending_signals, note, write
from threads_cluster.cli.session import Session
from threads_cluster.client.attachments import Attachment, Shown, Terminal

#: Seconds of one question for output, and after which one is told that nobody begins the shell.
_WAIT_SECONDS, _LATE_SECONDS = 10.0, 8.0
#: Seconds between two questions while much comes, and bytes that are much.
_PACE_SECONDS, _MUCH = 0.02, 4096
_READ_BYTES = 16 << 10
#: Seconds after which who types nothing says that it is there.
_ALIVE_SECONDS = 10.0
#: TERM as the cluster takes it.
_NAME = re.compile(r"[A-Za-z0-9._+-]{1,64}")
#: What ends the shell here when it stands at the beginning of a line: as in ssh.
_LEAVE = b"~."
#: Reasons for the end of a shell, as people understand them.
_WHY = {
    "program": "the program has ended, and its shell with it",
    "silent": "nothing was heard from here for 30 s, so the cluster ended the shell",
    "lost": "its runner does not answer; the shell ends when the runner or its lease does",
    "lease": "the runner has lost the unit, and the shell with it",
    "off": "its runner allows no shells (RUNNER_ATTACH=0)",
    "left": "the shell was ended from elsewhere",
    "memory": "the shell used more memory than the program may, and was ended",
    "processes": "the shell had too many processes, and was ended",
}


def attach(session: Session, job_id: str, unit: int, command: Sequence[str] | None, *, terminal: bool | None) -> int:
    """Serve a shell to its end; return its exit code. Ctrl-C before it begins, SIGTERM and SIGHUP leave it.

    `terminal` None: where stdin and stdout are one.
    """
    with_terminal = sys.stdin.isatty() and sys.stdout.isatty() if terminal is None else terminal
    typing = session.another()
    attachment = session.cluster.attachment(job_id, typing)
    for cluster in (session.cluster, typing):
        cluster.notify(lambda error: show.say(f"\r{error}; still trying\r"))
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
    """A shell that was asked for, and this end of it."""

    def __init__(self, attachment: Attachment, unit: int, unit_state: str, *, with_terminal: bool) -> None:
        self._attachment, self._unit, self._with_terminal = attachment, unit, with_terminal
        self._asked_at = time.monotonic()
        self._said = ""
        self._keys = _Keys(attachment, with_terminal=with_terminal)
        self._say_waits(unit_state)

    def serve(self) -> int:
        """Show its output to its end; return its exit code."""
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
            text = f"unit {self._unit} is {unit_state}; the shell begins when it runs; Ctrl-C: do not wait"
        elif late:
            text = "its runner has not begun the shell yet"
        if text and text != self._said:
            self._said = text
            note(text)

    def _ended(self, shown: Shown) -> int:
        if self._keys.left:
            note("left; the program goes on")
            return 0
        if shown.reason:
            note(_WHY.get(shown.reason, shown.reason))
        return OWN if shown.exit is None else shown.exit


class _Keys(threading.Thread):
    """Types what comes from stdin, and says when the terminal changes its size."""

    def __init__(self, attachment: Attachment, *, with_terminal: bool) -> None:
        super().__init__(name="keys", daemon=True)
        self._attachment, self._with_terminal = attachment, with_terminal
        self._woken, self._wakes = os.pipe()
        self._ended = False
        self._error: BaseException | None = None
        self._line_begins, self._kept = True, b""
        #: Whoever types has left the shell.
        self.left = False

    def run(self) -> None:
        """Type until the end of stdin or of the shell."""
        try:
            self._type()
        except errors.ApiError as error:
            if error.status != 404:  # the shell has ended
                self._error = error
        except BaseException as error:
            self._error = error

    def _type(self) -> None:
        """Pass on what is typed; without that, say now and then that somebody is there: who reads here may be slow."""
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
        """Pass keys on, or the end of stdin; False: the shell is over."""
        typed = self._without_leave(data) if self._with_terminal else data
        if self.left:
            self._attachment.leave(typing=True)
            return False
        return (not typed and bool(data)) or self._attachment.write(typed, closed=not data)

    def _without_leave(self, data: bytes) -> bytes:
        """Return what is typed; ~. at the beginning of a line leaves the shell, ~~ there is ~."""
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
        """Have it look at the size of the terminal."""
        os.write(self._wakes, b"w")

    def check(self) -> None:
        """Raise what ended it, if something did."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Have it type nothing any more."""
        self._ended = True
        with suppress(OSError):
            self.wake()


@contextmanager
def _raw(with_terminal: bool, resized: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Yield what makes the terminal pass each key on; it is as before when the context ends.

    `resized` is called when the terminal has another size.
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

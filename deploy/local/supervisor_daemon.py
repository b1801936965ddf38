"""Run supervisord so that it loses no stop signal: `python -m deploy.local.supervisor_daemon -c FILE`.

A process that supervisord has forked keeps supervisord's signal handlers until it executes its program. supervisord's
handler only stores the signal, and the program would never receive it. supervisord would wait for `stopwaitsecs`, and
then kill the program.
"""

from __future__ import annotations

import os
import signal

from supervisor import supervisord

_STOP_SIGNALS = (signal.SIGTERM,)


def _block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


def _exit_on_stop_signals() -> None:
    """Let stop signals terminate this new process, including signals that have arrived since the fork."""
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    _unblock()


def main() -> None:
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_exit_on_stop_signals)
    supervisord.main()


if __name__ == "__main__":
    main()

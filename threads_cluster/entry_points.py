"""Entry points of the commands. Ctrl-C ends a command quietly, even while its modules are being imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from threads_cluster import errors


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Exit with the code for Ctrl-C instead of raising KeyboardInterrupt, which would print a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(errors.INTERRUPTED)


def cluster() -> None:
    """Run the command `cluster`, and exit."""
    with _quiet_interrupts():
        from threads_cluster.cli.main import main

        main()


def gswarm() -> None:
    """Run the command `gswarm`, and exit."""
    with _quiet_interrupts():
        from threads_cluster.compat import aliases

        aliases.gswarm()


def grid_cli() -> None:
    """Run the command `grid-cli`, and exit."""
    with _quiet_interrupts():
        from threads_cluster.compat import aliases

        aliases.grid_cli()

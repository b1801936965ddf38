"""Runs `cluster` commands in this process and returns their exit code and output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from threads_cluster.cli import main as cli

#: Function from a command's arguments to its exit code, stdout and stderr.
Run = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str], *group: str) -> Run:
    """Return a function that runs a command, optionally of a group. Log lines of the coordinator are removed."""

    def ran(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([*group, *map(str, arguments)])
        shown = capsys.readouterr()
        out = "".join(line for line in shown.out.splitlines(keepends=True) if "[info " not in line)
        return int(ended.value.code or 0), out, shown.err

    return ran

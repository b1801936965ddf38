"""Commands of `cluster` in this process: with which exit code each ends, and what it prints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from threads_cluster.cli import main as cli

#: Exit code, stdout and stderr of a command, by its arguments.
Run = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str], *group: str) -> Run:
    """Return what runs a command, of a group where one is given. What the coordinator beside it logs is left out."""

    def ran(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([*group, *map(str, arguments)])
        shown = capsys.readouterr()
        out = "".join(line for line in shown.out.splitlines(keepends=True) if "[info " not in line)
        return int(ended.value.code or 0), out, shown.err

    return ran

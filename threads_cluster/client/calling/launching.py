"""Command that starts the program of calls with a suitable Python on a runner."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from threads_cluster.client.calling.options import Options

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

_PROGRAM = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
#: Shell script that runs the program with the first Python that the runner has.
_LAUNCH = """
program=$1; shift
for python; do command -v "$python" >/dev/null && exec "$python" -c "$program"; done
echo "this runner has no $*" >&2; exit 127
""".strip()
_LOOPBACK = re.compile(r"https?://(localhost|127(\.[0-9]+){3}|\[::1\])([:/].*)?")


def command(cluster: Cluster, options: Options) -> list[str | Mapping[str, str]]:
    """Return the command of a job of calls."""
    pythons = _pythons(cluster.url, options)
    return ["sh", "-c", {"literal": _LAUNCH}, "sh", {"literal": _PROGRAM}, *({"literal": each} for each in pythons)]


def _pythons(url: str, options: Options) -> list[str]:
    """Return the Python interpreters to try. A runner on this machine uses the one of this process."""
    if options.python is not None:
        return [f"python{options.python}"]
    if options.requirements is not None or not _LOOPBACK.fullmatch(url) or not sys.executable:
        return ["python3"]
    return [sys.executable, "python3"]

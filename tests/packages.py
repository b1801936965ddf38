"""The import packages that the product consists of."""

import shutil
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
#: Import packages at the top that nothing runs in production.
_NOT_RUN = {"benchmarks", "examples", "tests"}
ALL = tuple(sorted(path.parent.name for path in TOP.glob("*/__init__.py") if path.parent.name not in _NOT_RUN))
#: Each is an image or a command of its own, and imports no other.
SERVICES = tuple(name for name in ALL if name not in {"jobs", "deploy", "engines", "threads_protocol"})
#: Services that run in containers.
SERVERS = tuple(name for name in SERVICES if name != "threads_cluster")
#: Argument `ignore` of shutil.copytree: omits bytecode that another process is writing. Complete bytecode is copied,
#: because otherwise the processes of a copy would compile the sources again.
ignore_unfinished = shutil.ignore_patterns("*.pyc.*")

"""The import packages that the product consists of."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
#: Import packages at the top that nothing runs in production.
_NOT_RUN = {"benchmarks", "tests"}
ALL = tuple(sorted(path.parent.name for path in TOP.glob("*/__init__.py") if path.parent.name not in _NOT_RUN))
#: Each is an image or a command of its own, and imports no other.
SERVICES = tuple(name for name in ALL if name not in {"jobs", "deploy", "engines", "threads_protocol"})
#: Services that run in containers.
SERVERS = tuple(name for name in SERVICES if name != "threads_cluster")

"""Programs that make calls on a runner: their command, with a suitable Python, and their files."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threads_cluster.client.calling import project
from threads_cluster.client.calling.options import Options
from threads_cluster.errors import BadArgument

if TYPE_CHECKING:
    from threads_cluster.client.api import Cluster

#: Seconds for which files count as unchanged after a check, unless more modules are loaded or needed.
CHECK_SECONDS = 1.0
_PROGRAM = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
#: Shell script that runs the program with the first Python that the runner has.
_LAUNCH = """
program=$1 version=$2; shift 2
for python; do command -v "$python" >/dev/null && exec "$python" -c "$program" "$version"; done
echo "this runner has no $*" >&2; exit 127
""".strip()
_LOOPBACK = re.compile(r"https?://(localhost|127(\.[0-9]+){3}|\[::1\])([:/].*)?")


class Launching:
    """Parameters of the jobs of one executor. The files of the project are uploaded once, and after each change."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster, self._options = cluster, options
        self._is_local = _LOOPBACK.fullmatch(cluster.url) is not None and bool(sys.executable)
        self._uploading = threading.Lock()
        self._uploaded: tuple[object, str] | None = None
        #: Numbers of modules at the last check of the files, time of the next check, and the artifact, or None.
        self._checked: tuple[tuple[int, int], float, str] | None = None
        self._program = options.program(
            [
                "sh",
                "-c",
                {"literal": _LAUNCH},
                "sh",
                {"literal": _PROGRAM},
                f"{sys.version_info[0]}.{sys.version_info[1]}",
                *({"literal": each} for each in self._pythons()),
            ]
        )

    def _pythons(self) -> Sequence[str]:
        """Return the Python interpreters to try. A runner on this machine uses the one of this process."""
        if self._options.python is not None:
            return [f"python{self._options.python}"]
        return [sys.executable, "python3"] if self._is_local and self._options.requirements is None else ["python3"]

    def require_runner(self) -> None:
        """Raise NoRunner if no live runner could ever make the calls."""
        self._cluster.programs.require_runner(self._program)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a job, without its calls. Uploads the files that it needs."""
        artifact, requirements = self._files(), self._requirements()
        return {
            **self._program.parameters(),
            "persistent": True,
            **({"files": artifact} if artifact else {}),
            **({"python": {"requirements": requirements}} if requirements else {}),
        }

    def forget_upload(self) -> None:
        """Upload the files again for the next job, because the cluster has deleted them."""
        self._uploaded = self._checked = None

    def _files(self) -> str:
        """Return the artifact with the files of the calls, or an empty text if they need no files."""
        with self._uploading:
            counts, now = (len(sys.modules), len(self._cluster.values.modules)), time.monotonic()
            if self._checked is None or self._checked[0] != counts or now >= self._checked[1]:
                self._checked = (counts, now + CHECK_SECONDS, self._upload_changes())
            return self._checked[2]

    def _upload_changes(self) -> str:
        if self._options.files is not None:
            state, folder = self._options.files, Path(self._options.files)
            return self._upload(state, folder)
        found = project.PROJECT.files(frozenset(self._cluster.values.modules))
        if self._pythons()[0] != sys.executable:
            found |= project.cloudpickle_files()
        packages = self._packages()
        if not found and not packages:
            return ""
        with tempfile.TemporaryDirectory(prefix="cluster-project-") as name:
            return self._upload_project(found, packages, Path(name))

    def _upload_project(self, found: dict[str, Path], packages: str, folder: Path) -> str:
        state = {path: (file, file.stat().st_mtime_ns) for path, file in found.items()}
        if self._uploaded is None or self._uploaded[0] != state:
            project.copy(found, folder)
            if packages:
                (folder / project.REQUIREMENTS).write_text(packages)
        return self._upload(state, folder)

    def _upload(self, state: object, folder: Path) -> str:
        if self._uploaded is None or self._uploaded[0] != state:
            # Without a name, because a concurrent upload of the same name would replace this one
            artifact = self._cluster.artifacts.put(folder)["artifact"]["artifact_id"]
            self._uploaded = (state, artifact)
        return self._uploaded[1]

    def _requirements(self) -> str:
        """Return the path of the requirements file among the files, or an empty text."""
        wanted = self._options.requirements
        if wanted is None:
            return ""
        if self._options.files is None:
            return project.REQUIREMENTS
        if not isinstance(wanted, str | Path):
            raise BadArgument("must be the path of a file in the folder of `files`", "requirements")
        return Path(wanted).as_posix()

    def _packages(self) -> str:
        """Return the content of the requirements file, or an empty text."""
        wanted = self._options.requirements
        if wanted is None:
            return ""
        if isinstance(wanted, str | Path):
            return Path(wanted).read_text(encoding="utf-8")
        return "".join(f"{package}\n" for package in wanted)

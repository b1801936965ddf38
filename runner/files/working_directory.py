"""Folders of a slot: the working directory of its programs, and output files that wait for upload."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.store.work.slots import JobFacts
from runner.commands import Command
from runner.files.cache import DamagedFile, FileCache
from runner.files.directories import Places
from runner.files.folders import Folder, TooDeep, clear
from runner.files.inputs import Files, Inputs
from runner.programs.guard_messages import Order
from runner.programs.recorder import Recorder
from runner.programs.slot import Slot
from threads_protocol.manifest import Entry

#: Maximum number of attempts to fetch a job's files. Other jobs can evict files from the cache between fetches.
_ATTEMPTS = 3


class Workplace:
    """Folders of one slot. Not thread-safe."""

    def __init__(self, places: Places, slot: Slot, inputs: Inputs, uid: int | None = None) -> None:
        self.slot, self.uid = slot, uid
        self._inputs = inputs
        top = places.work / slot.name
        top.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.folder = Folder(top / "home", uid)
        self._kept = top / "kept"
        #: ID of the job whose files are in the working directory, or an empty string.
        self._job = ""
        #: True if the working directory can contain files of an earlier unit.
        self.dirty = False

    # -- preparation of a unit -----------------------------------------------------------------------------------------

    def prepare(self, facts: JobFacts, command: Command, files: Callable[[], Files]) -> None:
        """Ensure that the working directory contains exactly the job's files. Raises OSError and errors of `files`."""
        if self._job == facts.job_id and self.dirty:
            self.restore()
        if self._job != facts.job_id:
            self._job, self.dirty = "", True
            self._fill(facts.job_id, command, files)
            self._job, self.dirty = facts.job_id, False

    def _fill(self, job: str, command: Command, files: Callable[[], Files]) -> None:
        for attempt in range(_ATTEMPTS):
            entries = self._inputs.entries(job, files()) if command.has_files else []
            try:
                self._lay_out({entry.path: entry for entry in entries})
                return
            except (DamagedFile, FileNotFoundError):
                if attempt == _ATTEMPTS - 1:
                    raise

    def _lay_out(self, entries: dict[str, Entry]) -> None:
        self._change_deep_folder(lambda: self.folder.fill(_with_folders(entries), self._placing(entries)))

    def _placing(self, entries: dict[str, Entry]) -> Callable[[str], None]:
        return lambda path: materialize(self._inputs.cache, entries.get(path), self.folder.path / path)

    def _change_deep_folder(self, act: Callable[[], None]) -> None:
        """Change the working directory. If its folders are nested too deeply, an external program deletes it first."""
        try:
            act()
        except (TooDeep, RecursionError):
            self._remove()
            act()

    def _remove(self) -> None:
        order = Order(argv=["rm", "-rf", "--", str(self.folder.path)], folder="/", environment={"PATH": os.defpath})
        self.slot.run(order, lambda *_: None)

    # -- cleanup after a unit ------------------------------------------------------------------------------------------

    def keep(self, unit: int, recorder: Recorder | None, outputs: Sequence[str], value: bytes | None = None) -> None:
        """Store a unit's log, its matching output files, and its value if the value is too large for the result."""
        if recorder is not None and recorder.total_bytes:
            recorder.write(self._kept / "logs", unit)
        if outputs:
            self.folder.take_outputs(outputs, self._kept / "outputs" / str(unit))
        if value is not None:
            (self._kept / "values").mkdir(parents=True, exist_ok=True)
            (self._kept / "values" / f"{unit}.json").write_bytes(value)

    def keep_file(self, unit: int, name: str) -> None:
        """Store one file of the working directory as an output file of a unit. Raises BadValue and OSError."""
        self.folder.take_file(name, self._kept / "outputs" / str(unit))

    def restore(self) -> None:
        """Restore the working directory after a unit has finished.

        After an OSError, the next `prepare` fills the folder again.
        """
        job, self._job = self._job, ""
        try:
            self._change_deep_folder(self.folder.restore)
        except (DamagedFile, FileNotFoundError):
            return  # The next `prepare` fills the folder again
        self._job, self.dirty = job, False

    def discard(self) -> None:
        """Delete the working directory to free disk space. Raises OSError."""
        self._job, self.dirty = "", True
        self._change_deep_folder(lambda: clear(self.folder.path))

    @property
    def preserved_path(self) -> Path | None:
        """Return the folder of output files that wait for upload, or None if there are none."""
        return self._kept if self._kept.exists() else None

    @property
    def has_only_logs(self) -> bool:
        """Return True if the output files that wait for upload are only logs."""
        return {path.name for path in self._kept.iterdir()} <= {"logs"}

    def forget(self) -> None:
        """Delete the output files that wait for upload."""
        if self._kept.exists():
            clear(self._kept)

    def forget_unit(self, unit: int) -> None:
        """Delete one unit's output files that wait for upload."""
        for part in (f"logs/{unit}", f"logs/{unit}.streams", f"outputs/{unit}", f"values/{unit}.json"):
            clear(self._kept / part)


def _with_folders(paths: dict[str, Entry]) -> list[str]:
    """Return the paths and all their parent folders. Folders precede their contents."""
    folders = {str(parent) for path in paths for parent in Path(path).parents if str(parent) != "."}
    return sorted(folders | set(paths), key=lambda path: path.split("/"))


def materialize(cache: FileCache, entry: Entry | None, at: Path) -> None:
    """Create one path of a job's files. If `entry` is None, create a folder."""
    if entry is None or entry.kind == "d":
        at.mkdir(mode=0o755)
    elif entry.kind == "l":
        at.symlink_to(entry.target)
    else:
        cache.copy(entry.sha, at)
        at.chmod(0o755 if entry.kind == "x" else 0o644)

"""Workplace of a slot: the folder where its programs run, made ready for a job, and what they leave to be kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.store.work.slots import Facts
from runner.commands import Command
from runner.files.cache import DamagedFile, FileCache
from runner.files.folders import Folder, TooDeep, clear
from runner.files.inputs import Files, Inputs
from runner.files.places import Places
from runner.programs.orders import Order
from runner.programs.recorder import Recorder
from runner.programs.slot import Slot
from threads_protocol.manifest import Entry

#: How often a job's files are fetched anew where some went from the cache meanwhile.
_ATTEMPTS = 3


class Workplace:
    """Folders of one slot; one thread uses it at a time."""

    def __init__(self, places: Places, slot: Slot, inputs: Inputs, uid: int | None = None) -> None:
        self.slot, self.uid = slot, uid
        self._inputs = inputs
        top = places.work / slot.name
        top.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.folder = Folder(top / "home", uid)
        self._kept = top / "kept"
        #: The job whose files are in the folder; empty: nobody's.
        self._job = ""
        #: Whether its folder may contain files of an earlier unit.
        self.dirty = False

    # -- before a unit ----------------------------------------------------------------------------------------------

    def prepare(self, facts: Facts, command: Command, files: Callable[[], Files]) -> None:
        """Have the job's files in the folder and nothing else. Errors of `files`; OSError."""
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
        """Change the folder; what is too deep in it is removed by a program first."""
        try:
            act()
        except (TooDeep, RecursionError):
            self._remove()
            act()

    def _remove(self) -> None:
        order = Order(argv=["rm", "-rf", "--", str(self.folder.path)], folder="/", environment={"PATH": os.defpath})
        self.slot.run(order, lambda *_: None)

    # -- after a unit -----------------------------------------------------------------------------------------------

    def keep(self, unit: int, recorder: Recorder | None, outputs: Sequence[str], value: bytes | None = None) -> None:
        """Set aside what a unit wrote: its output, its files that the globs name, a value too long for a result."""
        if recorder is not None:
            recorder.write(self._kept / "logs", unit)
        if outputs:
            self.folder.take_outputs(outputs, self._kept / "outputs" / str(unit))
        if value is not None:
            (self._kept / "values").mkdir(parents=True, exist_ok=True)
            (self._kept / "values" / f"{unit}.json").write_bytes(value)

    def restore(self) -> None:
        """Remove what a unit left, and put back what it changed. OSError leaves the folder to the next `prepare`."""
        job, self._job = self._job, ""
        try:
            self._change_deep_folder(self.folder.restore)
        except (DamagedFile, FileNotFoundError):
            return  # it is filled anew
        self._job, self.dirty = job, False

    def discard(self) -> None:
        """Remove the folder and its contents to free the space; `prepare` makes it again. Raises OSError."""
        self._job, self.dirty = "", True
        self._change_deep_folder(lambda: clear(self.folder.path))

    @property
    def preserved_path(self) -> Path | None:
        """Return the folder of what was set aside; None when nothing was."""
        return self._kept if self._kept.exists() else None

    @property
    def has_only_logs(self) -> bool:
        """Tell whether nothing but output was set aside."""
        return {path.name for path in self._kept.iterdir()} <= {"logs"}

    def forget(self) -> None:
        """Remove what was set aside: it is kept elsewhere, or nobody wants it."""
        if self._kept.exists():
            clear(self._kept)

    def forget_unit(self, unit: int) -> None:
        """Remove the stored files of one unit."""
        for part in (f"logs/{unit}", f"logs/{unit}.streams", f"outputs/{unit}", f"values/{unit}.json"):
            clear(self._kept / part)


def _with_folders(paths: dict[str, Entry]) -> list[str]:
    """Return paths and the folders that they are in, each folder before what is in it."""
    folders = {str(parent) for path in paths for parent in Path(path).parents if str(parent) != "."}
    return sorted(folders | set(paths), key=lambda path: path.split("/"))


def materialize(cache: FileCache, entry: Entry | None, at: Path) -> None:
    """Put one path of a job's files where it belongs; without an entry it is a folder."""
    if entry is None or entry.kind == "d":
        at.mkdir(mode=0o755)
    elif entry.kind == "l":
        at.symlink_to(entry.target)
    else:
        cache.copy(entry.sha, at)
        at.chmod(0o755 if entry.kind == "x" else 0o644)

"""File .cluster/release, which names the release whose code the programs of this cluster run.

Programs read it whenever they start. An update can therefore restart them one after the other with the new release,
without a restart of supervisord, of Redis, or of the process that holds the ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER

FILE = LOCAL_FOLDER / "release"
#: Shell command that runs the Python of the current release. A coordinator serves the pages of its release.
_START = (
    '{ IFS= read -r python && IFS= read -r code; } <"$1" || exit; shift; '
    '[ "$NODE_TYPE" != coordinator ] || [ -n "$PAGES_DIR" ] || [ ! -f "$code/web/dist/index.html" ] || '
    'export PAGES_DIR="$code/web/dist"; '
    'exec "$python" "$@"'
)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Release that programs run when they start, and the releases that this cluster used before."""

    #: Executable of the release's environment.
    python: Path
    #: Folder with the release's code.
    folder: Path
    #: Folders of earlier releases, the last one last.
    earlier: tuple[Path, ...] = ()

    def followed_by(self, python: Path, folder: Path) -> Selection:
        """Return the selection after a change to another release. A return to an earlier one forgets later ones."""
        if folder == self.folder:
            earlier = self.earlier
        elif folder in self.earlier:
            earlier = self.earlier[: self.earlier.index(folder)]
        else:
            earlier = (*self.earlier, self.folder)
        return Selection(python=python, folder=folder, earlier=earlier)


def command(*arguments: str) -> tuple[str, ...]:
    """Return the command that runs the current release's Python with arguments."""
    return ("/bin/sh", "-c", _START, "release", f"{LOCAL_FOLDER.name}/{FILE.name}", *arguments)


def read() -> Selection | None:
    """Return the selected release, or None if no cluster has been started here."""
    try:
        python, folder, *earlier = FILE.read_text().splitlines()
    except (FileNotFoundError, ValueError):
        return None
    return Selection(python=Path(python), folder=Path(folder), earlier=tuple(map(Path, earlier)))


def select(python: Path, folder: Path) -> None:
    """Let programs that start from now on run a release."""
    before = read()
    selection = Selection(python=python, folder=folder)
    write(before.followed_by(python, folder) if before else selection)


def write(selection: Selection) -> None:
    """Store a selection atomically."""
    lines: Sequence[Path] = (selection.python, selection.folder, *selection.earlier)
    private_files.write(FILE, "".join(f"{line}\n" for line in lines).encode())

"""Files of the user's project that calls need: the modules that this process has loaded."""

from __future__ import annotations

import importlib.util
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

#: Modules that are never part of a project: the script travels by value, and calls do not need the client.
_EXCLUDED = frozenset({"__main__", "__mp_main__", "threads_cluster", "threads_protocol"})
#: Maximum number of files of a package. Of a larger package, only the loaded modules are uploaded.
_MOST_FILES = 1000
#: Name of the file with the packages that an executor requires.
REQUIREMENTS = "cluster-requirements.txt"


def modules(loaded: Mapping[str, ModuleType] | None = None) -> dict[str, Path]:
    """Return the source files of the project's loaded modules and their packages, by path below the import folder.

    `loaded` replaces the modules that this process has loaded.
    """
    loaded = dict(sys.modules) if loaded is None else loaded
    found: dict[str, Path] = {}
    for name in sorted({each.partition(".")[0] for each in loaded} - _EXCLUDED):
        module = loaded.get(name)
        if isinstance(module, ModuleType) and not _is_installed(module):
            found |= _files(name, module)
    return found


def cloudpickle_files() -> dict[str, Path]:
    """Return the source files of cloudpickle, for a runner that may lack it."""
    spec = importlib.util.find_spec("cloudpickle")
    folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else None
    return {f"cloudpickle/{file.name}": file for file in folder.glob("*.py")} if folder else {}


def copy(files: dict[str, Path], folder: Path) -> None:
    """Copy files into a folder, each to its relative path."""
    for path, file in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)


def _is_installed(module: ModuleType) -> bool:
    """Return True if a module is part of Python or was installed as a package, so that a runner has it or lacks it."""
    places = [Path(place) for place in _places(module)]
    return not places or any(place.is_relative_to(folder) for place in places for folder in _INSTALLED)


def _places(module: ModuleType) -> list[str]:
    """Return the file of a module, and the folders of a package."""
    file = getattr(module, "__file__", None)
    folders = getattr(module, "__path__", ())
    return [*([file] if isinstance(file, str) else ()), *(each for each in folders if isinstance(each, str))]


def _files(name: str, module: ModuleType) -> dict[str, Path]:
    folders = [Path(each) for each in getattr(module, "__path__", ())]
    if not folders:
        file = Path(str(module.__file__))
        return {file.name: file} if file.suffix == ".py" else {}
    every = [(folder, file) for folder in folders for file in _sources(folder)]
    if len(every) > _MOST_FILES:
        loaded = set(_loaded_files(name))
        every = [(folder, file) for folder, file in every if file in loaded]
    return {f"{name}/{file.relative_to(folder).as_posix()}": file for folder, file in every}


def _sources(folder: Path) -> Iterable[Path]:
    return (file for file in folder.rglob("*.py") if "__pycache__" not in file.parts and file.is_file())


def _loaded_files(package: str) -> Iterator[Path]:
    """Yield the files of the loaded modules of a package."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            yield from (Path(place) for place in _places(module) if place.endswith(".py"))


def _installed_folders() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names]
    return [Path(folder) for folder in [*folders, *site.getsitepackages(), site.getusersitepackages()] if folder]


_INSTALLED = _installed_folders()

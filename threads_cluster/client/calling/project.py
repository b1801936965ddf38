"""Files of the user's project that calls need: the modules that their pickles name, and what these modules import."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType

#: Modules that are never part of a project: the script is pickled by value, and calls do not need the client.
_EXCLUDED = frozenset({"__main__", "__mp_main__", "threads_cluster", "threads_protocol"})
#: Maximum number of files of a package. Of a larger package, only the loaded modules are uploaded.
_MOST_FILES = 1000
#: Folders of installed packages, in any Python environment.
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
#: File in the top folder of each virtual environment.
_ENVIRONMENT_FILE = "pyvenv.cfg"
#: Name of the file with the packages that an executor requires.
REQUIREMENTS = "cluster-requirements.txt"
#: Folders without source files of the project.
_SKIPPED = _PACKAGE_FOLDERS | {"__pycache__", "node_modules"}
_WORD = re.compile(rb"[^\W\d]\w*")


class Project:
    """Modules of the project that this process has loaded. They are determined again after further imports."""

    def __init__(self, loaded: Mapping[str, ModuleType] | None = None) -> None:
        """`loaded` replaces the modules that this process has loaded."""
        self._loaded = sys.modules if loaded is None else loaded
        self._count = 0
        self._modules: dict[str, ModuleType] = {}

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the top-level modules of the project by name."""
        if len(self._loaded) != self._count:
            loaded = dict(self._loaded)
            names = sorted({each.partition(".")[0] for each in loaded} - _EXCLUDED)
            found = {name: loaded.get(name) for name in names}
            self._modules = {
                name: module
                for name, module in found.items()
                if isinstance(module, ModuleType) and not _is_installed(module)
            }
            self._count = len(loaded)
        return self._modules

    def named_in(self, pickle: bytes) -> set[str]:
        """Return the names of modules that occur in a pickle, even if they are names of variables there."""
        return {name for name in self.modules() if name.encode() in pickle}

    def files(self, names: Iterable[str]) -> dict[str, Path]:
        """Return the source files of modules, and of modules that they import, by path below the import folder.

        A module that is imported only inside a function is found if it is loaded.
        """
        left, found = dict.fromkeys(names), dict[str, Path]()
        modules = dict(self.modules())
        while left:
            name = left.popitem()[0]
            if module := modules.pop(name, None):
                files = _files(name, module)
                found |= files
                words = set[bytes]().union(*map(_words, files.values()))
                left |= {each: None for each in modules if each.encode() in words}
        return found


#: Project of this process.
PROJECT = Project()


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
    return not places or any(
        any(place.is_relative_to(folder) for folder in _INSTALLED)
        or not _PACKAGE_FOLDERS.isdisjoint(place.parts)
        or _has_packages(place.parent.parent if place.name == "__init__.py" else place.parent)
        for place in places
    )


@cache
def _has_packages(folder: Path) -> bool:
    """Return True if packages were installed into a folder, for example with `pip install --target`."""
    return any(folder.glob("*.dist-info"))


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


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the source files below a folder, without hidden folders, caches and virtual environments."""
    for place, folders, files in os.walk(folder):
        if _ENVIRONMENT_FILE in files and place != str(folder):
            folders.clear()
            continue
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _SKIPPED]
        yield from (Path(place, file) for file in files if file.endswith(".py"))


def _loaded_files(package: str) -> Iterator[Path]:
    """Yield the files of the loaded modules of a package."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            yield from (Path(place) for place in _places(module) if place.endswith(".py"))


def _words(file: Path) -> frozenset[bytes]:
    """Return the names in a source file. Strings count too, because they can be arguments of import_module."""
    return _words_at(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=2 * _MOST_FILES)
def _words_at(file: Path, changed: int) -> frozenset[bytes]:
    """Return the names in a file that was changed at this time."""
    return frozenset(_WORD.findall(file.read_bytes()))


def _installed_folders() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names]
    return [Path(folder) for folder in [*folders, *site.getsitepackages(), site.getusersitepackages()] if folder]


_INSTALLED = _installed_folders()

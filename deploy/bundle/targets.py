"""Platforms and Python versions for which a bundle contains packages."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from packaging.requirements import Requirement

from deploy.local.outcome import USAGE, CommandError

#: Versions of glibc that wheels for Linux may require, newest first. RHEL 8 and Debian 10 have 2.28.
_GLIBC = range(28, 4, -1)
#: Old names of manylinux tags. Only x86_64 has the last two.
_OLD = ("manylinux2014", "manylinux2010", "manylinux1")
#: Versions of macOS that wheels may require, newest first.
_MACOS = range(14, 10, -1)
#: Oldest patch release of a Python version, and one that is newer than all.
_PATCHES = (0, 99)
PLATFORMS = ("linux-x86_64", "linux-aarch64", "macos-arm64")
PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True, order=True)
class Target:
    """A platform, and a version of Python on it."""

    platform: str
    python: str

    def __str__(self) -> str:
        return f"{self.platform} with Python {self.python}"

    def tags(self) -> Iterator[str]:
        """Return the tags of the platform in names of wheels, preferred ones first."""
        system, machine = self.platform.split("-")
        if system == "macos":
            yield from (f"macosx_{version}_0_{kind}" for version in _MACOS for kind in (machine, "universal2"))
            return
        yield from (f"manylinux_2_{version}_{machine}" for version in _GLIBC)
        yield from (f"{old}_{machine}" for old in (_OLD if machine == "x86_64" else _OLD[:1]))
        yield f"linux_{machine}"

    def marker_variables(self, full: str) -> dict[str, str]:
        """Return the variables of requirement markers for a full version of Python, such as 3.11.99."""
        system, machine = self.platform.split("-")
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Darwin" if system == "macos" else "Linux",
            "platform_version": "",
            "python_full_version": full,
            "python_version": self.python,
            "sys_platform": "darwin" if system == "macos" else "linux",
        }


def this_target() -> Target:
    """Return the target of this machine and this Python. Raises CommandError if bundles do not support it."""
    system, _, machine = sysconfig.get_platform().partition("-")
    name = f"macos-{machine.rpartition('-')[2]}" if system == "macosx" else f"{system}-{machine}"
    [target] = parse(name, ".".join(map(str, sys.version_info[:2])))
    return target


def parse(platforms: str, pythons: str) -> list[Target]:
    """Return the targets for two lists of names, separated by commas. Raises CommandError for unknown names."""
    named = {"platform": (platforms.split(","), PLATFORMS), "Python": (pythons.split(","), PYTHONS)}
    for what, (names, known) in named.items():
        for name in names:
            if name not in known:
                message = f"there are no bundles for the {what} {name!r}; choose from {', '.join(known)}"
                raise CommandError(USAGE, message)
    return sorted({Target(*pair) for pair in product(platforms.split(","), pythons.split(","))})


def split_requirements(text: str) -> Iterator[tuple[Requirement, str]]:
    """Return each requirement of a requirements file, and the options that follow it, such as hashes."""
    lines = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    for line in filter(None, map(str.strip, lines)):
        words, *options = re.split(r"\s(?=--hash=)", line)
        yield Requirement(words), " ".join(options)


@dataclass(frozen=True)
class Selection:
    """Requirements without markers that apply to a target."""

    target: Target
    #: Full version of Python, such as 3.11.99.
    python: str
    text: str

    @property
    def is_pinned(self) -> bool:
        """Return True if all requirements have hashes, so that the list is complete."""
        return all("--hash=" in options for _, options in split_requirements(self.text))

    def pip_options(self) -> list[str]:
        """Return options of `pip download` that select wheels for the target."""
        options = [option for tag in self.target.tags() for option in ("--platform", tag)]
        options += ["--implementation", "cp", "--python-version", self.python, "--only-binary", ":all:"]
        return [*options, "--require-hashes", "--no-deps"] if self.is_pinned else options


def select(text: str, target: Target) -> list[Selection]:
    """Return the requirements for the newest patch release of a target's Python, and for the oldest if they differ.

    pip would evaluate the markers for the running Python.
    """
    found = {}
    for patch in _PATCHES:
        full = f"{target.python}.{patch}"
        selected = _select(text, target.marker_variables(full))
        found[selected] = Selection(target, full, selected)
    return list(found.values())


def _select(text: str, variables: dict[str, str]) -> str:
    lines = []
    for requirement, options in split_requirements(text):
        if requirement.marker is None or requirement.marker.evaluate(variables):
            requirement.marker = None
            lines.append(f"{requirement} {options}\n")
    return "".join(lines)

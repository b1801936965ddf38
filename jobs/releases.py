"""Releases of the project: their version, and the versions of the data format that they write and read.

The data format covers the data in Redis and the files of a cluster's folder. A release must read the format that the
release before it wrote, and the format that the release after it writes. A new format therefore takes two releases:
the first one reads it, and the second one writes it. See docs/upgrades.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from threads_protocol import versions

#: Files of a release's folder that describe it, relative to the folder.
VERSION_FILE, FORMAT_FILE = "jobs/VERSION", "jobs/data_format.json"
#: Content of FORMAT_FILE in releases that do not have this file.
_FIRST_FORMAT = '{"writes": 1, "oldest": 1, "newest": 1}'


class UnreadableRelease(ValueError):
    """The texts do not describe a release."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Data format of stored data, and the version that wrote it last."""

    format: int
    version: str

    def __str__(self) -> str:
        return f"{self.format} {self.version}"

    @classmethod
    def parse(cls, text: str) -> Stored:
        """Parse a text such as `1 0.1.0`. Raises ValueError."""
        number, _, version = text.strip().partition(" ")
        return cls(format=int(number), version=version)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Version of a release, and the data formats that it writes and reads."""

    version: str
    #: Data format that the release writes.
    writes: int
    #: Oldest and newest data format that the release reads.
    oldest: int
    newest: int

    @classmethod
    def parse(cls, version: str, data_format: str = _FIRST_FORMAT) -> Release:
        """Return the release that the texts of VERSION_FILE and FORMAT_FILE describe. Raises UnreadableRelease."""
        try:
            versions.parse(version.strip())
            found = json.loads(data_format)
            return cls(version=version.strip(), **{name: int(found[name]) for name in ("writes", "oldest", "newest")})
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadableRelease(f"the version or the data format of the release is unreadable: {error}") from error

    @classmethod
    def read(cls, folder: Path) -> Release:
        """Return the release in a folder. Raises UnreadableRelease, or OSError if a file is missing."""
        file = folder / FORMAT_FILE
        return cls.parse((folder / VERSION_FILE).read_text(), file.read_text() if file.exists() else _FIRST_FORMAT)

    def data_obstacle(self, stored: Stored | None) -> str:
        """Return why this release cannot use stored data and what to do, or an empty text if it can."""
        if stored is None or self.oldest <= stored.format <= self.newest:
            return ""
        data = f"version {stored.version} wrote the cluster's data in format {stored.format}"
        if stored.format > self.newest:
            return (
                f"{data}, but version {self.version} reads formats only up to {self.newest}. Start version"
                f" {stored.version} or later, or restore a backup that an earlier version wrote"
            )
        return (
            f"{data}, but version {self.version} reads formats only from {self.oldest}. First start a version between"
            f" {stored.version} and {self.version} that reads format {stored.format}"
        )

    def store_obstacle(self, stored: Stored | None, *, loads: bool) -> str:
        """Return why a process of this release cannot use the store and what to do, or an empty text if it can.

        `loads` is True for coordinators, which are updated before workers. Only workers need a similar coordinator.
        """
        obstacle = self.data_obstacle(stored)
        if obstacle or loads or stored is None or versions.are_compatible(self.version, stored.version):
            return obstacle
        return (
            f"this worker has version {self.version}, which works only with coordinators of the versions"
            f" {versions.describe_accepted(self.version)}, but a coordinator has version {stored.version}. Update the"
            " older one"
        )

    def next_obstacle(self, other: Release) -> str:
        """Return why programs of this release and `other` cannot run together during an update. Empty if they can."""
        if not versions.are_compatible(self.version, other.version):
            return (
                f"version {self.version} works together with versions {versions.describe_accepted(self.version)}, but"
                f" not with {other.version}"
            )
        for reader, writer in ((self, other), (other, self)):
            if not reader.oldest <= writer.writes <= reader.newest:
                return (
                    f"version {writer.version} writes data format {writer.writes}, but version {reader.version} reads"
                    f" {reader.oldest} to {reader.newest}"
                )
        return ""

    def stored_after(self, stored: Stored | None) -> Stored:
        """Return the description of the data after this release has written to it. The format never decreases."""
        return Stored(format=max(self.writes, stored.format if stored else 0), version=self.version)


#: Release to which this code belongs.
OWN = Release.read(Path(__file__).resolve().parents[1])

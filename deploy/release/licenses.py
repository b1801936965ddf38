"""List the licenses of all packages in installations, images and pages: make licenses

The command is offline. It reads the pinned requirements, the metadata of installed packages, web/package-lock.json, and
licenses.toml, which names the licenses that metadata lacks.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from license_expression import Licensing
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

ROOT = Path(__file__).resolve().parents[2]
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
ALLOWED: frozenset[str] = frozenset(TABLE["allowed"])
#: Dependency groups that are only for developers.
_DEVELOPMENT = {"dev"}
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", re.MULTILINE)
_LICENSING = Licensing()

PAGE = """\
# Licenses

Threads Cluster is licensed under [Apache-2.0](../LICENSE). This page lists the licenses of everything else that an
installation, an image or the pages contain. `make licenses` writes the page from the installed packages. A test checks
that each package has an [allowed license](../deploy/release/licenses.toml) or is listed as an exception.

Engines of services, such as vLLM, are installed only when a service needs them. Their packages are listed in the
engine's `requirements.txt`, and not here.

## Exceptions

These packages have other licenses. Each was accepted for a reason:

{accepted}

## Programs and libraries inside packages

{contents}

## Images of other projects

Docker Compose and Kubernetes download these images. Grafana is licensed under the AGPL: if you offer a changed Grafana
over a network, you must offer its source code too. This project uses Grafana unchanged, and the cluster works without
it.

{images}

## JavaScript in the pages

A cluster serves the full texts at the address `/licenses.txt`.

{scripts}

## Python packages

A package is installed with the named dependency groups. `local` is the group of a local cluster.

{packages}
"""


class Package(NamedTuple):
    """A pinned package with the dependency groups that contain it."""

    name: str
    version: str
    groups: tuple[str, ...]


class UnknownLicense(Exception):
    """A package has no known license expression."""


def python_packages() -> list[Package]:
    """Return the packages of all dependency groups except those for developers, sorted by name."""
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in (ROOT / "requirements").glob("*.txt"):
        if path.stem not in _DEVELOPMENT:
            for name, version in _PIN.findall(path.read_text()):
                groups[name, version].add(path.stem)
    return [Package(*key, tuple(sorted(found))) for key, found in sorted(groups.items())]


def scripts() -> list[dict[str, Any]]:
    """Return the entries of web/package-lock.json that the pages contain, each with its name."""
    locked = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    return [
        {"name": path.rpartition("node_modules/")[2], **entry}
        for path, entry in sorted(locked.items())
        if path and not entry.get("dev")
    ]


@cache
def expression(name: str) -> str:
    """Return the SPDX expression of a Python package. Raises UnknownLicense if there is none."""
    accepted = TABLE["accepted"].get(name)
    found: str | None = accepted["license"] if accepted else TABLE["packages"].get(name) or declared(name)
    if found is None:
        raise UnknownLicense(
            f"The license of {name} is unknown: its metadata contains no SPDX expression, or it is not installed."
            " Run make setup, or add the package to deploy/release/licenses.toml."
        )
    return found


def declared(name: str) -> str | None:
    """Return the SPDX expression in the metadata of an installed package, or None."""
    try:
        fields = metadata.metadata(name)
        text = next((fields[key] for key in ("License-Expression", "License") if key in fields), "")
        return str(canonicalize_license_expression(text))
    except (metadata.PackageNotFoundError, InvalidLicenseExpression):
        return None


def is_allowed(text: str) -> bool:
    """Return True if all parts of an SPDX expression are allowed licenses. Of alternatives, one must be allowed."""
    return _is_allowed(_LICENSING.parse(text))


def _is_allowed(node: Any) -> bool:
    parts = [_is_allowed(part) for part in node.args]
    if type(node) is _LICENSING.AND:
        return all(parts)
    return any(parts) if type(node) is _LICENSING.OR else node.render() in ALLOWED


def is_accepted(name: str, text: str) -> bool:
    """Return True if a package can have this SPDX expression."""
    return is_allowed(text) or TABLE["accepted"].get(name, {}).get("license") == text


def page() -> str:
    """Return the text of docs/licenses.md."""
    accepted = [(name, f"`{row['license']}`", row["reason"]) for name, row in sorted(TABLE["accepted"].items())]
    packages = [(each.name, f"`{expression(each.name)}`", ", ".join(each.groups)) for each in python_packages()]
    return PAGE.format(
        accepted=_table(("package", "license", "reason"), accepted),
        contents=_table(("package", "contains"), sorted(TABLE["contents"].items())),
        images=_table(("image", "license"), [(name, f"`{text}`") for name, text in TABLE["images"].items()]),
        scripts=_table(("package", "license"), [(each["name"], f"`{each['license']}`") for each in scripts()]),
        packages=_table(("package", "license", "groups"), packages),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    print(page(), end="")

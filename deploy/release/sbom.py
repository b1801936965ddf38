"""Write a CycloneDX bill of materials, which lists all packages of installations and pages with their licenses."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from deploy.release import licenses

_NAME, _LICENSE = "threads-cluster", "Apache-2.0"


class Invalid(Exception):
    """A bill of materials does not match its schema, or contains a license that is not allowed."""


def write(version: str, revision: str, made: datetime) -> str:
    """Return the bill of materials of a release in JSON, which depends only on the arguments and the checkout.

    Raises Invalid if a package's license is not allowed.
    """
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{_NAME}/{version}/{revision}"))
    bom.metadata.timestamp = made
    bom.metadata.component = _component(
        PackageURL("pypi", name=_NAME, version=version), _LICENSE, type=ComponentType.APPLICATION
    )
    bom.components.update(_python_components())
    bom.components.update(_script_components())
    bom.register_dependency(bom.metadata.component, bom.components)
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    check(text)
    return text


def check(text: str) -> None:
    """Raise Invalid if a bill of materials does not match the schema of CycloneDX."""
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise Invalid(f"The bill of materials does not match the schema of CycloneDX 1.6: {error}")


def _python_components() -> Iterator[Any]:
    for package in licenses.python_packages():
        purl = PackageURL("pypi", name=package.name, version=package.version)
        groups = [Property(name=f"{_NAME}:group", value=group) for group in package.groups]
        yield _component(purl, licenses.expression(package.name), properties=groups)


def _script_components() -> Iterator[Any]:
    for entry in licenses.scripts():
        scope, _, name = entry["name"].rpartition("/")
        purl = PackageURL("npm", namespace=scope or None, name=name, version=entry["version"])
        digest = base64.b64decode(entry["integrity"].removeprefix("sha512-")).hex()
        yield _component(purl, entry["license"], hashes=[HashType(alg=HashAlgorithm.SHA_512, content=digest)])


def _component(purl: Any, expression: str, **more: Any) -> Any:
    if not licenses.is_accepted(purl.name, expression):
        raise Invalid(f"{purl.name} has the license {expression}, which deploy/release/licenses.toml does not allow.")
    return Component(
        name=purl.name,
        group=purl.namespace,
        version=purl.version,
        purl=purl,
        bom_ref=str(purl),
        licenses=[LicenseExpression(expression)],
        **more,
    )

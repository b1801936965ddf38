"""Generator of the reference of settings, from the settings classes and the comments above their fields."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from deploy.docs.markdown import code, prose, table
from jobs.settings import Settings
from threads_cluster import settings as client

_COMPOSE = """\

## Docker Compose

Only Docker Compose reads these variables.

"""
#: Pattern of a field, with the comment lines above the field.
_FIELD = re.compile(r"(?P<comment>(?:^ {4}#: .*\n)+)^ {4}(?P<field>[a-z]\w*): ", re.MULTILINE)
#: Pattern of the path of a documentation page in a comment. Such a path becomes a link.
_PAGE = re.compile(r"\bdocs/([\w/-]+\.md(?:#[\w-]+)?)")
#: Pattern of a variable in a Compose file, with its default value.
_VARIABLE = re.compile(r"\$\{([A-Z_]+):?-?([^}]*)\}")


@dataclass(frozen=True)
class Variable:
    """A setting: its default, and the environment variables that set it."""

    default: Any
    names: tuple[str, ...]


def render(root: Path) -> str:
    """Return the tables of settings for docs/settings.md. `root` is the path of the checkout."""
    fields = variables()
    texts = comments(root / "threads_cluster/settings.py") | comments(root / "jobs/settings.py")
    records = [
        (code(name.upper()), code(str(each.default)), prose(_description(name, each, texts.get(name, ""))))
        for name, each in sorted(fields.items())
    ]
    headings = ("Variable", "Default", "Description")
    example = (root / ".env.example").read_text()
    compose = [
        (code(name), code(default), _PAGE.sub(r"[\1](\1)", prose(_example_comment(example, name))))
        for name, default in sorted(_compose_variables(root).items())
        if name.lower() not in fields
    ]
    return table(headings, records) + _COMPOSE + table(headings, compose)


def variables() -> dict[str, Variable]:
    """Return the settings of the servers and of the client, keyed by field name."""
    servers = {name: Variable(field.default, _aliases(field)) for name, field in Settings.model_fields.items()}
    clients = {each.name: Variable(**each.metadata) for each in dataclasses.fields(client.Settings)}
    return servers | clients


def _aliases(field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    return tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else ()


def _description(name: str, variable: Variable, comment: str) -> str:
    others = [f"`{each.upper()}`" for each in variable.names if each != name]
    text = f"{comment} {', '.join(others)} means the same." if others else comment
    return _PAGE.sub(r"[\1](\1)", text)


def comments(source: Path) -> dict[str, str]:
    """Return the comments above the fields of a settings class, keyed by field name."""
    return {
        each["field"]: " ".join(line.strip().removeprefix("#: ") for line in each["comment"].splitlines())
        for each in _FIELD.finditer(source.read_text())
    }


def _compose_variables(root: Path) -> dict[str, str]:
    files = [root / "docker-compose.yml", *sorted((root / "deploy").glob("*.yml"))]
    return dict(pair for file in files for pair in _VARIABLE.findall(file.read_text()))


def _example_comment(example: str, name: str) -> str:
    """Return the comment above a variable in the file .env.example."""
    before, found, _ = example.partition(f"\n#{name}=")
    paragraph = before.rpartition("\n\n")[2] if found else ""
    return " ".join(line.removeprefix("# ") for line in paragraph.splitlines() if line.startswith("# "))

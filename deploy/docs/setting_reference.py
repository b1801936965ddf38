"""Generator of the reference of settings, from the Pydantic models and the comments above their fields."""

from __future__ import annotations

import re
from pathlib import Path

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


def render(root: Path) -> str:
    """Return the tables of settings for docs/settings.md. `root` is the path of the checkout."""
    fields = Settings.model_fields | client.Settings.model_fields
    texts = comments(root / "threads_cluster/settings.py") | comments(root / "jobs/settings.py")
    records = [
        (code(name.upper()), code(_default(field)), prose(_description(name, field, texts.get(name, ""))))
        for name, field in sorted(fields.items())
    ]
    headings = ("Variable", "Default", "Description")
    example = (root / ".env.example").read_text()
    compose = [
        (code(name), code(default), _PAGE.sub(r"[\1](\1)", prose(_example_comment(example, name))))
        for name, default in sorted(_compose_variables(root).items())
        if name.lower() not in fields
    ]
    return table(headings, records) + _COMPOSE + table(headings, compose)


def _default(field: FieldInfo) -> str:
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _description(name: str, field: FieldInfo, comment: str) -> str:
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else ()
    others = [f"`{str(each).upper()}`" for each in choices if each != name]
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

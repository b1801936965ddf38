"""The reference of settings, from the fields of their Pydantic models and the comments above these."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from deploy.docs.markdown import code, prose, table
from jobs.settings import Settings
from threads_cluster import settings as client

_HEAD = """\
# Settings

Each process reads its settings from environment variables. With Docker Compose, write them to `.env`. Start from
`.env.example`, which lists all of them. An empty variable means the default.

`REDIS_URL`, `CLUSTER_TOKEN`, `METRICS_TOKEN` and `SECRETS_KEY` can also be files in `/run/secrets`, named `redis_url`,
`cluster_token`, `metrics_token` and `secrets_key`. A variable has precedence over a file.

"""
_COMPOSE = """\

## Docker Compose

Only Docker Compose reads these variables.

"""
#: A field with the lines of the comment above it.
_FIELD = re.compile(r"(?P<comment>(?:^ {4}#: .*\n)+)^ {4}(?P<field>[a-z]\w*): ", re.MULTILINE)
#: Variables of a file of Compose, with their defaults.
_VARIABLE = re.compile(r"\$\{([A-Z_]+):?-?([^}]*)\}")


def render(root: Path) -> str:
    """Return the page. `root` is the checkout."""
    fields = Settings.model_fields | client.Settings.model_fields
    texts = comments(root / "threads_cluster/settings.py") | comments(root / "jobs/settings.py")
    records = [
        (code(name.upper()), code(_default(field)), prose(_meaning(field, texts.get(name, ""))))
        for name, field in sorted(fields.items())
    ]
    headings = ("Variable", "Default", "Description")
    example = (root / ".env.example").read_text()
    compose = [
        (code(name), code(default), prose(_in_example(example, name)))
        for name, default in sorted(_of_compose(root).items())
        if name.lower() not in fields
    ]
    return _HEAD + table(headings, records) + _COMPOSE + table(headings, compose)


def _default(field: FieldInfo) -> str:
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _meaning(field: FieldInfo, comment: str) -> str:
    alias = field.validation_alias
    others = [str(each).upper() for each in alias.choices[1:]] if isinstance(alias, AliasChoices) else []
    return f"{comment} {', '.join(others)} means the same." if others else comment


def comments(source: Path) -> dict[str, str]:
    """Return the comment above each field of a class of settings."""
    return {
        each["field"]: " ".join(line.strip().removeprefix("#: ") for line in each["comment"].splitlines())
        for each in _FIELD.finditer(source.read_text())
    }


def _of_compose(root: Path) -> dict[str, str]:
    files = [root / "docker-compose.yml", *sorted((root / "deploy").glob("*.yml"))]
    return dict(pair for file in files for pair in _VARIABLE.findall(file.read_text()))


def _in_example(example: str, name: str) -> str:
    """Return the comment above a variable in .env.example."""
    before, found, _ = example.partition(f"\n#{name}=")
    paragraph = before.rpartition("\n\n")[2] if found else ""
    return " ".join(line.removeprefix("# ") for line in paragraph.splitlines() if line.startswith("# "))

"""docs/adding-*.md name files that exist and link to pages that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("adding-*.md"))
#: A path with a folder and a suffix, as the pages write one.
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.\w+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
#: What adding-a-kind.md creates.
NEW = ("jobs/kinds/pi/", "benchmarks/pi/", "jobs/__init__.py", "jobs/kinds/__init__.py")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_is_a_page_for_a_kind_an_endpoint_and_a_metric() -> None:
    assert {page.stem for page in PAGES} == {"adding-a-kind", "adding-an-endpoint", "adding-a-metric"}


@each_page
def test_files_and_links_are_there(page: Path) -> None:
    text = page.read_text()
    missing = [path for path in PATH.findall(text) if not path.startswith(NEW) and not (ROOT / path).exists()]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing


@each_page
def test_python_can_be_parsed(page: Path) -> None:
    """Whole modules, statements of one, or an entry of a list with its comma."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        lines = block.splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        ast.parse("\n".join(line[indent:] for line in lines))

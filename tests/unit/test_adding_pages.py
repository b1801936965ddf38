"""Tests that the pages about adding something exist, and that their Python code is valid."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("adding-*.md"))

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_is_a_page_for_a_kind_an_endpoint_an_engine_and_a_metric() -> None:
    assert {page.stem for page in PAGES} == {
        "adding-a-kind",
        "adding-an-endpoint",
        "adding-an-engine",
        "adding-a-metric",
    }


@each_page
def test_python_can_be_parsed(page: Path) -> None:
    """The code can be a module, statements, or a list entry with its comma."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        lines = block.splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        ast.parse("\n".join(line[indent:] for line in lines))

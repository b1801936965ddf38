"""Tests that docs/notebook.ipynb is a valid notebook with stable outputs, and that its code fits the client."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest

import threads_cluster
from deploy.docs import notebook_page
from tests import notebook
from tests.integration.live import TOP
from tests.unit.test_public_names import check_calls

TEXT = notebook.NOTEBOOK.read_text()
STORED = json.loads(TEXT)
CODE = [cell for cell in STORED["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_the_current_format() -> None:
    assert (STORED["nbformat"], STORED["nbformat_minor"]) == (4, 5)
    assert {cell["cell_type"] for cell in STORED["cells"]} == {"code", "markdown"}
    ids = [cell["id"] for cell in STORED["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", each) for each in ids)
    assert all(isinstance(cell["metadata"], dict) and cell["source"] for cell in STORED["cells"])


def test_all_cells_were_executed_in_order_without_an_error() -> None:
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "execute_result", "display_data"}
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} == {"stdout"}


def test_each_expression_at_the_end_of_a_cell_has_an_output() -> None:
    for cell in CODE:
        last = code(cell).body[-1]
        is_silent = (
            isinstance(last, ast.Expr) and ".delete(" not in ast.unparse(last) and ".close(" not in ast.unparse(last)
        )
        assert bool(cell["outputs"]) or not is_silent, "".join(cell["source"])


def test_the_outputs_name_no_path_of_a_machine() -> None:
    assert not re.findall(r"(?:/home|/root|/work|/Users|site-packages|/tmp(?!/ipykernel/))\S*", TEXT)
    assert notebook.stable(STORED) == STORED


def test_the_notebook_shows_every_part() -> None:
    sources = "".join("".join(cell["source"]) for cell in CODE)
    parts = ("run(", "executor(", "progress=True", ".map(", "__cause__", "put(", "task", "as_completed", "await ")
    assert [part for part in (*parts, "parallel_config", "workflows", "services") if part not in sources] == []


@pytest.mark.parametrize("cell", CODE, ids=[cell["id"] for cell in CODE])
def test_the_code_uses_names_that_exist(cell: dict[str, Any]) -> None:
    tree = code(cell)
    check_calls(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "threads_cluster":
            assert all(hasattr(threads_cluster, each.name) for each in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cluster":
            assert hasattr(threads_cluster.Cluster, node.attr)


def test_the_page_of_the_site_has_the_code_and_the_outputs() -> None:
    page = notebook_page.render(TOP)
    assert page.count("```python\n") == len(CODE)
    assert "```text\n1024\n" in page and "<svg" in page
    assert "style=" not in page, "the Content-Security-Policy forbids inline styles"


def code(cell: dict[str, Any]) -> ast.Module:
    tree = compile("".join(cell["source"]), cell["id"], "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    return tree

"""Tests that the public names of the Python client are complete, documented and importable.

Each public class, function and method has a docstring that begins with a sentence, names all parameters, and contains
an example indented by four spaces. Properties have a sentence. Examples are valid Python, and their calls fit the
signatures.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import threads_cluster
from threads_cluster.client.calling.options import Options
from threads_cluster.errors import ClientError

PUBLIC = {name: getattr(threads_cluster, name) for name in threads_cluster.__all__}
ERRORS = {name for name, value in PUBLIC.items() if isinstance(value, type) and issubclass(value, BaseException)}
#: Modules whose errors only the command raises.
COMMAND_ONLY = re.compile(r"threads_cluster\.(cli|ssh)\b|threads_cluster\.errors\.NothingMore")


#: Properties of a Cluster that only executors use.
INTERNAL = {"task_executors", "values", "watcher"}
#: Classes whose constructors users do not call, because methods return the objects.
RETURNED = {"ClusterExecutor", "Reference", "Task"}


def resources() -> Iterator[tuple[str, type]]:
    """Yield the classes whose methods users call, with the expression that returns an object of the class."""
    yield from ((name, value) for name, value in PUBLIC.items() if isinstance(value, type) and name not in ERRORS)
    for name, attribute in vars(threads_cluster.Cluster).items():
        if hasattr(attribute, "attrname") and name not in INTERNAL:  # A cached property
            module, _, kind = inspect.getsource(attribute.func).rpartition("import ")
            kind = kind.split()[0]
            yield f"Cluster.{name}", getattr(importlib.import_module(module.split()[-1]), kind)


METHODS = [
    (f"{owner}.{name}", method)
    for owner, kind in resources()
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and method.__module__.startswith("threads_cluster")
]
#: Classes of the objects in examples, by expression.
OBJECTS = {name.replace("Cluster.", "cluster."): kind for name, kind in resources() if "." in name} | {
    "cluster": threads_cluster.Cluster,
    "executor": threads_cluster.ClusterExecutor,
    "client": threads_cluster.ClusterClient,
    "manager": threads_cluster.LLMClusterManager,
    "double": threads_cluster.Task,
}


def example(text: str) -> ast.Module:
    """Return the code of a docstring: the lines that are indented by four spaces."""
    code = textwrap.dedent("\n".join(line for line in text.splitlines() if line.startswith("    ")))
    return compile(code, "example", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def unnamed(function: Any, text: str) -> list[str]:
    """Return the parameters of a function that a text does not name."""
    names = inspect.signature(function).parameters
    return [name for name in names if name != "self" and not re.search(rf"\b{name}\b", text)]


def check_calls(code: ast.AST) -> None:
    """Check that the methods that code calls exist and accept the arguments."""
    for call in (node for node in ast.walk(code) if isinstance(node, ast.Call)):
        kind = OBJECTS.get(ast.unparse(call.func.value)) if isinstance(call.func, ast.Attribute) else None
        if kind is not None and isinstance(call.func, ast.Attribute):
            names = [keyword.arg for keyword in call.keywords if keyword.arg]
            inspect.signature(getattr(kind, call.func.attr)).bind(None, *call.args, **dict.fromkeys(names))


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - ERRORS))
def test_a_public_name_is_documented(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    assert re.match(r"[A-Z].*\.$", text.partition("\n")[0])
    code = example(text)
    assert code.body, f"the docstring of {name} has no example, indented by 4 spaces"
    check_calls(code)
    texts = text + (inspect.getdoc(getattr(value, "__init__", None)) or "")
    assert name in RETURNED or not unnamed(value, texts)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_says_when_it_is_raised(name: str) -> None:
    assert len((inspect.getdoc(PUBLIC[name]) or "").split()) > 4


@pytest.mark.parametrize(("name", "method"), METHODS, ids=[name for name, _ in METHODS])
def test_a_public_method_is_documented(name: str, method: Any) -> None:
    text = inspect.getdoc(method) or ""
    assert re.match(r"[A-Z].*[.`]", text), f"{name} has no docstring"
    assert not unnamed(method, text), f"the docstring of {name} does not name these parameters"
    code = example(text)
    assert re.search(rf"\b{method.__name__}\(|@.*\b{method.__name__}\b", ast.unparse(code)), f"{name} has no example"
    check_calls(code)


def test_a_public_property_has_a_docstring() -> None:
    def is_property(value: object) -> bool:
        return isinstance(value, property) or hasattr(value, "attrname")

    found = {
        f"{owner}.{name}": inspect.getdoc(value)
        for owner, kind in resources()
        for name, value in inspect.getmembers(kind, is_property)
    }
    assert len(found) > 10 and [name for name, text in found.items() if not text] == []


def test_the_executor_documents_all_options() -> None:
    text = inspect.getdoc(threads_cluster.Cluster.executor) or ""
    assert not unnamed(Options, text)


def test_an_example_with_a_wrong_argument_is_found() -> None:
    with pytest.raises(TypeError, match="wait_for"):
        check_calls(ast.parse("cluster.services.wait('chat', wait_for=3)"))
    with pytest.raises(AttributeError):
        check_calls(ast.parse("cluster.services.await_ready()"))


def test_all_errors_that_the_client_raises_are_public() -> None:
    for module in pkgutil.walk_packages(threads_cluster.__path__, "threads_cluster."):
        if module.name.startswith(("threads_cluster.client", "threads_cluster.errors")):
            importlib.import_module(module.name)
    found, left = set(), [ClientError]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        path = f"{kind.__module__}.{kind.__qualname__}"
        if path.startswith("threads_cluster.") and not COMMAND_ONLY.match(path):
            found.add(kind.__name__)
    assert found <= ERRORS


def test_type_checkers_and_the_interpreter_see_the_same_names() -> None:
    source = Path(threads_cluster.__file__).read_text()
    assert all(re.search(rf"^        {name},$|import .*\b{name}\b", source, re.MULTILINE) for name in PUBLIC)
    assert set(dir(threads_cluster)) >= set(PUBLIC)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Clustr'"):
        threads_cluster.Clustr  # noqa: B018


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(threads_cluster.__file__).with_name("py.typed").is_file()


def test_a_star_import_needs_no_optional_package() -> None:
    code = "import sys; sys.modules['joblib'] = None; from threads_cluster import *; print(Cluster.__name__)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "Cluster\n"
    )

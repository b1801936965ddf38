"""Tests that the public names of the Python client are complete, documented and importable."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import threads_cluster
from threads_cluster.errors import ClientError

PUBLIC = {name: getattr(threads_cluster, name) for name in threads_cluster.__all__}
ERRORS = {name for name, value in PUBLIC.items() if isinstance(value, type) and issubclass(value, BaseException)}
#: Modules whose errors only the command raises.
COMMAND_ONLY = re.compile(r"threads_cluster\.(cli|ssh)\b|threads_cluster\.errors\.NothingMore")


def resources() -> Iterator[tuple[str, type]]:
    """Yield the classes whose methods users call, with the expression that returns an object of the class."""
    yield from ((name, value) for name, value in PUBLIC.items() if isinstance(value, type) and name not in ERRORS)
    for name, attribute in vars(threads_cluster.Cluster).items():
        if hasattr(attribute, "attrname"):  # A cached property
            module, _, kind = inspect.getsource(attribute.func).rpartition("import ")
            kind = kind.split()[0]
            yield f"Cluster.{name}", getattr(importlib.import_module(module.split()[-1]), kind)


METHODS = [
    (f"{owner}.{name}", method)
    for owner, kind in resources()
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and method.__module__.startswith("threads_cluster")
]


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - ERRORS))
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert re.search(r"^ {4}\S", text, re.MULTILINE), f"the docstring of {name} has no example, indented by 4 spaces"
    assert re.match(r"[A-Z].*\.$", text.partition("\n")[0])


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_says_when_it_is_raised(name: str) -> None:
    assert len((inspect.getdoc(PUBLIC[name]) or "").split()) > 4


@pytest.mark.parametrize(("name", "method"), METHODS, ids=[name for name, _ in METHODS])
def test_a_public_method_has_a_docstring(name: str, method: Any) -> None:
    assert re.match(r"[A-Z].*[.`]", inspect.getdoc(method) or ""), f"{name} has no docstring"


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

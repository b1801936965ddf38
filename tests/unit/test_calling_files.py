"""Tests which files the client uploads for calls, and which Python makes the calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.calling_fake import Calling, Process
from threads_cluster.client.calling import pickling, project
from threads_cluster.client.calling.launching import Launching
from threads_cluster.client.calling.options import Options
from threads_cluster.client.calling.project import Project
from threads_cluster.errors import BadArgument


@pytest.fixture
def fake() -> Calling:
    return Calling()


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the modules of this process, except in tests that load a project."""
    monkeypatch.setattr(project, "PROJECT", Project({}))


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a project of three modules and a package, and import them."""
    for path in ("alone_x.py", "other_x.py", "several_x/__init__.py"):
        write(tmp_path / path, "class Point:\n    pass\n")
    for path in ("lazy.py", "in/__init__.py"):
        write(tmp_path / "several_x" / path, "")
    write(tmp_path / "several_x/data.bin", "1")
    write(tmp_path / "user_x.py", "def total(n):\n    import alone_x, several_x\n    return n\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("alone_x", "other_x", "several_x", "user_x")
    found = {name: importlib.import_module(name) for name in names}
    monkeypatch.setattr(project, "PROJECT", Project(found | {"sys": sys, "pytest": pytest}))
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def parameters(fake: Calling, url: str = "http://127.0.0.1:1", **options: Any) -> dict[str, Any]:
    with fake.cluster(url) as cluster:
        cluster.values.encode(options.pop("function", None))
        return Launching(cluster, Options(**options)).parameters()


def module(name: str) -> Any:
    return sys.modules[name]


def uploaded(fake: Calling) -> set[str]:
    """Return the paths of the last upload."""
    return {line.split(b",")[1].strip(b' "').decode() for line in fake.committed[1].splitlines()[1:]}


def test_modules_that_the_function_and_its_module_import_are_uploaded(loaded: Path, fake: Calling) -> None:
    parameters(fake, function=module("user_x").total)
    packages = (f"several_x/{name}.py" for name in ("__init__", "lazy", "in/__init__"))
    assert uploaded(fake) == {"user_x.py", "alone_x.py", *packages}


def test_a_function_without_modules_of_the_project_needs_no_files(loaded: Path, fake: Calling) -> None:
    assert "files" not in parameters(fake, function=abs)


def test_modules_of_arguments_and_of_stored_values_are_uploaded(loaded: Path, fake: Calling) -> None:
    with fake.cluster() as cluster:
        cluster.values.encode(((module("alone_x").Point(),), {}))
        launching, kept = Launching(cluster, Options()), []
        launching.parameters()
        assert uploaded(fake) == {"alone_x.py"}
        kept.append(cluster.put(module("other_x").Point()))
        launching.parameters()
        assert uploaded(fake) == {"alone_x.py", "other_x.py"}


def test_environments_caches_and_hidden_folders_of_a_package_are_not_uploaded(loaded: Path, fake: Calling) -> None:
    write(loaded / "several_x/env2/pyvenv.cfg", "")
    for folder in ("env2/lib", "site-packages", "__pycache__", ".git", "node_modules"):
        write(loaded / f"several_x/{folder}/unwanted.py", "")
    write(loaded / "several_x/kept/more.py", "")
    parameters(fake, function=module("several_x").Point)
    assert uploaded(fake) == {f"several_x/{name}.py" for name in ("__init__", "lazy", "in/__init__", "kept/more")}


@pytest.mark.parametrize("folder", ["env2/lib/python3.12/site-packages", "target"])
@pytest.mark.parametrize("file", ["other_x.py", "other_x/__init__.py"])
def test_modules_of_other_environments_are_installed_packages(tmp_path: Path, folder: str, file: str) -> None:
    write(tmp_path / "target/other_x-1.dist-info/METADATA", "")
    other = ModuleType("other_x")
    other.__file__ = str(tmp_path / folder / file)
    if file.endswith("__init__.py"):
        other.__path__ = [str(tmp_path / folder / "other_x")]
    assert not Project({"other_x": other}).modules()


def test_a_changed_module_is_uploaded_again_after_some_time(
    loaded: Path, fake: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threads_cluster.client.calling.launching.CHECK_SECONDS", 0.0)
    with fake.cluster() as cluster:
        cluster.values.encode(module("alone_x"))
        launching = Launching(cluster, Options())
        first = launching.parameters()["files"]
        assert launching.parameters()["files"] == first
        (loaded / "alone_x.py").write_text("X = 2\n")
        assert launching.parameters()["files"] != first


def test_files_are_not_searched_for_each_job(loaded: Path, fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threads_cluster.client.calling.launching.CHECK_SECONDS", 600.0)
    with fake.cluster() as cluster:
        cluster.values.encode(module("alone_x"))
        launching = Launching(cluster, Options())
        first = launching.parameters()
        searched = project.PROJECT
        monkeypatch.setattr(project, "PROJECT", None)
        assert launching.parameters() == first
        monkeypatch.setattr(project, "PROJECT", searched)
        cluster.values.encode(module("other_x"))
        assert launching.parameters() != first, "another module is needed"


def test_a_runner_on_another_machine_gets_cloudpickle(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    found = parameters(fake, "http://cluster.test")
    assert "cloudpickle/cloudpickle.py" in uploaded(fake)
    assert found["command"][-1] == {"literal": "python3"}


def test_a_runner_on_this_machine_uses_the_same_python(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    found = parameters(fake)
    assert found["command"][-2:] == [{"literal": sys.executable}, {"literal": "python3"}]
    assert "files" not in found


def test_required_packages_are_installed_by_the_runner(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    found = parameters(fake, requirements=["numpy>=2", "attrs"])
    assert found["python"] == {"requirements": project.REQUIREMENTS}
    assert {"cloudpickle/cloudpickle.py", project.REQUIREMENTS} < uploaded(fake)
    assert b"numpy>=2\nattrs\n" in fake.stored.values()
    assert found["command"][-1] == {"literal": "python3"}


def test_a_folder_replaces_the_modules(fake: Calling, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("1")
    (tmp_path / "needed.txt").write_text("attrs")
    found = parameters(fake, files=tmp_path, requirements="needed.txt")
    assert uploaded(fake) == {"mine.txt", "needed.txt"}
    assert found["python"] == {"requirements": "needed.txt"}
    with pytest.raises(BadArgument, match="path of a file"):
        parameters(fake, files=tmp_path, requirements=["attrs"])


def test_a_version_of_python_is_asked_for_by_its_name(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parameters(fake, python="3.13")["command"][-1] == {"literal": "python3.13"}


def answer(command: list[Any], function: str) -> Any:
    """Return the exception of a call that the program makes with these arguments."""
    process = Process([word if isinstance(word, str) else word["literal"] for word in command])
    try:
        arguments = pickling.text_of(pickling.dump(((), {})).data)
        message = {"job": "j1", "unit": 0, "attempt": 1, "item": arguments, "input": function}
        found = process.run(message)
        assert found
        return found
    finally:
        process.end()


def test_bytecode_of_another_python_is_not_loaded(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    command = parameters(fake)["command"]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    command[command.index(here)] = "3.99"
    by_value, by_name = (pickling.text_of(pickling.dump(each).data) for each in (lambda: 1, dict))
    assert 'pass python="3.99"' in answer(command, by_value)["error"]
    assert "error" not in answer(command, by_name)


def test_a_python_without_cloudpickle_is_named(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    command = parameters(fake)["command"]
    start = 'if __name__ == "__main__":'
    command[4] = {"literal": command[4]["literal"].replace(start, f"sys.modules['cloudpickle'] = None\n{start}")}
    by_value, by_name = (pickling.text_of(pickling.dump(each).data) for each in (lambda: 1, dict))
    assert "lacks cloudpickle" in answer(command, by_value)["error"]
    assert "error" not in answer(command, by_name)

"""Tests which files travel with calls, and which Python makes them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.calling_fake import Calling, Process
from threads_cluster.client.calling import pickling, project
from threads_cluster.client.calling.launching import Launching
from threads_cluster.client.calling.options import Options
from threads_cluster.errors import BadArgument


@pytest.fixture
def fake() -> Calling:
    return Calling()


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a project of a module and a package, and import both. Other modules of this process are not loaded."""
    (tmp_path / "alone_x.py").write_text("X = 1\n")
    (tmp_path / "several_x" / "inner").mkdir(parents=True)
    for path in ("__init__.py", "lazy.py", "inner/__init__.py"):
        (tmp_path / "several_x" / path).write_text("")
    (tmp_path / "several_x" / "data.bin").write_bytes(b"1")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {name: importlib.import_module(name) for name in ("alone_x", "several_x")}
    monkeypatch.setattr(project, "modules", partial(project.modules, found | {"sys": sys, "pytest": pytest}))
    yield tmp_path
    for name in ("alone_x", "several_x"):
        sys.modules.pop(name, None)


def parameters(fake: Calling, url: str = "http://127.0.0.1:1", **options: Any) -> dict[str, Any]:
    with fake.cluster(url) as cluster:
        return Launching(cluster, Options(**options)).parameters()


def uploaded(fake: Calling) -> set[str]:
    """Return the paths of the last upload."""
    return {line.split(b",")[1].strip(b' "').decode() for line in fake.committed[1].splitlines()[1:]}


def test_loaded_modules_of_the_project_travel_with_their_packages(loaded: Path, fake: Calling) -> None:
    assert parameters(fake)["files"]
    assert uploaded(fake) == {
        "alone_x.py",
        *(f"several_x/{name}.py" for name in ("__init__", "lazy", "inner/__init__")),
    }


def test_a_changed_module_is_uploaded_again_after_some_time(
    loaded: Path, fake: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threads_cluster.client.calling.launching.CHECK_SECONDS", 0.0)
    with fake.cluster() as cluster:
        launching = Launching(cluster, Options())
        first = launching.parameters()["files"]
        assert launching.parameters()["files"] == first
        (loaded / "alone_x.py").write_text("X = 2  # longer\n")
        assert launching.parameters()["files"] != first


def test_files_are_not_searched_for_each_job(loaded: Path, fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threads_cluster.client.calling.launching.CHECK_SECONDS", 600.0)
    with fake.cluster() as cluster:
        launching = Launching(cluster, Options())
        first = launching.parameters()
        monkeypatch.setattr(project, "modules", lambda: pytest.fail("the modules are searched again"))
        assert launching.parameters() == first
        monkeypatch.setitem(sys.modules, "another_x", sys)
        monkeypatch.setattr(project, "modules", dict)
        assert "files" not in launching.parameters(), "another module is loaded"


def test_a_runner_on_another_machine_gets_cloudpickle(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "modules", dict)
    found = parameters(fake, "http://cluster.test")
    assert "cloudpickle/cloudpickle.py" in uploaded(fake)
    assert found["command"][-1] == {"literal": "python3"}


def test_a_runner_on_this_machine_uses_the_same_python(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "modules", dict)
    found = parameters(fake)
    assert found["command"][-2:] == [{"literal": sys.executable}, {"literal": "python3"}]
    assert "files" not in found


def test_required_packages_are_installed_by_the_runner(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "modules", dict)
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
    monkeypatch.setattr(project, "modules", dict)
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
    monkeypatch.setattr(project, "modules", dict)
    command = parameters(fake)["command"]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    command[command.index(here)] = "3.99"
    by_value, by_name = (pickling.text_of(pickling.dump(each).data) for each in (lambda: 1, dict))
    assert 'pass python="3.99"' in answer(command, by_value)["error"]
    assert "error" not in answer(command, by_name)


def test_a_python_without_cloudpickle_is_named(fake: Calling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "modules", dict)
    command = parameters(fake)["command"]
    start = 'if __name__ == "__main__":'
    command[4] = {"literal": command[4]["literal"].replace(start, f"sys.modules['cloudpickle'] = None\n{start}")}
    by_value, by_name = (pickling.text_of(pickling.dump(each).data) for each in (lambda: 1, dict))
    assert "lacks cloudpickle" in answer(command, by_value)["error"]
    assert "error" not in answer(command, by_name)

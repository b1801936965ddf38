"""Tests the paths with which a new machine installs the cluster: no other file is served, and no token is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator import app
from jobs.settings import Settings
from tests.unit.test_pages import Client

WHEEL = "threads_cluster-1.2.3-py3-none-any.whl"


def client(join_dir: str = "") -> Client:
    # Redis does not answer, because these paths do not need it.
    settings = Settings(redis_url="redis://127.0.0.1:1/0", cluster_token="t" * 40, join_dir=join_dir)
    return Client(app.create(settings))


@pytest.fixture
def served(tmp_path: Path) -> Client:
    (tmp_path / "secret.whl").write_text("private bytes")
    (tmp_path / "join").mkdir()
    (tmp_path / "join" / "join.py").write_text("installer")
    (tmp_path / "join" / "notes.txt").write_text("private bytes")
    (tmp_path / "join" / WHEEL).write_bytes(b"wheel")
    return client(join_dir=str(tmp_path / "join"))


def test_the_installer_and_the_wheel_need_no_token(served: Client) -> None:
    assert served.get("/join").text == "installer" and served.get(f"/join/{WHEEL}").content == b"wheel"
    assert served.get("/api/status").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/join/",
        "/join/join.py",
        "/join/notes.txt",
        "/join/../secret.whl",
        "/join/..%2fsecret.whl",
        "/join/%2e%2e/secret.whl",
        "/join//secret.whl",
        "/join/..",
        "/join/*.whl",
        f"/join/{WHEEL}/",
        f"/join/{WHEEL}%00",
        f"/join/{'a' * 5000}.whl",
        "/join/other.whl",
        "/joins",
    ],
)
def test_no_other_path_is_served(served: Client, path: str) -> None:
    answer = served.get(path)
    assert answer.status_code in (404, 422) and "private bytes" not in answer.text, answer.text


def test_nothing_can_be_sent_to_them(served: Client) -> None:
    for method in ("POST", "PUT", "DELETE"):
        for path in ("/join", f"/join/{WHEEL}"):
            assert served.request(method, path).status_code == 405


def test_a_coordinator_without_an_installer_says_what_to_do(tmp_path: Path) -> None:
    answer = client().get("/join")
    assert answer.status_code == 404 and "./deploy-cluster.sh join in a checkout" in answer.json()["detail"]
    assert client().get(f"/join/{WHEEL}").status_code == 404
    answer = client(join_dir=str(tmp_path / "none")).get("/join")
    assert answer.status_code == 404 and "is being built; try again" in answer.json()["detail"]

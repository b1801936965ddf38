"""Tests the client's stored tokens, one per URL in a file that only the user can read, and the login commands."""

from __future__ import annotations

import fcntl
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.unit.cluster_fake import Fake, problem
from threads_cluster import settings
from threads_cluster.cli import main as cli
from threads_cluster.client import api, contexts, logins
from threads_cluster.client.contexts import Context
from threads_cluster.errors import Misconfigured

URL = "http://cluster.test"
WHO = {
    "tenant": "default",
    "token_id": "abc",
    "token_name": "x",
    "scopes": ["read"],
    "by_cookie": False,
    "token_needed": True,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a user's configuration folder, and a checkout without a cluster."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(settings, "LOCAL_FOLDER", tmp_path / "checkout")
    settings.load.cache_clear()
    yield tmp_path
    settings.load.cache_clear()


def known(address: str = URL, **chosen: str) -> str:
    return logins.credential_for(Context(address), settings.Settings(**chosen)).token


@contextmanager
def local_cluster(folder: Path, url: str = URL, token: str = "") -> Iterator[None]:
    """Create the files of a running local cluster, and hold its lock."""
    folder.mkdir(exist_ok=True)
    (folder / "url").write_text(f"{url}\n")
    if token:
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(f"{token}\n")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_token_is_for_its_own_address_alone(home: Path) -> None:
    stated = settings.Settings()
    file = logins.keep(URL, "ours", stated)
    assert file == home / "config/threads-cluster/tokens.json" and file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    logins.keep("http://other.test", "theirs", stated)
    assert (known(), known("http://other.test"), known(f"{URL}:8080"), known("https://cluster.test")) == (
        "ours",
        "theirs",
        "",
        "",
    )
    assert logins.forget(URL, stated) and not logins.forget(URL, stated)
    assert (known(), known("http://other.test")) == ("", "theirs")


def test_the_variable_comes_before_a_login_and_a_login_before_the_local_clusters_token(home: Path) -> None:
    with local_cluster(home / "checkout", token="local"):
        assert known() == "local" and known("http://127.0.0.1:3000") == ""
        logins.keep(URL, "login", settings.Settings())
        assert known() == "login" and known(cluster_token="variable") == "variable"


@pytest.mark.parametrize("which", ["login", "local"])
def test_a_file_that_others_can_read_is_refused(home: Path, which: str) -> None:
    file = logins.keep(URL, "t", settings.Settings())
    with local_cluster(home / "checkout", token="t"):
        if which == "local":
            logins.forget(URL, settings.Settings())
            file = home / "checkout/token"
        file.chmod(0o640)
        with pytest.raises(Misconfigured, match="other users can read it") as refused:
            known()
    assert f"chmod 600 {file}" in refused.value.next


def test_a_file_that_is_something_else_is_named(home: Path) -> None:
    file = logins.keep(URL, "t", settings.Settings())
    for text in ("", "[]", "{", "\xff"):
        file.write_text(text)
        with pytest.raises(Misconfigured, match=r"tokens\.json cannot be used: the file was not written by"):
            known()


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake, original = Fake(), api.Cluster
    transport = httpx.MockTransport(fake)
    monkeypatch.setattr(api, "Cluster", lambda url, token=None: original(url or URL, token, transport=transport))
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_login_keeps_a_token_from_stdin_once_the_cluster_knows_it(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    fake.on("GET", "/api/session", WHO)
    code, out, err = run(capsys, "login", URL)
    assert (code, out) == (0, f"{URL}: read for tenant default\n") and "tokens.json" in err and "secret" not in err
    assert fake.asked[-1].headers["Authorization"] == "Bearer secret" and known() == "secret"
    assert run(capsys, "logout", URL)[:2] == (0, f"{URL}: token removed\n") and known() == ""
    assert run(capsys, "logout", URL)[:2] == (0, f"{URL}: no token is stored\n")


def test_login_keeps_nothing_that_the_cluster_refuses(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.on("GET", "/api/session", problem(401, "A token is needed"))
    for text in ("wrong\n", "", "  \n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert run(capsys, "login", URL)[0] == 2 and known() == ""


def test_ctrl_d_at_the_prompt_of_login_is_no_token(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", ended)
    code, out, err = run(capsys, "login", URL)
    assert (code, out) == (2, "") and "error: no token was entered; type it at the prompt" in err and not fake.asked


def test_a_created_token_is_printed_alone_on_stdout(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    made = {
        "token": "tc_a_b",
        "id": "a",
        "name": "ci",
        "tenant": "red",
        "scopes": ["read", "submit"],
        "expires": None,
        "labels": [],
    }
    fake.on("POST", "/api/tokens", httpx.Response(201, json=made))
    code, out, err = run(capsys, "token", "create", "ci", "--tenant", "red", "--ttl", "30d")
    assert (code, out) == (0, "tc_a_b\n") and "not shown again" in err
    assert fake.bodies("/api/tokens") == [
        {"name": "ci", "scopes": ["read", "submit"], "tenant": "red", "ttl_seconds": 30 * 86400}
    ]
    assert run(capsys, "token", "create", "ci", "--ttl", "soon")[0] == 2
    unknown = "tenant: rde is not registered; an admin can register it with PUT /api/tenants/rde"
    fake.on("POST", "/api/tokens", problem(422, "There is no such tenant", unknown, field="tenant"))
    code, _, err = run(capsys, "token", "create", "ci", "--tenant", "rde")
    assert code == 2 and "an admin can register it with cluster tenant create rde" in err


def test_tokens_are_listed_and_revoked(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "id": "a",
        "name": "ci",
        "tenant": "red",
        "scopes": ["read"],
        "created": "2026-01-02T03:04:05.000Z",
        "expires": None,
        "used": None,
        "labels": [],
    }
    fake.on("GET", "/api/tokens", {"tokens": [row]})
    fake.on("DELETE", "/api/tokens/a", httpx.Response(204))
    code, out, _ = run(capsys, "token", "list")
    assert code == 0 and out.splitlines()[1].split() == ["a", "ci", "red", "read", "never", "never"]
    assert run(capsys, "token", "revoke", "a")[:2] == (0, "a revoked\n")


def test_a_one_time_link_is_printed(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.on("POST", "/api/login-codes", httpx.Response(201, json={"code": "c", "path": "/#login=c", "seconds": 600}))
    assert run(capsys, "login", "--link")[:2] == (0, f"{URL}/#login=c\n")


def test_a_refused_token_is_named_with_what_to_do(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.on("GET", "/api/status", problem(401, "A token is needed", "this token is unknown"))
    assert run(capsys, "status")[2].startswith("error: this cluster requires a token\nnext: set CLUSTER_TOKEN")
    file = logins.keep(URL, "secret", settings.Settings())
    code, _, err = run(capsys, "status")
    assert (code, err) == (
        2,
        (
            f"error: the cluster rejected the token in {file}: the token is unknown, revoked or expired\n"
            f"next: run: cluster login {URL}\n"
        ),
    )


def test_a_refused_variable_is_named_since_a_login_would_not_win_over_it(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_TOKEN", "secret")
    settings.load.cache_clear()
    fake.on("GET", "/api/status", problem(401, "A token is needed", "this token is unknown"))
    err = run(capsys, "status")[2]
    assert "rejected CLUSTER_TOKEN:" in err and "unset it and run: cluster login" in err and "secret" not in err


def test_a_local_cluster_that_should_run_is_not_started_a_second_time(
    fake: Fake, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake.on("GET", "/api/status", httpx.ConnectError("[Errno 111] Connection refused"))
    assert "next: start a cluster" in run(capsys, "status")[2]
    with local_cluster(home / "checkout"):
        assert "next: the local cluster may be restarting" in run(capsys, "status")[2]


def test_while_the_local_cluster_starts_that_is_what_is_said(home: Path) -> None:
    """No client has the token yet. Nothing changes for other addresses or a running cluster."""
    local, folder = "http://127.0.0.1:3000", home / "checkout"
    folder.mkdir()

    def advice(address: str) -> str:
        return logins.credential_for(Context(address), settings.Settings()).next

    assert advice(local) == logins.NONE.next
    with (folder / "lock").open("w") as lock:
        assert advice(local) == logins.NONE.next, "nobody holds it"
        fcntl.flock(lock, fcntl.LOCK_EX)
        for address in (local, "http://localhost:3000", "http://[::1]:3000"):
            assert advice(address) == logins.STARTING
        for address in (URL, "http://127.0.0.1.example:3000"):
            assert advice(address) == logins.NONE.next
        (folder / "url").write_text("http://127.0.0.1:3001")
        assert advice(local) == logins.NONE.next


def _closed(*_: object) -> None:
    raise PermissionError(13, "Permission denied", "/theirs/.cluster/url")


def test_a_user_without_a_home_needs_none_until_a_token_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", none)
    stated = settings.Settings()
    assert logins.credential_for(Context(URL), stated) == logins.NONE and not logins.forget(URL, stated)
    with pytest.raises(Misconfigured, match="has no home") as refused:
        logins.keep(URL, "t", stated)
    assert "HOME" in refused.value.next and "CLUSTER_TOKEN" in refused.value.next


def test_the_cluster_of_another_user_is_named_where_it_would_be_asked_and_no_trouble_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after `sudo ./deploy-cluster.sh local`, when only the other user can read the folder."""
    monkeypatch.setattr(Path, "read_text", _closed)
    monkeypatch.setattr(Path, "open", _closed)
    with pytest.raises(Misconfigured, match=r"/theirs/\.cluster/url: Permission denied") as refused:
        contexts.choose(settings.Settings())
    assert "as the user who started the cluster" in refused.value.next
    assert contexts.choose(settings.Settings(coordinator_url=URL)).url == URL
    assert not logins.is_local(URL) and known() == ""


def test_a_file_of_tokens_that_cannot_be_opened_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = logins.keep(URL, "t", settings.Settings())
    monkeypatch.setattr(Path, "read_text", _closed)
    with pytest.raises(Misconfigured, match=rf"{file} cannot be used: the file cannot be read"):
        known()

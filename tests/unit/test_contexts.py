"""Tests which cluster a client uses: the order of choice, the stored contexts, and the files of local clusters."""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from deploy.local import user_contexts
from tests.unit.cluster_fake import Fake, problem
from threads_cluster import settings
from threads_cluster.cli import main as cli
from threads_cluster.client import api, checkouts, contexts, logins
from threads_cluster.client.contexts import Context
from threads_cluster.errors import ClientError, Misconfigured

PROD = Context("https://cluster.example")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with an empty configuration folder and a checkout that has no cluster."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(settings, "LOCAL_FOLDER", tmp_path / "mine" / ".cluster")
    settings.load.cache_clear()
    yield tmp_path
    settings.load.cache_clear()


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(text)


def stop(checkout: Path) -> Path:
    """Create the files of a local cluster that was killed, and return its data folder."""
    for name, text in {"url": "http://127.0.0.1:3000\n", "token": f"{checkout.name}-token", "lock": ""}.items():
        write(checkout / ".cluster", name, text)
    return checkout / ".cluster"


@contextmanager
def running(checkout: Path, port: int = 3000) -> Iterator[Path]:
    """Create the files of a running local cluster, and hold its lock."""
    folder = stop(checkout)
    write(folder, "url", f"http://127.0.0.1:{port}\n")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def keep(context: Context, *, select: bool = False) -> Context:
    return contexts.keep(context, settings.Settings(), select=select)


def chosen(url: str | None = None, name: str | None = None, **stated: str) -> Context:
    return contexts.choose(settings.Settings(**stated), url, name)


def stored() -> contexts.Contexts:
    return contexts.load(settings.Settings())


def test_the_order_is_flag_environment_checkout_selected_context(home: Path) -> None:
    with pytest.raises(Misconfigured, match="no cluster is chosen") as refused:
        chosen()
    assert all(word in str(refused.value) for word in ("deploy-cluster.sh local", "cluster login", "CLUSTER_URL"))
    keep(PROD, select=True)
    assert str(chosen()) == "context cluster.example (https://cluster.example)"
    with running(home / "mine", 3007):
        assert str(chosen()) == "context mine (http://127.0.0.1:3007)"
        assert str(chosen(coordinator_url="http://one:1/")) == "http://one:1"
        assert str(chosen("http://two:2", coordinator_url="http://one:1/")) == "http://two:2"
        assert chosen(name="cluster.example", coordinator_url="http://one:1").url == PROD.url
    with pytest.raises(Misconfigured, match="cannot be combined"):
        chosen("http://two:2", "cluster.example")
    with pytest.raises(Misconfigured, match="no context has the name nowhere"):
        chosen(name="nowhere")


def test_a_stopped_cluster_of_the_checkout_is_named_instead_of_another_cluster(home: Path) -> None:
    stop(home / "mine")
    keep(PROD, select=True)
    with pytest.raises(checkouts.NotRunning, match=rf"the checkout {home}/mine is not running; start it with") as down:
        chosen()
    assert down.value.exit_code == 3 and "--context NAME" in str(down.value) and "CLUSTER_URL" in str(down.value)
    assert chosen(name="cluster.example").url == PROD.url
    with running(home / "mine") as folder:
        (folder / "url").unlink()
        with pytest.raises(checkouts.NotRunning, match="is starting: try again when its terminal says Ready"):
            chosen()


def test_a_local_cluster_keeps_its_context_on_another_port_and_two_checkouts_have_two(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, port in (("mine", 3000), ("other/mine", 3001)):
        with running(home / folder, port) as data:
            monkeypatch.setattr(user_contexts, "LOCAL_FOLDER", data)
            user_contexts.keep_local(f"http://127.0.0.1:{port}")
    assert set(stored().by_name) == {"mine", "mine-2"} and stored().selected == "mine"
    with running(home / "other/mine", 3055):
        other = chosen(name="mine-2")
        assert other.url == "http://127.0.0.1:3055"
        assert logins.credential_for(other, settings.Settings()).token == "mine-token"
    with pytest.raises(checkouts.NotRunning, match=rf"the checkout {home}/other/mine is not running"):
        chosen(name="mine-2")
    user_contexts.delete(home / "other/mine/.cluster")
    assert set(stored().by_name) == {"mine"}


def test_local_and_join_never_change_the_selected_context(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(PROD, select=True)
    monkeypatch.setattr(user_contexts, "LOCAL_FOLDER", home / "mine" / ".cluster")
    user_contexts.keep_local("http://127.0.0.1:3000")
    user_contexts.keep_at("https://192.0.2.7:3443", str(home / "joined/authority.pem"))
    assert stored().selected == "cluster.example" and len(stored().by_name) == 3
    user_contexts.delete(home / "joined")
    assert set(stored().by_name) == {"cluster.example", "mine"}


def test_containers_and_kubernetes_keep_and_delete_only_their_own_context(home: Path) -> None:
    keep(PROD, select=True)
    keep(Context("http://127.0.0.1:3000", folder=str(home / "mine" / ".cluster")))
    user_contexts.keep_at("http://127.0.0.1:3000")
    assert stored().selected == "cluster.example" and set(stored().by_name) == {
        "cluster.example",
        "mine",
        "127.0.0.1:3000",
    }
    user_contexts.delete_at("http://127.0.0.1:3000")
    assert stored().selected == "cluster.example" and set(stored().by_name) == {"cluster.example", "mine"}


def test_the_last_context_is_deleted_with_its_files_and_waiting_changes_are_kept(home: Path) -> None:
    file = home / "config" / "threads-cluster" / "contexts.json"
    user_contexts.keep_at("http://127.0.0.1:3000")
    assert file.is_file()
    user_contexts.delete_at("http://127.0.0.1:3000")
    assert list(file.parent.iterdir()) == []

    def change(number: int) -> None:
        user_contexts.keep_at(f"http://192.0.2.7:{number}")
        user_contexts.keep_at(f"http://127.0.0.1:{number}")
        user_contexts.delete_at(f"http://192.0.2.7:{number}")
        user_contexts.delete_at(f"http://127.0.0.1:{number}")

    with ThreadPoolExecutor(8) as several:
        list(several.map(change, range(3000, 3040)))
    assert list(file.parent.iterdir()) == []


def test_an_empty_list_of_contexts_stays_behind_a_symbolic_link_of_the_user(home: Path) -> None:
    file = home / "config" / "threads-cluster" / "contexts.json"
    user_contexts.keep_at("http://127.0.0.1:3000")
    file.rename(home / "dotfile")
    file.symlink_to(home / "dotfile")
    user_contexts.delete_at("http://127.0.0.1:3000")
    assert file.is_symlink() and stored().by_name == {}


def test_root_writes_no_context_into_the_home_directory_of_another_user(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() == 0:
        os.chown(home, 12345, -1)
    monkeypatch.setattr(settings, "home", lambda: home)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    user_contexts.keep_at("http://127.0.0.1:3000")
    assert f"because {home} does not belong to root" in capsys.readouterr().err and not (home / "config").exists()


def test_a_file_that_others_can_change_is_refused_and_a_readable_one_is_used(home: Path) -> None:
    keep(PROD, select=True)
    file = home / "config/threads-cluster/contexts.json"
    file.chmod(0o644)
    assert chosen().url == PROD.url
    file.chmod(0o662)
    with pytest.raises(Misconfigured, match=rf"{file} cannot be used: other users can change it") as refused:
        chosen()
    assert refused.value.next.endswith(f"chmod 600 {file}")


def test_a_symbolic_link_in_place_of_the_file_is_kept(home: Path) -> None:
    file, target = home / "config/threads-cluster/contexts.json", home / "dotfiles/contexts.json"
    for folder in (file.parent, target.parent):
        folder.mkdir(parents=True)
    file.symlink_to(target)
    keep(PROD, select=True)
    assert file.is_symlink() and chosen().url == PROD.url and "cluster.example" in target.read_text()


def test_a_joined_machine_uses_the_cluster_that_it_joined_with_its_authority(home: Path) -> None:
    folder = home / "mine" / ".cluster"
    write(folder, "joined/host.json", json.dumps({"url": "https://192.0.2.7:3443", "pinned": True}))
    authority = str(folder / "joined/authority.pem")
    assert chosen() == Context("https://192.0.2.7:3443", "192.0.2.7:3443", "", authority)
    assert chosen("https://192.0.2.7:3443/").authority == authority and not chosen("https://192.0.2.8:3443").authority
    with pytest.raises(Misconfigured, match=rf"{authority} cannot be read"):
        api.Cluster()
    for broken in ("", "[]", '{"url": 1}', "{"):
        write(folder, "joined/host.json", broken)
        with pytest.raises(Misconfigured, match="no cluster is chosen"):
            chosen()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"selected": "a", "contexts": []}',
        '{"contexts": {"a": {}}}',
        "\udcff",
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_broken_file_matters_only_if_a_context_is_needed(home: Path, text: str) -> None:
    keep(PROD)
    file = home / "config/threads-cluster/contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(text, errors="surrogateescape")
    for name in (None, "a"):
        with pytest.raises(Misconfigured, match=rf"{file} cannot be used: the file was not written by") as broken:
            chosen(name=name)
        assert broken.value.next == f"remove it: rm {file}"
    assert chosen("http://one:1").url == "http://one:1"
    with running(home / "mine"):
        assert chosen().name == "mine"
    with pytest.raises(Misconfigured, match="cannot be used"):
        keep(PROD)
    assert file.read_text(errors="surrogateescape") == text, "a file of unknown content is not overwritten"


def test_without_a_writable_home_only_stored_contexts_are_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config").write_text("a file in place of the folder")
    with pytest.raises(Misconfigured, match=r"contexts\.json cannot be used: the file cannot be written"):
        keep(PROD)
    user_contexts.keep_local("http://127.0.0.1:3000")
    assert "note: the list of contexts was not changed: " in capsys.readouterr().err
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(settings, "home", lambda: None)
    with pytest.raises(Misconfigured, match="no home directory"):
        keep(PROD)
    with running(home / "mine"):
        assert chosen().name == "mine"


def test_contexts_and_tokens_of_simultaneous_writers_are_all_stored() -> None:
    def write_one(number: int) -> None:
        keep(Context(f"http://h{number}"))
        logins.keep(f"http://h{number}", "t", settings.Settings())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write_one, range(40)))
    assert set(stored().by_name) == {f"h{number}" for number in range(40)}
    assert all(logins.has_token(f"http://h{number}", settings.Settings()) for number in range(40))


def test_names_with_odd_characters_become_valid_and_are_refused_from_users(home: Path) -> None:
    for folder, name in {"a b\n\x1b[2J": "a-b-2J", "-..": "cluster", "kräfte": "kräfte", "x" * 99: "x" * 60}.items():
        assert keep(Context("http://h", folder=str(home / folder / ".cluster"))).name == name
    assert keep(Context("http://[::1]:3000")).name == "1-:3000"
    for wrong in ("", "a b", "\x1b[2J", "--url", "a/b", "x" * 65):
        with pytest.raises(Misconfigured, match="cannot be the name of a context"):
            contexts.check_name(wrong)
    assert contexts.check_name("prod-1.eu:3443") == "prod-1.eu:3443"


# -- commands ----------------------------------------------------------------------------------------------------------

WHO = {
    "tenant": "default",
    "token_id": "abc",
    "token_name": "x",
    "scopes": ["read"],
    "by_cookie": False,
    "token_needed": True,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake, original = Fake(), api.Cluster
    transport = httpx.MockTransport(fake)
    monkeypatch.setattr(api, "Cluster", lambda *given, **more: original(*given, transport=transport, **more))
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def log_in(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    code, _, err = run(capsys, "login", *arguments)
    assert code == 0, err
    return err


def test_login_selects_its_context_and_a_cluster_that_moved_keeps_the_name(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.on("GET", "/api/session", WHO)
    fake.on("GET", "/api/jobs/j1", problem(404, "There is no such job", "no job j1", field="job_id"))
    fake.on("GET", "/api/jobs", problem(422, "It is not valid", "state: must be one of done", field="state"))
    assert "The selected context is cluster.example." in log_in(capsys, monkeypatch, PROD.url)
    log_in(capsys, monkeypatch, PROD.url, "--name", "prod")
    assert set(stored().by_name) == {"prod"}
    log_in(capsys, monkeypatch, "https://cluster.example:8443", "--name", "prod")
    code, out, _ = run(capsys, "context", "list")
    assert (code, out.splitlines()[1].split()[:3]) == (0, ["*", "prod", "https://cluster.example:8443"])
    assert out.splitlines()[1].endswith("tokens.json")
    code, _, err = run(capsys, "job", "j1")
    assert code == 2 and err.endswith("cluster: context prod (https://cluster.example:8443)\n")
    assert fake.asked[-1].headers["Authorization"] == "Bearer secret"
    assert run(capsys, "jobs", "--state", "x")[2] == "error: --state: must be one of done\n"
    fake.on("GET", "/api/session", problem(401, "A token is needed"))
    fake.on("GET", "/api/status", problem(401, "A token is needed"))
    err = run(capsys, "status")[2]
    assert "next: run: cluster login https://cluster.example:8443\ncluster: context prod (" in err
    fake.on("GET", "/api/status", httpx.ConnectError("[Errno 111] Connection refused"))
    assert (
        "next: if the cluster has another address now: cluster login URL --name prod\ncluster: context prod"
        in run(capsys, "status")[2]
    )


def test_contexts_are_selected_and_deleted(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake.on("GET", "/api/session", WHO)
    for name in ("a", "b"):
        log_in(capsys, monkeypatch, f"http://{name}.test")
    assert stored().selected == "b.test"
    assert run(capsys, "context", "use", "a.test") == (0, "a.test selected\n", "")
    assert run(capsys, "context", "delete", "a.test") == (0, "a.test deleted\n", "")
    assert not stored().selected and not logins.has_token("http://a.test", settings.Settings())
    assert logins.has_token("http://b.test", settings.Settings())
    code, _, err = run(capsys, "status")
    assert code == 2 and "no cluster is chosen; select a context with cluster context use NAME (b.test)" in err
    for command in ("use", "delete"):
        assert "no context has the name a.test" in run(capsys, "context", command, "a.test")[2]
    stop(home / "mine")
    note = f"note: here, commands use the cluster of the checkout {home}/mine instead; to use b.test: cluster --context"
    assert note in run(capsys, "context", "use", "b.test")[2]
    row = json.loads(run(capsys, "context", "list", "--json")[1])
    assert (row["name"], row["selected"], row["url"]) == ("b.test", True, "http://b.test")


def test_a_login_to_the_cluster_of_the_checkout_prints_no_note_about_it(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake.on("GET", "/api/session", WHO)
    with running(home / "mine"):
        assert "note:" not in log_in(capsys, monkeypatch, "http://127.0.0.1:3000")
        assert "note:" in log_in(capsys, monkeypatch, "http://b.test")


def test_destructive_commands_name_a_cluster_that_is_not_the_checkouts(
    fake: Fake, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    keep(PROD, select=True)
    for path in ("/api/jobs/j1", "/api/tokens/j1"):
        fake.on("DELETE", path, httpx.Response(204))
    for command in (("delete", "j1"), ("token", "revoke", "j1")):
        assert run(capsys, *command)[2] == "acting on context cluster.example (https://cluster.example)\n"
    assert run(capsys, "--url", "http://other.test", "delete", "j1")[2] == "acting on http://other.test\n"
    with running(home / "mine"):
        assert run(capsys, "delete", "j1") == (0, "j1 deleted\n", "")
        assert "acting on context cluster.example" in run(capsys, "--context", "cluster.example", "delete", "j1")[2]


def test_up_refuses_another_cluster_than_the_checkouts(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    keep(PROD)
    with running(home / "mine"):
        code, _, err = run(capsys, "--context", "cluster.example", "up")
        assert code == 2 and "error: up joins hosts to the cluster of this checkout, not to context cluster.ex" in err
        assert "has no cluster.yaml" in run(capsys, "up")[2] and "mine" in stored().by_name


def test_python_errors_name_the_context(fake: Fake) -> None:
    keep(PROD, select=True)
    fake.on("GET", "/api/jobs/j1", problem(404, "There is no such job"))
    with api.Cluster(context="cluster.example") as cluster, pytest.raises(ClientError) as missing:
        cluster.job("j1")
    assert missing.value.__notes__ == ["context cluster.example (https://cluster.example)"]

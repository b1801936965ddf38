"""Tests hosts that join over HTTPS. An invitation is valid once, and only for the authority that it names."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.joining import authority, invitation, inviting, joining, membership
from deploy.local.joining.invitation import Invitation
from deploy.local.joining.membership import Membership
from deploy.local.outcome import CommandError
from tests import fetch
from tests.integration.live import Live, until
from tests.ports import free_port
from threads_cluster import Cluster
from threads_cluster import settings as client_settings
from threads_cluster.client import contexts

TOKEN = "t" * 40
ELSEWHERE = "redis://127.0.0.1:1/0"


@dataclasses.dataclass(frozen=True)
class Door:
    """A cluster and the address at which other machines reach it."""

    live: Live
    port: int
    fingerprint: str

    def invited(
        self, ttl_seconds: int = 600, scopes: tuple[str, ...] = ("join",), labels: tuple[str, ...] = ()
    ) -> Invitation:
        body = {"name": "invitation", "scopes": scopes, "ttl_seconds": ttl_seconds, "labels": labels}
        token = self.live.post("/api/tokens", body).json()["token"]
        return Invitation(host="127.0.0.1", port=self.port, fingerprint=self.fingerprint, token=token)

    def require(self, *labels: str) -> Any:
        """Require these labels for the tenant default."""
        url = f"{self.live.url()}/api/tenants/default"
        answer = fetch.put(url, json={"requires": labels}, headers=self.live.headers(), timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def rows(self) -> list[dict[str, Any]]:
        """Return the tokens of workers."""
        return [row for row in self.live.get("/api/tokens")["tokens"] if row["scopes"] == ["worker"]]

    def tokens(self) -> set[str]:
        return {row["name"] for row in self.rows()}

    def age(self, name: str, hours: int = 1) -> None:
        """Make the tokens of a worker older."""
        for row in self.rows():
            if row["name"] == name:
                self.live.redis().hincrby(f"ct:token:{row['id']}", "created", -3_600_000 * hours)


def files(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> str:
    """Create an authority in a folder and a certificate for this machine, and return the authority's fingerprint."""
    places = {
        "FOLDER": "",
        "CERTIFICATE": "server.pem",
        "KEY": "server.key",
        "_AUTHORITY": "authority.pem",
        "_AUTHORITY_KEY": "authority.key",
    }
    for name, file in places.items():
        monkeypatch.setattr(authority, name, folder / file)
    authority.certify(names or ("127.0.0.1",))
    return authority.fingerprint(authority.ensure())


def serve(live: Live, name: str, folder: Path, port: int) -> None:
    live.start_process(
        name,
        [sys.executable, "-m", "coordinator"],
        BIND="127.0.0.1",
        COORDINATOR_PORT=str(port),
        METRICS_PORT="0",
        TLS_CERTIFICATE=str(folder / "server.pem"),
        TLS_KEY=str(folder / "server.key"),
    )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder, port = tmp_path_factory.mktemp("joining"), free_port()
    live = Live(folder, workers=0, CLUSTER_TOKEN=TOKEN)
    with pytest.MonkeyPatch.context() as patches:
        fingerprint = files(folder / "tls", patches)
    try:
        live.start_redis()
        live.start_coordinator()
        serve(live, "door", folder / "tls", port)
        until(lambda: fetch.get(f"https://127.0.0.1:{port}/health", verify=False).status_code == 200, 120)
        yield Door(live, port, fingerprint)
    finally:
        live.stop()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which this machine stores its memberships."""
    place = tmp_path / "joined"
    for name, file in {"FOLDER": "", "_HOST": "host.json", "_AUTHORITY": "authority.pem", "_TOKENS": "tokens"}.items():
        monkeypatch.setattr(membership, name, place / file)
    return place


def join(invited: Invitation, name: str = "attic", *workers: str) -> Membership:
    return membership.join(invited, name, workers or ("cpu-1",), lanes=1, labels="")


def worker_of(door: Door, joined: Membership, name: str, **more: str) -> None:
    """Start the first worker of a host like its supervisor, except for the way in which it gets its token."""
    given = {
        "WORKER_API": joined.url,
        "WORKER_API_CA": joined.authority,
        "HOST_ID": joined.name,
        "REDIS_URL": ELSEWHERE,
        "WORKER_TOKEN": membership.token(joined.workers[0]),
        "WORKER_THREADS": "1",
        "METRICS_PORT": "0",
    }
    door.live.start_process(name, [sys.executable, "-m", "cpu_worker"], **(given | more))


def test_a_host_joins_works_and_leaves(door: Door, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = join(door.invited(), "attic", "cpu-1", "cpu-2")
    assert membership.load() == joined and joined.workers == ["attic-cpu-1", "attic-cpu-2"]
    assert {path.stat().st_mode & 0o777 for path in (here / "tokens").iterdir()} == {0o600}
    worker_of(door, joined, "worker-attic")
    door.live.wait_ready(1)
    assert door.live.result(door.live.submit("faulty", {"units": 100})) == {"sum": 4950, "count": 100}
    [host] = [row for row in door.live.get("/api/hosts")["hosts"] if row["host"] == "attic"]
    assert host["live"] and host["workers"] == ["attic-cpu-1"] and host["lanes"] == 1

    def told() -> Any:
        row = door.live.get("/api/hosts/attic")
        offset = row["clock_offset_seconds"]
        return row if offset is not None and abs(offset) <= 1 and row["disks"] else None  # The heartbeat was not late.

    row = until(told, 60)
    assert row["score"] >= 0 and row["versions"]["python"]
    assert [one["id"] for one in row["worker_rows"]] == ["attic-cpu-1"]
    monkeypatch.setattr(client_settings, "LOCAL_FOLDER", here.parent)
    with Cluster(token=TOKEN) as user:
        assert user.url == joined.url and user.host("attic")["host"] == "attic"
    assert contexts.load(client_settings.load()).of_cluster(joined.url)
    door.live.kill("worker-attic", signal.SIGTERM)
    assert door.tokens() >= {"attic-cpu-1", "attic-cpu-2"}
    assert membership.revoke_host_tokens(joined) == []
    assert not door.tokens() & {"attic-cpu-1", "attic-cpu-2"}
    assert membership.revoke_host_tokens(joined) == [], "a second time nothing is left either"
    membership.delete_membership()
    assert not contexts.load(client_settings.load()).of_cluster(joined.url)


def test_a_tenant_that_requires_a_label_is_served_by_the_host_that_was_given_it(door: Door, here: Path) -> None:
    """Only a host with an assigned label serves the tenant. Jobs without a permitted host wait and say why."""
    plain = join(door.invited(), "plain")
    worker_of(door, plain, "worker-plain", WORKER_LABELS="trusted", RUNNER_LABELS="trusted")
    door.live.wait_ready(1)
    assert door.require("trusted")["requires"] == ["trusted"]
    try:
        job = door.live.submit("faulty", {"units": 100})
        until(lambda: "invite --labels trusted" in (door.live.job(job)["waiting_because"] or ""), 60)
        good = join(door.invited(labels=("trusted",)), "good")
        worker_of(door, good, "worker-good")
        assert door.live.result(job, 120) == {"sum": 4950, "count": 100}
        assert set(door.live.job(job)["usage"]["workers"]) == {"good-cpu-1"}
    finally:
        door.require()
    for name in ("worker-plain", "worker-good"):
        door.live.kill(name, signal.SIGTERM)


def refused(invited: Invitation, *words: str) -> None:
    refused_as(invited, "refused", *words)


def refused_as(invited: Invitation, name: str, *words: str) -> None:
    with pytest.raises(CommandError) as trouble:
        join(invited, name)
    assert all(word in str(trouble.value) for word in words), trouble.value
    assert membership.load() is None


@pytest.mark.usefixtures("here")
def test_an_invitation_is_closed_before_its_time(
    door: Door, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER_TOKEN", TOKEN)
    by_id, by_text, other = door.invited(), door.invited(), door.invited()
    ids = [one.token.split("_")[1] for one in (by_id, by_text, other)]
    assert inviting.close(ids[0], door.live.url()) == 0 == inviting.close(f" {by_text}\n", door.live.url())
    assert f"The invitation {ids[0]} is no longer valid." in capsys.readouterr().err
    refused(by_id, "was used or has expired")
    refused(by_text, "was used or has expired")
    join(other, "open")
    for closed in ids:
        with pytest.raises(
            CommandError, match=f"there is no invitation {closed}: it was used, has expired or was closed"
        ):
            inviting.close(closed, door.live.url())
    [worker] = [row["id"] for row in door.live.get("/api/tokens")["tokens"] if row["name"].startswith("open-")]
    with pytest.raises(
        CommandError, match=(f"is not an invitation but another token. To revoke it: cluster token revoke {worker}")
    ):
        inviting.close(worker, door.live.url())
    for bad in ("", "x", "a" * 11, "../tokens", "abcdefghi!", "tc_abcdefghij"):
        with pytest.raises(CommandError, match="--close needs an invitation or its ID"):
            inviting.close(bad, door.live.url())


def test_an_invitation_counts_once(door: Door) -> None:
    invited = door.invited()
    join(invited, "once")
    membership.delete_membership()
    refused(invited, "was used or has expired")


@pytest.mark.usefixtures("here")
def test_an_invitation_expires(door: Door) -> None:
    invited = door.invited(ttl_seconds=1)
    time.sleep(1.2)
    refused(invited, "was used or has expired")


@pytest.mark.usefixtures("here")
def test_a_wrong_token_joins_nothing(door: Door) -> None:
    wrong = dataclasses.replace(door.invited(), token=f"tc_{'a' * 10}_{'b' * 43}")
    refused(wrong, "was used or has expired")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("scopes", [("worker",), ("read", "submit"), ("admin",), ("join", "read")])
def test_only_an_invitation_is_one(door: Door, scopes: tuple[str, ...]) -> None:
    given = door.invited(scopes=scopes)
    refused(given, "this request needs")
    headers = {"Authorization": f"Bearer {given.token}"}
    assert fetch.get(f"{door.live.url()}/api/session", headers=headers).status_code == 200, "it is not used up"


def test_an_invitation_opens_nothing_else(door: Door) -> None:
    headers = {"Authorization": f"Bearer {door.invited().token}"}
    for method, path in (
        ("GET", "/api/status"),
        ("POST", "/api/submit"),
        ("POST", "/api/worker/register"),
        ("GET", "/api/tokens"),
        ("POST", "/api/tokens"),
    ):
        assert fetch.request(method, door.live.url() + path, headers=headers, json={}).status_code == 403, path


@pytest.mark.usefixtures("here")
def test_another_authority_gets_nothing(door: Door) -> None:
    other = dataclasses.replace(door.invited(), fingerprint="0" * 64)
    refused(other, "does not match the invitation", "Nothing was sent")


def test_a_host_trusts_its_authority_alone(
    door: Door, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = join(door.invited(), "trusting")
    files(tmp_path / "other", monkeypatch)
    port = free_port()
    serve(door.live, "impostor", tmp_path / "other", port)
    until(lambda: fetch.get(f"https://127.0.0.1:{port}/health", verify=False).status_code == 200, 120)
    moved = dataclasses.replace(joined, url=f"https://127.0.0.1:{port}")
    [left] = membership.revoke_host_tokens(moved)
    assert "authority did not sign the certificate" in left
    worker_of(door, moved, "worker-trusting")
    until(lambda: "its certificate is not trusted" in door.live.log("worker-trusting"), 120)
    door.live.kill("worker-trusting")
    door.live.kill("impostor")
    assert membership.revoke_host_tokens(joined) == []


def test_of_what_an_impostor_adds_to_the_authority_nothing_is_trusted(
    door: Door, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invited, folder, port = door.invited(), tmp_path / "other", free_port()
    files(folder, monkeypatch)
    known = fetch.get(f"{invited.url}/api/authority", verify=False).content
    both = known + (folder / "authority.pem").read_bytes()
    with monkeypatch.context() as between:
        between.setattr(membership, "fetch_authority", lambda *_: both)
        pinned = membership.fetch_pinned_authority(invited)
    assert pinned.count(b"BEGIN CERTIFICATE") == 1
    (tmp_path / "pinned.pem").write_bytes(pinned)
    serve(door.live, "between", folder, port)
    until(lambda: fetch.get(f"https://127.0.0.1:{port}/health", verify=False).status_code == 200, 120)
    with pytest.raises(membership.CannotReach):
        membership.send_request("GET", f"https://127.0.0.1:{port}/health", invited.token, str(tmp_path / "pinned.pem"))
    door.live.kill("between")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "workers",
    [
        [{"worker": "attic-runner-1", "token": f"tc_{'a' * 10}_{'b' * 43}"}],
        [{"worker": "attic-cpu-1\ncommand=id", "token": f"tc_{'a' * 10}_{'b' * 43}"}],
        [{"worker": "attic-cpu-1", "token": "x"}],
        [{"worker": "attic-cpu-1"}],
        ["attic-cpu-1"],
        None,
        [],
    ],
)
def test_the_cluster_does_not_say_what_runs_here(door: Door, monkeypatch: pytest.MonkeyPatch, workers: Any) -> None:
    answer = (201, {"version": "0", "workers": workers})
    monkeypatch.setattr(membership, "send_request", lambda *_given: answer)
    refused(door.invited(), "did not return exactly the requested workers")


def test_strict_clients_take_the_certificate(door: Door, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = join(door.invited(), "strict")
    made = ssl.create_default_context

    def strict(*given: Any, **more: Any) -> ssl.SSLContext:
        context = made(*given, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13 and later have this flag by default.
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    assert membership.revoke_host_tokens(joined) == []


@pytest.mark.usefixtures("here")
def test_of_two_that_use_one_invitation_one_joins(door: Door, tmp_path: Path) -> None:
    invited = door.invited()
    answers: list[Any] = []
    together = threading.Barrier(4)

    def use(number: int) -> None:
        together.wait()
        body = {"host": f"racer-{number}", "workers": ["cpu-1"]}
        status, _ = membership.send_request("POST", f"{invited.url}/api/join", invited.token, str(tls), body)
        answers.append(status)

    tls = tmp_path / "authority.pem"
    tls.write_text(fetch.get(f"{invited.url}/api/authority", verify=False).text)
    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 401, 401, 401]
    assert len({name for name in door.tokens() if name.startswith("racer")}) == 1


@pytest.mark.usefixtures("here")
def test_a_name_that_has_joined_is_not_taken_over(door: Door) -> None:
    url = f"{join(door.invited(), 'cellar').url}/api/tokens"
    own, invited = membership.token("cellar-cpu-1"), door.invited()
    with pytest.raises(CommandError, match="cellar-cpu-1 has already joined"):  # another machine with the same name
        membership.join(invited, "cellar", ["cpu-1", "cpu-2"], lanes=1, labels="")
    trust = str(membership.FOLDER / "authority.pem")
    assert membership.send_request("DELETE", f"{url}/{own.split('_')[1]}", own, trust) == (204, {})
    assert join(invited, "cellar").workers == ["cellar-cpu-1"], "what was refused has not used the invitation up"


def _lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the response to an invitation, as if the coordinator or the network died."""
    ask = membership.send_request

    def without_answer(*words: Any) -> Any:
        ask(*words)
        raise membership.CannotReach("connection reset by peer")

    monkeypatch.setattr(membership, "send_request", without_answer)


def test_a_join_that_broke_off_keeps_its_name_from_nobody(
    door: Door, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unused tokens of a failed join do not block the name. Used tokens always belong to their host."""
    with monkeypatch.context() as cut:
        _lost(cut)
        refused_as(door.invited(), "broken", "used up meanwhile")
    assert "broken-cpu-1" in door.tokens() and membership.load() is None
    door.age("broken-cpu-1", -1)  # independent of this machine's speed
    refused_as(door.invited(), "broken", "has already joined", "in a minute")
    door.age("broken-cpu-1", 2)
    joined = join(door.invited(), "broken")
    assert [row["name"] for row in door.rows() if row["name"] == "broken-cpu-1"] == ["broken-cpu-1"]
    until(lambda: all(row["used"] for row in door.rows() if row["name"] == "broken-cpu-1"), 60)
    door.age("broken-cpu-1")
    refused_as(door.invited(), "broken", "has already joined")
    assert joined.workers == ["broken-cpu-1"]


def test_a_token_that_was_made_by_itself_gives_its_name_to_nobody(door: Door, here: Path) -> None:
    made = door.live.post("/api/tokens", {"name": "office-cpu-1", "scopes": ["worker"]})
    assert made.status_code == 201
    door.age("office-cpu-1")
    refused_as(door.invited(), "office", "has already joined")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"host": "../x", "workers": ["cpu-1"]}, "host"),
        ({"host": "a" * 49, "workers": ["cpu-1"]}, "host"),
        ({"host": "a", "workers": []}, "workers"),
        ({"host": "a", "workers": ["tpu-1"]}, "workers"),
        ({"host": "a", "workers": ["cpu-1"] * 65}, "workers"),
        ({"host": "a"}, "workers"),
    ],
)
def test_a_bad_host_is_refused_by_field(door: Door, body: dict[str, Any], field: str) -> None:
    invited = door.invited()
    headers = {"Authorization": f"Bearer {invited.token}"}
    answer = fetch.post(f"{door.live.url()}/api/join", headers=headers, json=body)
    assert answer.status_code == 422 and field in answer.json()["field"], answer.text
    assert fetch.get(f"{door.live.url()}/api/session", headers=headers).status_code == 200, "it is not used up"


def test_a_token_ends_itself_and_no_other(door: Door) -> None:
    own, other = (door.invited(scopes=("worker",)).token for _ in range(2))
    headers = {"Authorization": f"Bearer {own}"}

    def end(token: str) -> int:
        return fetch.delete(f"{door.live.url()}/api/tokens/{token.split('_')[1]}", headers=headers).status_code

    assert [end(other), end(own), end(own)] == [403, 204, 401]


def test_a_renewed_certificate_is_served_without_a_restart(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, folder = free_port(), tmp_path / "tls"
    files(folder, monkeypatch, "127.0.0.1")
    serve(door.live, "renewing", folder, port)
    trust = str(folder / "server.pem")
    url = f"https://127.0.0.1:{port}/health"
    until(lambda: fetch.get(url, verify=False).status_code == 200, 120)
    before = authority.CERTIFICATE.read_bytes()
    authority.certify(["127.0.0.1"])
    assert authority.CERTIFICATE.read_bytes() == before, "it names that already, and expires in months"
    authority.certify(["localhost"])

    def by_name() -> bool:
        status, _ = membership.send_request("GET", url.replace("127.0.0.1", "localhost"), "", trust)
        return status == 200

    until(lambda: _quietly(by_name))
    assert membership.send_request("GET", url, "", trust)[0] == 200, "the address is still named"
    door.live.kill("renewing")


def _quietly(asked: Any) -> bool:
    try:
        return bool(asked())
    except membership.CannotReach:
        return False


def test_a_pair_that_does_not_fit_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path / "tls", monkeypatch, "127.0.0.1", "fd00::7")
    before = authority.CERTIFICATE.read_bytes()
    authority.certify(["fd00::7"])
    assert authority.CERTIFICATE.read_bytes() == before
    for broken in (authority.KEY, authority.CERTIFICATE):
        broken.write_bytes(b"")  # a power failure
        authority.certify(["127.0.0.1"])
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(authority.CERTIFICATE, authority.KEY)


def _full(path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let writes to the membership's folder fail after some tokens, as on a full disk."""
    keep, kept = membership.store_token, iter(range(after))

    def written(worker: str, text: str) -> None:
        if next(kept, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        keep(worker, text)

    monkeypatch.setattr(membership, "store_token", written)


@pytest.mark.parametrize(("after", "words"), [(1, "the invitation is still valid"), (3, "The invitation is used up")])
def test_a_full_disk_leaves_nothing_behind_here_or_there(
    door: Door, here: Path, monkeypatch: pytest.MonkeyPatch, after: int, words: str
) -> None:
    """The disk is full before the exchange, or after it, when the second of two tokens cannot be stored."""
    invited, before = door.invited(), door.tokens()
    with monkeypatch.context() as full:
        _full(here, full, after)
        with pytest.raises(CommandError, match="No space left on device") as trouble:
            join(invited, f"full{after}", "cpu-1", "cpu-2")
    assert words in str(trouble.value) and "still valid there" not in str(trouble.value)
    assert not here.exists() and door.tokens() == before
    if after == 1:
        assert join(invited, "full1").workers == ["full1-cpu-1"]


@pytest.mark.usefixtures("here")
def test_an_invitation_comes_on_stdin(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{door.invited()}\n"))
    assert joining.join_cluster(joining.JoinOptions(invitation="-", name="typed")).name == "typed"
    membership.delete_membership()
    for text in ("", "x" * 10_000):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.raises(CommandError, match="this is not an invitation"):
            joining.join_cluster(joining.JoinOptions(invitation="-", name="typed"))


def test_addresses_are_written_in_one_way() -> None:
    assert [inviting.validate_address(given) for given in ("FD00::7", "[fd00::7]", "box.lan", "192.0.2.7")] == [
        "fd00::7",
        "fd00::7",
        "box.lan",
        "192.0.2.7",
    ]
    for given in ("192.0.2.7:3443", "https://box", "b\u00fcro.lan", "-x", "a b", ""):
        with pytest.raises(CommandError, match="--address"):
            inviting.validate_address(given)


def test_invitations_are_read_as_they_are_printed() -> None:
    token = f"tc_{'a' * 10}_{'b' * 43}"
    for host, url in (("box.lan", "https://box.lan:3443"), ("fd00::7", "https://[fd00::7]:3443")):
        given = Invitation(host=host, port=3443, fingerprint="0" * 64, token=token)
        assert invitation.parse(f" {given}\n") == given and given.url == url
    for text in (
        "",
        "box",
        f"box:0/{'0' * 64}/{token}",
        f"box:70000/{'0' * 64}/{token}",
        f"box:1/{'0' * 63}/{token}",
        f"box:1/-/{token}x",
        f"a b:1/-/{token}",
        f"user@box:1/-/{token}",
    ):
        with pytest.raises(invitation.NoInvitation):
            invitation.parse(text)

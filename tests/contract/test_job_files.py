"""Tests a job's files, stored output and secrets over the worker API, for a fake runner with a lease."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs import errors
from jobs.models import ANONYMOUS
from jobs.store import Store, keys
from jobs.store.files import PART_BYTES, StoredFile
from jobs.store.server.connection import CoordinatorAway, CoordinatorRejects
from jobs.store.tenancy.tenants import Tenant
from jobs.store.work.leases import Grant
from jobs.worker.api.api_files import Stale, ranges
from tests import fetch
from tests.contract.api_transport import Served, serve
from tests.contract.fake_runner import Runner, running, submit, written
from tests.unit.artifact_bench import manifest_of, sha_of
from threads_protocol import bundles, manifest
from threads_protocol.errors import MalformedText
from threads_protocol.manifest import Entry

SECRET = "0123456789abcdef0123456789abcdef"
TREE: dict[str, bytes] = {"logs/3": b"hello\n", "outputs/3/sub/a.csv": b"1,2\n", "outputs/3/b.csv": b"1,2\n"}


@pytest.fixture
def served(any_redis_url: str, store: Store, tmp_path: Path) -> Iterator[Served]:
    folder = f"file://{tmp_path}/store"
    with serve(any_redis_url, store, artifact_url=folder, secrets_key=SECRET, cluster_token="t" * 32) as made:
        yield made


def commit(served: Served, *rows: list[Any], tenant: str = "default") -> str:
    trees = served.app.state.coordinator.cluster.artifacts
    return str(trees.commit(tenant, manifest_of(*rows), "", ANONYMOUS)[1].id)


def put(served: Served, data: bytes, tenant: str = "default") -> list[Any]:
    """Store a file of a tenant, and return its size and hash."""
    transfers = served.app.state.coordinator.cluster.artifacts.transfers
    for number, start in enumerate(range(0, max(1, len(data)), PART_BYTES)):
        transfers.put_part(tenant, sha_of(data), len(data), number, data[start : start + PART_BYTES])
    if len(data) > PART_BYTES:
        transfers.complete(tenant, sha_of(data))
    return [len(data), sha_of(data)]


def holders(store: Store, artifact: str) -> set[bytes]:
    found: set[bytes] = store.client.smembers(keys.holders("default", artifact))
    return found


# -- what the job was given -------------------------------------------------------------------------------------------


def test_a_jobs_files_come_whole_and_once(served: Served, store: Store) -> None:
    big = os.urandom(PART_BYTES + 12345)
    small = put(served, b"1,2\n")
    given = commit(served, ["f", "a.csv", *small], ["f", "big.bin", *put(served, big)], ["f", "c.csv", *small])
    files = running(served, store, files=given).files("j")
    entries = manifest.entries(files.manifest())
    got: dict[str, bytes] = {}
    seen: list[str] = []

    def write(sha: str, pieces: Iterator[bytes]) -> None:
        seen.append(sha)
        got[sha] = b"".join(pieces)

    files.fetch(entries, write)
    assert got == {sha_of(b"1,2\n"): b"1,2\n", sha_of(big): big} and len(seen) == 2
    with pytest.raises(CoordinatorRejects, match="has no input items"):
        files.manifest("items")


def test_many_small_files_come_in_bundles(served: Served, store: Store) -> None:
    data = [b"%d" % number * 3000 for number in range(1200)]
    transfers = served.app.state.coordinator.cluster.artifacts.transfers
    for at in range(0, len(data), 300):
        transfers.put_bundle("default", bundles.pack([(sha_of(each), each) for each in data[at : at + 300]]))
    rows = [["f", f"{number:05}", len(each), sha_of(each)] for number, each in enumerate(data)]
    files = running(served, store, items_artifact=commit(served, *rows)).files("j")
    got: dict[str, bytes] = {}
    files.fetch(manifest.entries(files.manifest("items")), lambda sha, pieces: got.update({sha: b"".join(pieces)}))
    assert sorted(got.values()) == sorted(set(data))


def test_no_other_file_of_the_tenant_is_given(served: Served, store: Store) -> None:
    other = put(served, b"not for this job")
    runner = running(served, store, files=commit(served, ["f", "a", *put(served, b"for it")]))
    wanted = [Entry(kind="f", path="x", size=other[0], sha=other[1])]
    for entries in (wanted, [Entry(kind="f", path="x", size=2 << 20, sha=other[1])]):
        with pytest.raises(CoordinatorRejects, match=r"\(403\): 1 files are not input files"):
            runner.files("j").fetch(entries, lambda _sha, pieces: deque(pieces, 0).clear())
    assert runner.api.register().worker == "r", "it is let in as before"


def test_bytes_that_are_not_those_of_their_hash_are_noticed(served: Served, store: Store, tmp_path: Path) -> None:
    given = commit(served, ["f", "a", *put(served, b"x" * (2 << 20))])
    files = running(served, store, files=given).files("j")
    entries = manifest.entries(files.manifest())
    for path in (tmp_path / "store" / "default").rglob("*"):
        if path.is_file() and path.stat().st_size == 2 << 20:
            path.write_bytes(b"y" * (2 << 20))
    with pytest.raises(CoordinatorAway, match="does not match the hash"):
        files.fetch(entries, lambda _sha, pieces: deque(pieces, 0).clear())


# -- whose lease ------------------------------------------------------------------------------------------------------

CALLS: list[tuple[str, str, Any]] = [
    ("GET", "manifest", None),
    ("GET", f"files/{'0' * 64}", None),
    ("POST", "file-bundle", {"hashes": ["0" * 64]}),
    ("POST", "missing-files", {"hashes": ["0" * 64]}),
    ("PUT", "file-bundle", b"[]\n"),
    ("PUT", f"files/{'0' * 64}/parts/0?size=1", b"x"),
    ("POST", f"files/{'0' * 64}/complete", None),
    ("POST", "artifacts?units=0", manifest_of()),
    ("POST", "secrets", {"lease": "t"}),
]


def asked(served: Served, token: str, method: str, path: str, body: Any, job: str = "j") -> httpx.Response:
    octets = isinstance(body, bytes)
    place = f"{served.place}/api/worker/jobs/{job}/{path}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/octet-stream" if octets else "application/json"
    content = body if octets else json.dumps(body).encode() if body is not None else None
    lease = {"lease": "t"} if path != "secrets" else {}
    with fetch.client() as client:
        url = httpx.URL(place)
        return client.request(method, url.copy_merge_params(lease), content=content, headers=headers)


def test_a_job_that_runs_no_programs_has_no_files(served: Served, store: Store) -> None:
    submit(store, kind="sum", queue="any.normal")
    worker = served.worker("c")
    worker.slots.next("", [])
    assert isinstance(worker.leases.lease("j", "t", want=100, worker=""), Grant)
    for one in CALLS:
        answer = asked(served, worker.api.bearer, *one)
        assert (answer.status_code, answer.json()["field"]) == (409, "job"), one


def test_only_the_holder_of_a_living_lease_is_answered(served: Served, store: Store) -> None:
    runner = running(served, store)
    for one in CALLS:
        for token, job, status in (
            (served.token("other"), "j", 409),
            (served.token("u", "read", "submit", "run"), "j", 403),
            ("", "j", 401),
            (runner.api.api.bearer, "k", 409),
        ):
            answer = asked(served, token, *one, job=job)
            assert answer.status_code == status, (one, answer.text)
            assert status != 409 or answer.json()["field"] == "lease"
    assert runner.api.leases.release("j", "t")
    for one in CALLS:
        assert asked(served, runner.api.api.bearer, *one).json()["field"] == "lease"
    with pytest.raises(Stale, match="stale"):
        runner.files("j").secrets()


# -- what it leaves ---------------------------------------------------------------------------------------------------


def test_what_units_left_is_an_artifact_that_the_job_holds(served: Served, store: Store, tmp_path: Path) -> None:
    runner = running(served, store)
    root = written(tmp_path / "left", {**TREE, "values/4.json": b"[]", "outputs/4/big": b"x" * (PART_BYTES + 7)})
    (root / "logs" / "3").chmod(0o755)
    kept = runner.files("j").keep(root, [4, 3])
    assert {store.outputs.artifact("j", unit) for unit in (3, 4)} == {kept}
    assert store.outputs.artifact("j", 5) is None and holders(store, kept) == {b"job:j"}
    assert store.client.hgetall(keys.job_kept("j")) == {kept.encode(): b"2"}
    trees = served.app.state.coordinator.cluster.artifacts
    entries = {entry.path: entry for entry in manifest.entries(trees.manifest("default", trees.find("default", kept)))}
    assert sorted(entries) == ["logs/3", "outputs/3/b.csv", "outputs/3/sub/a.csv", "outputs/4/big", "values/4.json"]
    assert entries["logs/3"].kind == "x" and entries["outputs/4/big"].size == PART_BYTES + 7
    assert runner.files("j").keep(root, [3, 4]) == kept, "a call whose answer was lost"
    assert store.client.hgetall(keys.job_kept("j")) == {kept.encode(): b"2"}
    assert not store.artifacts.ids("default"), "lists of artifacts show what people put"
    with pytest.raises(errors.Conflict, match=r"artifact [0-9a-f]+ is held by job:j"):
        trees.delete("default", kept, ANONYMOUS)
    with pytest.raises(errors.NotFound):
        trees.find("default", kept[:12])


def test_a_later_attempt_takes_the_place_of_an_earlier_one(served: Served, store: Store, tmp_path: Path) -> None:
    files = running(served, store).files("j")
    first = files.keep(written(tmp_path / "a", {"logs/1": b"1", "logs/2": b"2"}), [1, 2])
    second = files.keep(written(tmp_path / "b", {"logs/1": b"1 again"}), [1])
    assert holders(store, first) == {b"job:j"}
    third = files.keep(written(tmp_path / "c", {"logs/2": b"2 again"}), [2])
    assert holders(store, first) == set() and store.artifacts.unheld(10) == [("default", first)]
    assert {store.outputs.artifact("j", unit) for unit in (1, 2)} == {second, third}
    assert files.keep(tmp_path / "a", [1, 2]) == first, "it is what came out once more"
    assert not [each for each in store.artifacts.unheld(10) if each[1] == first]
    assert store.client.hgetall(keys.job_kept("j")) == {first.encode(): b"2"}


def test_what_a_job_kept_goes_with_it(served: Served, store: Store, tmp_path: Path) -> None:
    runner = running(served, store)
    first = runner.files("j").keep(written(tmp_path / "a", {"logs/1": b"1", "logs/2": b"2"}), [1, 2])
    second = runner.files("j").keep(written(tmp_path / "b", {"logs/1": b"1 again"}), [1])
    trees = served.app.state.coordinator.cluster.artifacts
    trees.commit("default", trees.manifest("default", trees.find("default", second)), "mine", ANONYMOUS)
    store.jobs.cancel("j")
    runner.api.leases.release("j", "t")
    assert store.jobs.delete("j") == ["ok", "cancelled"]
    assert not [*store.client.scan_iter("ct:job:j*")]
    assert store.artifacts.unheld(10) == [("default", first)], "the other has a name"
    assert trees.collect("default", first) and trees.find("default", "mine").holders == ()


def test_units_of_others_are_refused_and_nothing_is_left(served: Served, store: Store, tmp_path: Path) -> None:
    submit(store, total=1000)
    runner = Runner(served)
    grant = runner.takes("j", want=10)
    root = written(tmp_path / "left", TREE)
    for units in ([grant.hi], [grant.lo, 999]):
        with pytest.raises(CoordinatorRejects, match=rf"within the lease, which has units 0 to {grant.hi - 1}"):
            runner.files("j").keep(root, units)
    assert not store.client.exists(keys.job_files("j")) and not list(store.client.scan_iter("ct:artifact:*"))
    for text in ("", "1-", "5-3", "a", "1,,2", "0-100001", f"0-{2**60}"):
        answer = asked(served, runner.api.api.bearer, "POST", f"artifacts?units={text}", manifest_of())
        assert (answer.status_code, answer.json()["field"]) == (422, "units"), text


def test_a_manifest_that_leads_out_is_refused(served: Served, store: Store) -> None:
    runner = running(served, store)
    token, row = runner.api.api.bearer, put(served, b"x")
    for bad in (["f", "../x", *row], ["f", "/etc/passwd", *row], ["l", "a", "/etc/passwd"], ["l", "a", "../x"]):
        answer = asked(served, token, "POST", "artifacts?units=0", manifest_of(bad))
        assert answer.status_code == 422, answer.text
        with pytest.raises(MalformedText):
            manifest.entries(manifest_of(bad))
    answer = asked(served, token, "POST", "artifacts?units=0", manifest_of(["f", "a", 1, "0" * 64]))
    assert (answer.status_code, answer.json()["field"]) == (409, "body"), "a file that nobody uploaded"


def test_links_that_lead_out_and_sockets_are_left_out(served: Served, store: Store, tmp_path: Path) -> None:
    root = written(tmp_path / "left", TREE)
    for name, target in {"out": "/etc/passwd", "up": "../../secret", "none": "gone", "in": "outputs/3/b.csv"}.items():
        (root / name).symlink_to(target)
    (root / "loop").symlink_to("out")
    (root / "folder").symlink_to("outputs")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")
    os.close(os.open(os.fsencode(root) + b"/a\xff", os.O_CREAT))
    kept = running(served, store).files("j").keep(root, [3])
    trees = served.app.state.coordinator.cluster.artifacts
    entries = {entry.path: entry for entry in manifest.entries(trees.manifest("default", trees.find("default", kept)))}
    assert sorted(entries) == sorted([*TREE, "in", "folder", "empty"])
    assert entries["in"].target == "outputs/3/b.csv"


def test_a_lease_that_ends_during_an_upload_keeps_nothing(served: Served, store: Store, tmp_path: Path) -> None:
    runner = running(served, store)
    root = written(tmp_path / "left", TREE)
    files, once = runner.files("j"), runner.api.api.octets

    def octets(method: str, path: str, *rest: Any, **how: Any) -> bytes:
        if "/artifacts" in path:
            runner.api.leases.release("j", "t")
        return once(method, path, *rest, **how)

    runner.api.api.octets = octets  # type: ignore[method-assign]
    with pytest.raises(Stale):
        files.keep(root, [3])
    assert not store.client.exists(keys.job_files("j"), keys.job_kept("j"))


def test_two_slots_that_keep_the_same_large_file_at_once_both_succeed(
    served: Served, store: Store, tmp_path: Path
) -> None:
    runner, transfers = running(served, store), served.app.state.coordinator.cluster.artifacts.transfers
    root = written(tmp_path / "left", {"outputs/big": os.urandom(PART_BYTES + 7)})
    digest, barrier = transfers.compute_digest, threading.Barrier(2)

    def wait_for_other(tenant: str, file: StoredFile) -> str:
        found: str = digest(tenant, file)
        barrier.wait(30)
        return found

    transfers.compute_digest = wait_for_other
    with ThreadPoolExecutor(2) as slots:
        kept = list(slots.map(lambda unit: runner.files("j").keep(root, [unit]), (3, 4)))
    assert kept[0] == kept[1] == store.outputs.artifact("j", 3) == store.outputs.artifact("j", 4)


def test_a_large_file_whose_parts_were_swept_is_sent_again(served: Served, store: Store, tmp_path: Path) -> None:
    runner, transfers = running(served, store), served.app.state.coordinator.cluster.artifacts.transfers
    root = written(tmp_path / "left", {"outputs/big": os.urandom(PART_BYTES + 7)})
    digest, swept = transfers.compute_digest, list[str]()

    def sweep_after(tenant: str, file: StoredFile) -> str:
        if not swept:
            swept.extend(store.client.scan_iter("ct:parts:*"))
            store.client.delete(*swept)
        return str(digest(tenant, file))

    transfers.compute_digest = sweep_after
    kept = runner.files("j").keep(root, [3])
    assert len(swept) == 1 and store.outputs.artifact("j", 3) == kept


def test_a_large_file_of_which_another_upload_sent_wrong_bytes_is_sent_again(
    served: Served, store: Store, tmp_path: Path
) -> None:
    runner, transfers = running(served, store), served.app.state.coordinator.cluster.artifacts.transfers
    data = os.urandom(PART_BYTES + 7)
    root = written(tmp_path / "left", {"outputs/big": data})
    transfers.put_part("default", hashlib.sha256(data).hexdigest(), len(data), 0, bytes(PART_BYTES))
    kept = runner.files("j").keep(root, [3])
    assert store.outputs.artifact("j", 3) == kept


def test_a_job_that_is_being_cancelled_keeps_its_logs(served: Served, store: Store, tmp_path: Path) -> None:
    runner = running(served, store)
    store.jobs.cancel("j")
    kept = runner.files("j").keep(written(tmp_path / "left", TREE), [3])
    assert store.outputs.artifact("j", 3) == kept


def test_a_tenant_that_may_store_no_more_is_asked_again_and_said_why(
    served: Served, store: Store, tmp_path: Path
) -> None:
    store.tenants.put(Tenant(name="default", max_stored_bytes=1000))
    runner = running(served, store)
    root = written(tmp_path / "left", {"logs/3": os.urandom(5000)})
    with pytest.raises(CoordinatorAway, match="max_stored_bytes is 1000"):
        runner.files("j").keep(root, [3])


def test_a_coordinator_that_is_away_is_asked_again(served: Served, store: Store, tmp_path: Path) -> None:
    runner = running(served, store)
    once, left = runner.api.api.exchange, [3]

    def exchange(asked: Any) -> tuple[int, bytes]:
        left[0] -= 1
        if left[0] > 0:
            raise ConnectionRefusedError
        return once(asked)

    runner.api.api.exchange = exchange  # type: ignore[method-assign]
    assert runner.files("j", patience_seconds=60.0).keep(written(tmp_path / "left", TREE), [3])
    left[0] = 10**9
    with pytest.raises(CoordinatorAway, match="connection refused"):
        runner.files("j", patience_seconds=60.0, stopped=lambda: True).secrets()


def test_a_cluster_without_a_store_says_so_at_once(any_redis_url: str, store: Store, tmp_path: Path) -> None:
    with serve(any_redis_url, store, cluster_token="t" * 32) as bare:
        runner = running(bare, store, secrets=["KEY"])
        with pytest.raises(CoordinatorRejects, match="set ARTIFACT_URL"):
            runner.files("j", patience_seconds=60.0).keep(written(tmp_path / "left", TREE), [3])
        with pytest.raises(CoordinatorRejects, match="has no secret KEY"):
            runner.files("j", patience_seconds=60.0).secrets()


def test_units_are_named_by_ranges() -> None:
    assert ranges([3]) == "3" and ranges([5, 3, 4, 9, 7, 8, 3]) == "3-5,7-9" and ranges(range(10)) == "0-9"


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_a_program_gets_the_secrets_that_its_job_names_and_no_other(served: Served, store: Store) -> None:
    vault = served.app.state.coordinator.cluster.secrets
    for name in ("KEY", "OTHER"):
        vault.put("default", name, f"value of {name}", ANONYMOUS)
    runner = running(served, store, secrets=["KEY"])
    assert runner.files("j").secrets() == {"KEY": "value of KEY"}
    answer = asked(served, runner.api.api.bearer, "POST", "secrets", {"lease": "t", "names": ["OTHER"]})
    assert answer.status_code == 422
    assert (
        asked(served, runner.api.api.bearer, "POST", "secrets", {"lease": "t"}).headers["Cache-Control"] == "no-store"
    )
    vault.remove("default", "KEY", ANONYMOUS)
    with pytest.raises(CoordinatorRejects, match=r"\(404\): tenant default has no secret KEY"):
        runner.files("j").secrets()


def test_a_job_without_secrets_gets_none(served: Served, store: Store) -> None:
    assert running(served, store).files("j").secrets() == {}

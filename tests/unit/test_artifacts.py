"""Tests artifacts over HTTP on a real Redis: uploads come back unchanged, despite deaths and deletions."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.artifacts.blobs import Blobs, WrongStore
from coordinator.artifacts.cleanup_task import ArtifactCleanupTask
from coordinator.artifacts.trees import Trees
from jobs import errors
from jobs.models import ANONYMOUS
from jobs.store.files import PART_BYTES, Files, StoredFile
from tests.unit.artifact_bench import TOKEN, Bench, manifest_of, sha_of
from threads_cluster.client import api
from threads_cluster.errors import ApiError, BadArgument
from threads_protocol import bundles, manifest
from threads_protocol.errors import MalformedText, TooLarge

DATA, OTHER = b"what is kept", b"and something else"
FILE: list[Any] = ["f", "a.txt", len(DATA), sha_of(DATA)]


@pytest.fixture
def bench(any_redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(any_redis_url, tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with various files."""
    root = tmp_path / "work"
    (root / "data").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "data" / "a.csv").write_text("1,2\n")
    (root / "data" / "same.csv").write_text("1,2\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "nothing").touch()
    (root / "latest").symlink_to("data/a.csv")
    (root / "große Zahlen.txt").write_text("ü" * 1000)
    return root


def tree(root: Path) -> dict[str, Any]:
    """Return the contents of a folder."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o100) if path.is_file() else None
    return found


def refused(answer: httpx.Response, status: int, part: str) -> None:
    assert answer.status_code == status, answer.text
    assert part in answer.json()["detail"], answer.text


# -- there and back ---------------------------------------------------------------------------------------------------


def test_a_folder_comes_back_as_it_was_and_is_sent_once(bench: Bench, folder: Path, tmp_path: Path) -> None:
    first = bench.client.artifacts.put(folder, name="data")
    assert (first["new"], first["sent_files"], first["artifact"]["names"]) == (True, 4, ["data"])
    again = bench.client.artifacts.put(folder)
    assert (again["new"], again["sent_bytes"], again["artifact"]["artifact_id"]) == (
        False,
        0,
        first["artifact"]["artifact_id"],
    )
    (folder / "data" / "a.csv").write_text("1,2,3\n")
    third = bench.client.artifacts.put(folder, name="data")
    assert (third["sent_files"], third["sent_bytes"]) == (1, 6)
    for asked in ("data", third["artifact"]["artifact_id"][:8]):
        got = bench.client.artifacts.fetch(asked, tmp_path / f"got-{asked}")
        assert got["fetched_files"] == 5
        assert tree(tmp_path / f"got-{asked}") == tree(folder)
    assert bench.client.artifacts.fetch("data", tmp_path / "got-data")["fetched_files"] == 0
    listed = [row["artifact_id"] for row in bench.client.artifacts.list()]
    assert listed == [third["artifact"]["artifact_id"], first["artifact"]["artifact_id"]]


def test_what_is_excluded_stays_here(bench: Bench, folder: Path) -> None:
    for name in (
        ".git/config",
        "__pycache__/a.pyc",
        "sub/node_modules/x.js",
        "sub/.venv/bin/python",
        "env2/pyvenv.cfg",
        ".env",
        ".cluster/secrets_key",
        "big.log",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret")
    (folder / ".clusterignore").write_text("*.log\n!keep.log\n/data/\n")
    (folder / "keep.log").write_text("kept")
    row = bench.client.artifacts.put(folder, exclude=["nothing", "gro*", "latest"])["artifact"]
    paths = [entry.path for entry in bench.client.artifacts.files(row["artifact_id"])]
    assert paths == [".clusterignore", "empty", "keep.log", "run.sh", "sub"]
    assert b"secret" not in b"".join(path.read_bytes() for path in bench.folder.rglob("*") if path.is_file())


def test_one_file_is_an_artifact_too(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "one.bin").write_bytes(DATA)
    row = bench.client.artifacts.put(tmp_path / "one.bin")["artifact"]
    bench.client.artifacts.fetch(row["artifact_id"], tmp_path / "got")
    assert tree(tmp_path / "got") == {"one.bin": (DATA, 0)}


def test_a_file_of_several_parts_goes_on_where_it_was_broken_off(bench: Bench, tmp_path: Path) -> None:
    big = tmp_path / "work" / "big.bin"
    big.parent.mkdir()
    big.write_bytes(os.urandom(2 * PART_BYTES + 12345))

    def breaks(request: httpx.Request) -> None:
        if request.url.path.endswith("/parts/1"):
            raise httpx.ConnectError("gone")

    bench.bridge.before = breaks
    with pytest.raises(Exception, match="no cluster answers"):
        bench.client.artifacts.put(big.parent)
    bench.bridge.before = lambda _: None
    bench.bridge.asked.clear()
    row = bench.client.artifacts.put(big.parent)["artifact"]
    assert [one.url.path[-1] for one in bench.sent("PUT", "/parts/")] == ["1", "2"]
    assert bench.sums()[2:] == (0, 0)

    got = tmp_path / "got"
    got.mkdir()
    sha = sha_of(big.read_bytes())
    (got / f".cluster-{sha[:32]}.part").write_bytes(big.read_bytes()[:PART_BYTES])
    bench.client.artifacts.fetch(row["artifact_id"], got)
    assert bench.sent("GET", "/files/")[-1].headers["Range"] == f"bytes={PART_BYTES}-"
    assert tree(got) == tree(big.parent)


def test_ranges_are_those_of_the_file(bench: Bench) -> None:
    bench.put_file(DATA)
    path = f"/api/files/{sha_of(DATA)}"
    for asked, status, body in (
        ("bytes=0-3", 206, DATA[:4]),
        ("bytes=5-", 206, DATA[5:]),
        ("bytes=3-9999", 206, DATA[3:]),
        ("bytes=-3", 200, DATA),
        ("bytes=0-1,3-4", 200, DATA),
        ("bytes=4-2", 200, DATA),
        ("lines=1-2", 200, DATA),
    ):
        answer = bench.ask("GET", path, Range=asked)
        assert (answer.status_code, answer.content) == (status, body), asked
    assert bench.ask("GET", path, Range="bytes=2-3").headers["Content-Range"] == f"bytes 2-3/{len(DATA)}"
    refused(bench.ask("GET", path, Range=f"bytes={len(DATA)}-"), 416, f"{len(DATA)} bytes")


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([["f", "../x", *FILE[2:]]], "not be . or .."),
        ([["f", "a/../../x", *FILE[2:]]], "not be . or .."),
        ([["f", "/etc/passwd", *FILE[2:]]], "relative"),
        ([["f", "a\\b", *FILE[2:]]], "backslash"),
        ([["f", "a\0b", *FILE[2:]]], "without NUL"),
        ([["f", "", *FILE[2:]]], "relative"),
        ([["f", "a//b", *FILE[2:]]], "have 1 to"),
        ([["f", "a/", *FILE[2:]]], "have 1 to"),
        ([["f", "n" * 256, *FILE[2:]]], "255 bytes"),
        ([["f", "n/" * 2100 + "n", *FILE[2:]]], "4096 bytes"),
        ([FILE, FILE], "is repeated"),
        ([["f", "b", *FILE[2:]], FILE], "not sorted"),
        ([["f", "a", *FILE[2:]], ["f", "a/b", *FILE[2:]]], "is a file, a link"),
        ([["d", "a"], ["f", "a/b", *FILE[2:]]], "is a file, a link"),
        ([["l", "a", "../../etc/passwd"]], "not in this artifact"),
        ([["l", "a", "/etc/passwd"]], "not in this artifact"),
        ([["l", "a", "b"]], "not in this artifact"),
        ([["l", "a", "a"], ["f", "a/b", *FILE[2:]]], "is a file, a link"),
        ([["f", "a", *FILE[2:]], ["f", "a-b", *FILE[2:]], ["f", "a/b", *FILE[2:]]], "is a file, a link"),
        ([["f", "a", *FILE[2:]], ["l", "b", ""]], "a target that is empty"),
        ([["f", "a", *FILE[2:]], ["l", "b", "a\0"]], "contains NUL"),
        ([["f", "a", *FILE[2:]], ["l", "b", "./" * 2100 + "a"]], "too long"),
        ([["l", "a", "b"], ["l", "b", "a"]], "not in this artifact"),
        # The path `up/..` is outside the tree, although p/q/x is inside.
        (
            [["l", "p/q/evil", "up/../x"], ["l", "p/q/up", "../.."], ["f", "p/q/x", *FILE[2:]]],
            "not in this artifact",
        ),
        ([["l", "e", "f/g/h"], ["l", "f/g", "../.."], ["f", "h", *FILE[2:]]], "not in this artifact"),
        ([["f", "a", *FILE[2:]], ["l", "b", "none/../a"]], "not in this artifact"),
        ([["f", "a", -1, FILE[3]]], "has the size"),
        ([["f", "a", 2**60, FILE[3]]], "has the size"),
        ([["f", "a", True, FILE[3]]], "has the size"),
        ([["f", "a", 1.0, FILE[3]]], "has the size"),
        ([["f", "a", 1, "A" * 64]], "needs a SHA-256"),
        ([["f", "a", 1, FILE[3] + "\n"]], "needs a SHA-256"),
        ([["f", "a", 1, 7]], "wrong type"),
        ([["q", "a"]], "not an entry"),
        ([["f", "a"]], "not an entry"),
        ([[], []], "not an entry"),
        ([["f", "a", 1, FILE[3]], ["f", "b", 2, FILE[3]]], "a different size"),
    ],
)
def test_a_manifest_that_leads_elsewhere_or_is_none_is_refused(rows: list[list[Any]], part: str) -> None:
    with pytest.raises(MalformedText) as refusal:
        manifest.parse(manifest_of(*rows))
    assert part in str(refusal.value)


def test_a_link_leads_where_a_file_system_says(tmp_path: Path) -> None:
    rows = [
        ["f", "..2026/conf", *FILE[2:]],
        ["l", "..data", "..2026"],
        ["l", "conf", "..data/conf"],
        ["l", "deep/er/top", "../.."],
        ["l", "deep/up", "er/top/./deep/er/../.."],
    ]
    assert manifest.parse(manifest_of(*rows)).files == 1


def test_names_with_any_end_of_a_line_are_put_fetched_and_collected(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("a\u2028b", "a\x85b", "a\nb", "a\x1cb"):
        (tmp_path / "work" / name).write_text(name)
    row = bench.client.artifacts.put(tmp_path / "work")["artifact"]
    bench.client.artifacts.fetch(row["artifact_id"], tmp_path / "got")
    assert tree(tmp_path / "got") == tree(tmp_path / "work")
    bench.delete(row["artifact_id"])
    assert bench.sums()[:2] == (0, 0)


def test_a_manifest_of_deep_paths_takes_no_more_memory_than_its_text() -> None:
    text = manifest_of(*(["f", f"{number:03}/" + "a/" * 2000 + "b", *FILE[2:]] for number in range(200)))
    tracemalloc.start()
    try:
        assert manifest.parse(text).files == 200
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()


def test_lines_that_are_too_long_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("it was read"))
    with pytest.raises(MalformedText):
        bundles.unpack(b"[" + b"[]," * (1 << 20) + b"[]]\n")
    with pytest.raises(MalformedText):
        manifest.parse(b'{"artifact":1}\n[' + b"[]," * (1 << 20) + b"[]]\n")
    with pytest.raises(TooLarge):
        manifest.parse(b"\n" * (1 << 20))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}\n",
        b'{"artifact":1}',
        b'{"artifact":2}\n',
        b'{"artifact":1}\n\n',
        b'{"artifact":1}\nx\n',
        b"\xff\n",
        b'{"artifact":1}\n["f", "a",1,"' + b"0" * 64 + b'"]\n',
        b'{"artifact":1}\n["d","\\u0061"]\n',
        b'{"artifact":1}\n["d","\\ud800"]\n',
        b'{"artifact":1}\n' + b"[" * 50_000 + b"\n",
    ],
)
def test_a_text_that_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedText):
        manifest.parse(text)


def test_a_manifest_of_fifty_thousand_paths_is_taken_and_one_of_more_is_not(bench: Bench) -> None:
    assert bench.put_file(DATA).status_code == 200
    rows = [["f", f"{number:06}", *FILE[2:]] for number in range(manifest.MAX_ENTRIES + 1)]
    refused(bench.commit(*rows), 413, "50000 paths")
    answer = bench.commit(*rows[:-1])
    assert answer.status_code == 200 and answer.json()["artifact"]["bytes"] == len(DATA) * manifest.MAX_ENTRIES
    assert bench.sums() == (1, len(DATA) + answer.json()["artifact"]["manifest_bytes"], 0, 0)
    refused(bench.ask("POST", "/api/artifacts", octets=b"x" * (manifest.MAX_BYTES + 1)), 413, "over 16777216 bytes")


def test_a_file_that_is_not_what_it_is_called_is_refused(bench: Bench) -> None:
    sha, place = sha_of(DATA), f"/api/files/{sha_of(DATA)}/parts"
    refused(bench.ask("PUT", f"{place}/0?size={len(OTHER)}", octets=OTHER), 422, "the SHA-256 of the body is not")
    refused(bench.ask("PUT", f"{place}/0?size={len(DATA)}", octets=DATA[:-1]), 422, "must have 12 bytes, got 11")
    refused(
        bench.ask("PUT", f"{place}/0?size={len(DATA) - 1}", octets=DATA[:-1]), 422, "the SHA-256 of the body is not"
    )
    refused(bench.ask("PUT", f"{place}/1?size={len(DATA)}", octets=DATA), 422, "has parts 0 to 0")
    refused(bench.ask("PUT", f"{place}/0?size={2 * PART_BYTES}", octets=DATA), 422, f"must have {PART_BYTES} bytes")
    refused(bench.ask("PUT", f"{place}/0?size=9", octets=b"x" * (PART_BYTES + 1)), 413, "over 8388608 bytes")
    for body, part in (
        (b"", "must start"),
        (b'[["x",1]]\na', "must start"),
        (b'[["%b",3]]\nab' % sha.encode(), "announces 3 bytes but contains 2"),
        (b'[["%b",2]]\nab' % sha.encode(), "has a different SHA-256"),
        (b"[[" * 9999, "must start"),
    ):
        refused(bench.ask("PUT", "/api/file-bundle", octets=body), 422, part)
    rows = [[sha_of(b"%d" % number), 0] for number in range(bundles.MAX_FILES + 1)]
    refused(bench.ask("PUT", "/api/file-bundle", octets=json.dumps(rows).encode() + b"\n"), 413, "over 1000 files")
    assert bench.missing(sha) == [sha] and bench.sums() == (0, 0, 0, 0) and bench.objects() == 0
    refused(bench.ask("PUT", "/api/file-bundle", body={}), 422, "must start")
    assert bench.ask("PUT", "/api/file-bundle", octets=b"x", **{"Content-Type": "text/plain"}).status_code == 415


def test_parts_that_do_not_make_the_file_are_dropped(bench: Bench) -> None:
    size = PART_BYTES + 3
    sha = sha_of(b"x" * size)
    place = f"/api/files/{sha}"
    assert bench.ask("PUT", f"{place}/parts/0?size={size}", octets=b"y" * PART_BYTES).json() == {"missing": [1]}
    refused(bench.ask("POST", f"{place}/complete"), 409, "1 of 2 parts are missing; the first missing part is 1")
    refused(bench.ask("PUT", f"{place}/parts/1?size={size + 1}", octets=b"xxxx"), 409, "another size")
    assert bench.ask("PUT", f"{place}/parts/1?size={size}", octets=b"xxx").json() == {"missing": []}
    assert bench.sums()[2:] == (1, size)
    refused(bench.ask("POST", f"{place}/complete"), 422, "the SHA-256 of the uploaded parts is not")
    refused(bench.ask("POST", f"{place}/complete"), 404, "no part of file")
    assert bench.missing(sha) == [sha] and bench.sums()[2:] == (0, 0)
    bench.collect()
    assert bench.objects() == 0


def test_a_commit_of_what_is_missing_or_has_another_size_changes_nothing(bench: Bench) -> None:
    bench.put_file(DATA)
    before = bench.sums()
    refused(
        bench.commit(FILE, ["f", "b", 5, sha_of(OTHER)]),
        409,
        "1 files are missing or have another size; upload them first",
    )
    refused(bench.commit(["f", "a", len(DATA) + 1, sha_of(DATA)]), 409, sha_of(DATA))
    assert bench.sums() == before and bench.ask("GET", "/api/artifacts").json() == {"artifacts": []}
    assert bench.objects() == 1
    assert bench.commit(FILE).json()["new"] is True


def test_names_that_could_be_ids_and_unknown_ones_are_refused(bench: Bench) -> None:
    bench.put_file(DATA)
    for name in ("deadbeef", "0" * 64):
        refused(bench.commit(FILE, name=name), 422, "could be an abbreviated artifact ID")
    for name in ("-a", "A", "a b", "x" * 65, "%2e%2e"):
        assert bench.commit(FILE, name=name).status_code == 422, name
    refused(bench.ask("GET", "/api/artifacts/nobody"), 404, "artifact nobody does not exist")
    with pytest.raises(ApiError):
        bench.client.artifacts.info("no/such")
    with pytest.raises(BadArgument):
        bench.client.artifacts.info("..")


# -- tenants ----------------------------------------------------------------------------------------------------------


def test_another_tenants_file_is_as_one_that_does_not_exist(bench: Bench) -> None:
    physics, students = bench.token("physics"), bench.token("students")
    bench.put_file(DATA, token=physics)
    row = bench.commit(FILE, name="data", token=physics).json()["artifact"]
    known, unknown = sha_of(DATA), sha_of(OTHER)
    assert bench.missing(known, unknown, token=students) == [known, unknown]
    for method, path in (
        ("GET", "/api/files/{}"),
        ("POST", "/api/files/{}/complete"),
        ("GET", "/api/artifacts/{}"),
        ("GET", "/api/artifacts/{}/manifest"),
        ("DELETE", "/api/artifacts/{}"),
    ):
        there = row["artifact_id"] if "artifacts" in path else known
        one, other = (bench.ask(method, path.format(each), token=students) for each in (there, unknown))
        assert (one.status_code, one.text) == (404, other.text.replace(unknown, there)), path
    assert bench.ask("GET", "/api/artifacts/data", token=students).status_code == 404
    one, other = (bench.commit(["f", "a", len(DATA), sha], token=students) for sha in (known, unknown))
    assert (one.status_code, one.text) == (409, other.text.replace(unknown, known))
    assert bench.ask("POST", "/api/file-bundle", {"hashes": [known]}, token=students).status_code == 404
    assert bench.ask("GET", "/api/artifacts", token=students).json() == {"artifacts": []}


def test_scopes_are_read_for_downloads_and_submit_for_the_rest(bench: Bench) -> None:
    bench.put_file(DATA)
    row = bench.commit(FILE).json()["artifact"]
    reader = bench.token("default", "read")
    assert bench.ask("GET", f"/api/artifacts/{row['artifact_id']}", token=reader).status_code == 200
    assert bench.ask("GET", f"/api/files/{sha_of(DATA)}", token=reader).content == DATA
    for answer in (
        bench.put_file(OTHER, token=reader),
        bench.commit(FILE, token=reader),
        bench.ask("DELETE", f"/api/artifacts/{row['artifact_id']}", token=reader),
    ):
        refused(answer, 403, "this request needs the scope submit")


def test_stored_bytes_count_at_the_commit_beside_those_of_jobs(bench: Bench) -> None:
    token = bench.token("small")
    data = DATA * 500
    file = ["f", "a", len(data), sha_of(data)]
    text = manifest_of(file)
    room = len(data) + len(text)
    bench.ask("PUT", "/api/tenants/small", {"weight": 1, "max_stored_bytes": room - 1})
    bench.put_file(data, token=token)
    refused(bench.commit(file, token=token), 429, f"artifacts use 0 of {room - 1} bytes")
    bench.ask("PUT", "/api/tenants/small", {"weight": 1, "max_stored_bytes": room})
    assert bench.commit(file, token=token).status_code == 200

    def used() -> int:
        [row] = [row for row in bench.ask("GET", "/api/tenants").json()["tenants"] if row["tenant"] == "small"]
        return int(row["stored_bytes"])

    assert used() == room
    for _ in range(2):
        bench.store.stored_bytes.recount()
        assert used() == room
    job = {"type": "collatz", "parameters": {"start_number": 1, "number_count": 1}}
    refused(bench.ask("POST", "/api/submit", job, token=token), 429, "max_stored_bytes")
    bench.ask("DELETE", f"/api/artifacts/{sha_of(text)}", token=token)
    assert used() == 0
    assert bench.ask("POST", "/api/submit", job, token=token).status_code == 202


def test_bytes_that_no_artifact_has_are_bounded_too(bench: Bench) -> None:
    token = bench.token("small")
    bench.ask("PUT", "/api/tenants/small", {"weight": 1, "max_stored_bytes": len(DATA) + 5})
    assert bench.put_file(DATA, token=token).status_code == 200
    refused(bench.put_file(OTHER, token=token), 429, "max_stored_bytes is 17")
    size = 2 * PART_BYTES
    answer = bench.ask("PUT", f"/api/files/{sha_of(OTHER)}/parts/0?size={size}", octets=b"x" * PART_BYTES, token=token)
    refused(answer, 429, "max_stored_bytes")
    assert bench.objects("small") == 1


def test_a_tenant_of_the_same_name_gets_no_files_of_the_one_before(bench: Bench) -> None:
    token = bench.token("physics")
    bench.put_file(DATA, token=token)
    bench.put_file(OTHER, token=token)
    row = bench.commit(FILE, token=token).json()["artifact"]
    for each in bench.ask("GET", "/api/tokens").json()["tokens"]:
        bench.ask("DELETE", f"/api/tokens/{each['id']}")
    refused(bench.ask("DELETE", "/api/tenants/physics"), 409, "artifacts")
    token = bench.token("physics")
    assert bench.ask("DELETE", f"/api/artifacts/{row['artifact_id']}", token=token).status_code == 204
    [each] = bench.ask("GET", "/api/tokens").json()["tokens"]
    bench.ask("DELETE", f"/api/tokens/{each['id']}")
    assert bench.ask("DELETE", "/api/tenants/physics").status_code == 204
    assert bench.missing(sha_of(DATA), sha_of(OTHER), token=bench.token("physics")) == [sha_of(DATA), sha_of(OTHER)]
    bench.pass_time(601)
    bench.collect()
    assert bench.objects("physics") == 0


# -- what goes --------------------------------------------------------------------------------------------------------


def test_what_nothing_refers_to_goes_ten_minutes_later_and_an_upload_revives_it(bench: Bench) -> None:
    bench.put_file(DATA)
    bench.put_file(OTHER)
    one = bench.commit(FILE, ["f", "b", len(OTHER), sha_of(OTHER)]).json()["artifact"]
    two = bench.commit(FILE, name="kept").json()["artifact"]
    bench.delete(one["artifact_id"])
    assert bench.sums() == (1, len(DATA) + two["manifest_bytes"], 1, len(OTHER))
    bench.pass_time(590)
    bench.collect()
    assert bench.missing(sha_of(OTHER)) == []  # asked for: it stays a day
    bench.pass_time(86_000)
    bench.collect()
    assert bench.commit(FILE, ["f", "b", len(OTHER), sha_of(OTHER)]).json()["new"] is True
    bench.delete(one["artifact_id"])
    bench.pass_time(601)
    bench.collect()
    assert bench.missing(sha_of(OTHER), sha_of(DATA)) == [sha_of(OTHER)]
    assert bench.put_file(OTHER).status_code == 200  # while its old bytes are condemned
    bench.pass_time(601)
    bench.collect()
    assert bench.ask("GET", f"/api/files/{sha_of(OTHER)}").content == OTHER
    assert bench.ask("GET", f"/api/files/{sha_of(DATA)}").content == DATA
    assert bench.objects() == 3  # with the manifest of the second


def test_a_list_goes_on_where_an_artifact_was_that_is_gone(bench: Bench) -> None:
    bench.put_file(DATA)
    ids = [bench.commit(["f", f"{number}", *FILE[2:]]).json()["artifact"]["artifact_id"] for number in range(5)]
    bench.store.client.zadd("ct:artifacts:default", dict.fromkeys(ids[:3], 7))  # put in one millisecond
    whole = [row["artifact_id"] for row in bench.ask("GET", "/api/artifacts").json()["artifacts"]]
    seen, cursor = list[str](), ""
    while True:
        page = bench.ask("GET", f"/api/artifacts?limit=1{cursor}").json()
        seen += [row["artifact_id"] for row in page["artifacts"]]
        if "cursor" not in page:
            break
        bench.delete(seen[-1])
        cursor = f"&cursor={page['cursor']}"
    assert seen == whole and len(seen) == 5
    assert bench.ask("GET", "/api/artifacts?cursor=1").status_code == 422


def test_a_name_keeps_what_it_points_to_and_lets_go_of_what_it_pointed_to(bench: Bench) -> None:
    bench.put_file(DATA)
    bench.put_file(OTHER)
    rows = (FILE, ["f", "b", len(OTHER), sha_of(OTHER)])
    one = bench.commit(rows[0], name="data").json()["artifact"]
    two = bench.commit(rows[1], name="data").json()["artifact"]
    assert bench.ask("GET", "/api/artifacts/data").json()["artifact_id"] == two["artifact_id"]
    assert [row["artifact_id"] for row in bench.ask("GET", "/api/artifacts").json()["artifacts"]] == [
        two["artifact_id"]
    ]
    assert bench.commit(rows[0]).json()["new"] is False  # revived before it was collected
    bench.collect()
    assert bench.ask("GET", f"/api/artifacts/{one['artifact_id']}").json()["names"] == []
    bench.commit(rows[0], name="data")
    bench.collect()
    assert bench.ask("GET", f"/api/artifacts/{two['artifact_id']}").status_code == 404
    bench.delete("data")
    assert bench.sums()[:2] == (0, 0) and bench.ask("GET", "/api/artifacts/data").status_code == 404


def test_what_a_job_holds_is_not_deleted(bench: Bench) -> None:
    bench.put_file(DATA)
    row = bench.commit(FILE).json()["artifact"]
    held = ("default", row["artifact_id"], "job:j1")
    assert bench.store.artifacts.hold(*held)
    refused(bench.ask("DELETE", f"/api/artifacts/{row['artifact_id']}"), 409, "is held by job:j1")
    assert bench.ask("GET", f"/api/artifacts/{row['artifact_id']}").json()["held_by"] == ["job:j1"]
    assert bench.store.artifacts.let_go(*held)
    assert bench.ask("DELETE", f"/api/artifacts/{row['artifact_id']}").status_code == 204
    assert not bench.store.artifacts.hold(*held)


def test_the_audit_log_has_who_put_and_deleted(bench: Bench) -> None:
    bench.put_file(DATA)
    row = bench.commit(FILE, name="data").json()["artifact"]
    bench.commit(FILE, name="data")
    bench.ask("DELETE", "/api/artifacts/data")
    lines = map(json.loads, bench.ask("GET", "/api/audit?after=0").json()["lines"])
    assert [(line["action"], line["subject"], line["outcome"]) for line in lines if "artifact" in line["action"]] == [
        ("put artifact", f"default/{row['artifact_id']}", "new, named data"),
        ("delete artifact", f"default/{row['artifact_id']}", "ok"),
    ]


# -- what dies, fills up and races ------------------------------------------------------------------------------------


def test_bytes_of_a_coordinator_that_died_before_they_were_a_files_are_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> Any:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Files, "add", dies)
        with pytest.raises(SystemExit):
            bench.trees.transfers.put_part("default", sha_of(DATA), len(DATA), 0, DATA)
        patched.setattr(type(bench.store.artifacts), "commit", dies)
        with pytest.raises(SystemExit):
            bench.trees.commit("default", manifest_of(["d", "a"]), "", ANONYMOUS)
    assert bench.objects() == 2 and bench.missing(sha_of(DATA)) == [sha_of(DATA)]
    bench.pass_time(3590)
    bench.collect()
    assert bench.objects() == 2
    assert bench.put_file(DATA).status_code == 200
    bench.pass_time(11)
    bench.collect()
    assert bench.objects() == 1 and bench.ask("GET", f"/api/files/{sha_of(DATA)}").content == DATA


def test_two_uploads_of_one_hash_at_once_are_one_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second client writes and is added while the first one has written."""
    write = Blobs.write

    def with_another_before(self: Blobs, tenant: str, objects: Any) -> None:
        write(self, tenant, objects)
        monkeypatch.setattr(Blobs, "write", write)
        assert bench.put_file(DATA).status_code == 200

    monkeypatch.setattr(Blobs, "write", with_another_before)
    assert bench.put_file(DATA).status_code == 200
    assert bench.sums()[2:] == (1, len(DATA))
    bench.pass_time(3601)
    bench.store.client.zadd("ct:loose", {f"default/{sha_of(DATA)}": 2**50})
    bench.collect()
    assert bench.objects() == 1 and bench.ask("GET", f"/api/files/{sha_of(DATA)}").content == DATA


def test_two_uploads_of_one_large_file_at_once_share_its_parts(bench: Bench) -> None:
    data = os.urandom(PART_BYTES + 7)
    sha, place = sha_of(data), f"/api/files/{sha_of(data)}"
    for _ in range(2):
        for number in (0, 1):
            part = data[number * PART_BYTES :][:PART_BYTES]
            assert bench.ask("PUT", f"{place}/parts/{number}?size={len(data)}", octets=part).status_code == 200
    for _ in range(2):
        assert bench.ask("POST", f"{place}/complete").status_code == 200
    assert bench.sums()[2:] == (1, len(data)) and bench.missing(sha) == []
    assert bench.objects() == 2 and bench.ask("GET", place).content == data


def put_at_once(bench: Bench, path: Path, count: int) -> list[dict[str, Any]]:
    """Store the same path with several clients, which all verify the file before the first one stores it."""
    barrier = threading.Barrier(count)
    digest = bench.trees.transfers.compute_digest

    def wait_for_others(tenant: str, file: StoredFile) -> str:
        found = digest(tenant, file)
        barrier.wait(30)
        return found

    def put(_: int) -> dict[str, Any]:
        with api.Cluster("http://127.0.0.1", TOKEN, transport=bench.bridge, patience=0) as client:
            return client.artifacts.put(path, name="same")

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(count) as threads:
        patch.setattr(bench.trees.transfers, "compute_digest", wait_for_others)
        return list(threads.map(put, range(count)))


def test_three_clients_that_put_one_large_file_at_once_all_succeed(bench: Bench, tmp_path: Path) -> None:
    data = os.urandom(2 * PART_BYTES + 7)
    (tmp_path / "big.bin").write_bytes(data)
    rows = put_at_once(bench, tmp_path / "big.bin", 3)
    assert len({row["artifact"]["artifact_id"] for row in rows}) == 1
    bench.client.artifacts.fetch("same", tmp_path / "got")
    assert (tmp_path / "got" / "big.bin").read_bytes() == data
    assert bench.sums()[:2] == (1, len(data) + rows[0]["artifact"]["manifest_bytes"])
    assert bench.store.files.upload("default", sha_of(data)) is None


def test_a_part_that_arrives_after_the_file_was_stored_begins_no_upload(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(PART_BYTES + 7)
    sha, place, write = sha_of(data), f"/api/files/{sha_of(data)}", Blobs.write

    def send(number: int) -> httpx.Response:
        part = data[number * PART_BYTES :][:PART_BYTES]
        return bench.ask("PUT", f"{place}/parts/{number}?size={len(data)}", octets=part)

    def write_after_another_upload(self: Blobs, tenant: str, objects: Any) -> None:
        monkeypatch.setattr(Blobs, "write", write)
        assert [send(0).status_code, send(1).status_code] == [200, 200]
        assert bench.ask("POST", f"{place}/complete").status_code == 200
        write(self, tenant, objects)

    monkeypatch.setattr(Blobs, "write", write_after_another_upload)
    assert send(0).json() == {"missing": []}
    assert bench.store.files.upload("default", sha) is None and bench.sums()[2:] == (1, len(data))
    assert bench.ask("POST", f"{place}/complete").status_code == 200
    bench.pass_time(3601)
    bench.store.client.zadd("ct:loose", {f"default/{sha}": 2**50})
    bench.collect()
    assert bench.objects() == 2, "the late part is deleted"


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_whose_parts_were_swept_is_sent_again(bench: Bench, tmp_path: Path, number: int) -> None:
    """The parts are deleted before the file is complete, and while its bytes are verified."""
    data = os.urandom(PART_BYTES + 7)
    (tmp_path / "big.bin").write_bytes(data)
    digest, left = bench.trees.transfers.compute_digest, [number]

    def sweep() -> None:
        left[0] -= 1
        if left[0] == 0:
            bench.pass_time(86_401)
            bench.collect()

    def sweep_before(request: httpx.Request) -> None:
        if request.url.path.endswith("/complete"):
            sweep()

    def sweep_after(tenant: str, file: StoredFile) -> str:
        found = digest(tenant, file)
        sweep()
        return found

    bench.bridge.before = sweep_before
    bench.trees.transfers.compute_digest = sweep_after  # type: ignore[method-assign]
    row = bench.client.artifacts.put(tmp_path / "big.bin")
    assert left[0] <= 0 and len(bench.sent("PUT", "/parts/")) == 4
    bench.client.artifacts.fetch(row["artifact"]["artifact_id"], tmp_path / "got")
    assert (tmp_path / "got" / "big.bin").read_bytes() == data


def test_a_file_of_which_another_upload_sent_wrong_bytes_is_sent_again(bench: Bench, tmp_path: Path) -> None:
    data = os.urandom(PART_BYTES + 7)
    (tmp_path / "big.bin").write_bytes(data)
    place = f"/api/files/{sha_of(data)}/parts/0?size={len(data)}"
    assert bench.ask("PUT", place, octets=bytes(PART_BYTES)).status_code == 200
    row = bench.client.artifacts.put(tmp_path / "big.bin")
    bench.client.artifacts.fetch(row["artifact"]["artifact_id"], tmp_path / "got")
    assert (tmp_path / "got" / "big.bin").read_bytes() == data


def test_a_file_whose_parts_are_swept_each_time_is_given_up(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(os.urandom(PART_BYTES + 7))

    def sweep_before(request: httpx.Request) -> None:
        if request.url.path.endswith("/complete"):
            bench.pass_time(86_401)
            bench.collect()

    bench.bridge.before = sweep_before
    with pytest.raises(ApiError, match="no part of file"):
        bench.client.artifacts.put(tmp_path / "big.bin")
    assert len(bench.sent("POST", "/complete")) == 3


def test_a_completion_whose_answer_was_lost_is_repeated(bench: Bench, tmp_path: Path) -> None:
    """In the meantime, another client that started earlier sends one of the parts again."""
    data = os.urandom(PART_BYTES + 7)
    (tmp_path / "big.bin").write_bytes(data)
    handle, lost = bench.bridge.handle_request, [True]

    def lose_first_answer(request: httpx.Request) -> httpx.Response:
        answer = handle(request)
        if request.url.path.endswith("/complete") and lost:
            lost.clear()
            bench.trees.transfers.add_part("default", sha_of(data), len(data), 0, data[:PART_BYTES])
            raise httpx.ReadError("the connection was closed")
        return answer

    bench.bridge.handle_request = lose_first_answer  # type: ignore[method-assign]
    with api.Cluster("http://127.0.0.1", TOKEN, transport=bench.bridge, patience=10) as client:
        row = client.artifacts.put(tmp_path / "big.bin")
    assert len(bench.sent("POST", "/complete")) == 2
    assert row["sent_bytes"] == len(data) and bench.missing(sha_of(data)) == []


def test_an_upload_that_was_begun_goes_after_a_day(bench: Bench) -> None:
    data = os.urandom(PART_BYTES + 7)
    bench.ask("PUT", f"/api/files/{sha_of(data)}/parts/0?size={len(data)}", octets=data[:PART_BYTES])
    bench.pass_time(86_401)
    bench.collect()
    bench.collect()
    assert bench.objects() == 0 and bench.sums()[2:] == (0, 0)
    assert bench.store.files.upload("default", sha_of(data)) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_store_is_a_507_and_nothing_is_half_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, folder: Path, number: int
) -> None:
    blobs = bench.trees.transfers.blobs
    pipe, left = blobs.filesystem.pipe_file, [2]

    def full(path: str, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            pipe(path, data[: len(data) // 2])
            raise OSError(number, os.strerror(number))
        pipe(path, data)

    monkeypatch.setattr(blobs.filesystem, "pipe_file", full)
    with pytest.raises(ApiError, match="the artifact store is full") as refusal:
        bench.client.artifacts.put(folder)
    assert refusal.value.status == 507
    assert bench.objects() == 0 and bench.sums() == (0, 0, 0, 0)
    left[0] = 10**6
    assert bench.client.artifacts.put(folder)["new"]


def test_what_the_store_lost_is_said_and_uploaded_again(bench: Bench, folder: Path, tmp_path: Path) -> None:
    row = bench.client.artifacts.put(folder)["artifact"]
    sha = sha_of(b"1,2\n")
    file = bench.trees.transfers.find("default", sha)
    (bench.folder / "default" / file.objects[0][:2] / file.objects[0]).unlink()
    with pytest.raises(ApiError, match="has lost the contents"):
        bench.client.artifacts.fetch(row["artifact_id"], tmp_path / "got")
    again = bench.client.artifacts.put(folder)
    assert (again["new"], again["sent_files"]) == (False, 1)
    bench.client.artifacts.fetch(row["artifact_id"], tmp_path / "got")
    assert tree(tmp_path / "got") == tree(folder)
    bench.delete(row["artifact_id"])
    assert bench.sums()[:2] == (0, 0)


def test_a_manifest_that_is_lost_is_stored_anew_by_the_next_put(bench: Bench, folder: Path, tmp_path: Path) -> None:
    row = bench.client.artifacts.put(folder)["artifact"]
    [stored] = bench.store.artifacts.read("default", [row["artifact_id"]])
    assert stored
    (bench.folder / "default" / stored.manifest[:2] / stored.manifest).unlink()
    with pytest.raises(ApiError, match="has lost the manifest of"):
        bench.client.artifacts.fetch(row["artifact_id"], tmp_path / "got")
    bench.delete(row["artifact_id"])  # whose files nobody knows without it
    with pytest.raises(errors.Broken):
        bench.collect()
    assert bench.client.artifacts.put(folder)["new"] is False
    bench.client.artifacts.fetch(row["artifact_id"], tmp_path / "got")
    assert tree(tmp_path / "got") == tree(folder)
    bench.delete(row["artifact_id"])
    assert bench.sums()[:2] == (0, 0)


def test_a_store_that_coordinators_do_not_share_is_refused(bench: Bench, any_redis_url: str, tmp_path: Path) -> None:
    bench.put_file(DATA)
    Blobs(bench.url).check(bench.store.files)
    with pytest.raises(WrongStore, match=r"has no file threads-cluster-artifacts.*mount one shared folder"):
        Blobs(f"file://{tmp_path}/other").check(bench.store.files)
    other = Bench(any_redis_url, tmp_path / "other")
    refused(other.put_file(DATA), 500, "mount one shared folder")
    other.close()
    bench.store.client.flushall()  # as after a Redis was lost: what is there is taken
    Blobs(bench.url).check(bench.store.files)
    with pytest.raises(WrongStore):
        Blobs(f"file://{tmp_path}/other").check(bench.store.files)


def test_a_store_that_cannot_be_written_is_refused_with_what_to_do(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WrongStore, match=r"cannot be read: .*user read and write access"):
        Blobs(f"file://{tmp_path}/file/store").check(bench.store.files)
    with pytest.raises(WrongStore, match="cannot be used"):
        Blobs("nothing://x")


def test_without_a_store_the_setting_is_named(any_redis_url: str) -> None:
    bench = Bench(any_redis_url, "")
    answer = bench.put_file(DATA)
    refused(answer, 500, "set ARTIFACT_URL")
    assert bench.ask("GET", "/api/artifacts").json() == {"artifacts": []}
    bench.close()


def test_a_store_that_is_away_loses_nothing(bench: Bench) -> None:
    """The volume is not mounted: its folder exists and is empty."""
    bench.put_file(DATA)
    bench.put_file(OTHER)
    row = bench.commit(FILE).json()["artifact"]
    bench.pass_time(86_401)
    bench.store.files.condemn()
    bench.pass_time(601)
    away = bench.folder.with_name("away")
    bench.folder.rename(away)
    bench.folder.mkdir()
    said = "is not available: its file threads-cluster-artifacts is missing; mount it again"
    for path in (f"/api/files/{sha_of(DATA)}", f"/api/artifacts/{row['artifact_id']}/manifest"):
        refused(bench.ask("GET", path), 503, said)
    refused(bench.commit(FILE), 503, said)  # whose manifest would lie where nobody finds it later
    refused(bench.put_file(b"more"), 503, said)
    assert not [path for path in bench.folder.rglob("*") if path.is_file()]
    trees = Trees(bench.store, bench.settings)
    trees.transfers_once_open = bench.trees.transfers
    with pytest.raises(errors.Unavailable):
        ArtifactCleanupTask(bench.store, trees).run_once()
    shutil.rmtree(bench.folder)
    away.rename(bench.folder)
    assert bench.ask("GET", f"/api/artifacts/{row['artifact_id']}/manifest").status_code == 200
    assert bench.missing(sha_of(DATA)) == [] and bench.ask("GET", f"/api/files/{sha_of(DATA)}").content == DATA
    bench.collect()
    assert bench.objects() == 2


def test_what_cannot_be_collected_keeps_nothing_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (DATA, OTHER, b"a third"):
        bench.put_file(data)
    for number in range(3):
        row = bench.commit(["f", f"{number}", *FILE[2:]]).json()["artifact"]
        bench.store.artifacts.delete("default", row["artifact_id"])
    bench.pass_time(86_401)
    bench.store.files.condemn()
    bench.pass_time(601)
    readable, delete, stuck = manifest.hashes, Blobs.delete, list[Any]()

    def hashes(text: bytes) -> list[str]:
        if b'"1"' in text:
            raise ValueError("it cannot be read")
        return readable(text)

    def all_but_the_first(self: Blobs, objects: Any) -> None:
        stuck[:] = stuck or objects
        if objects == stuck:
            raise errors.Unavailable("it cannot be deleted")
        delete(self, objects)

    monkeypatch.setattr(manifest, "hashes", hashes)
    monkeypatch.setattr(Blobs, "delete", all_but_the_first)
    with pytest.raises(ValueError, match="it cannot be read"):
        bench.collect()
    assert len(bench.store.artifacts.unheld(9)) == 1
    assert bench.store.client.scard("ct:doomed") == 1


def test_a_store_that_hangs_holds_up_no_other_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More downloads and uploads hang than threads exist for requests."""
    bench.put_file(DATA)
    opened, full, hung = threading.Event(), threading.Event(), list[int]()

    def hangs(*_: Any) -> Any:
        hung.append(1)
        if len(hung) == 12:
            full.set()
        opened.wait(150)
        raise errors.Unavailable("it hung")

    monkeypatch.setattr(Blobs, "read", hangs)
    monkeypatch.setattr(Blobs, "write", hangs)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    octets = headers | {"Content-Type": "application/octet-stream"}

    async def calls() -> None:
        transport = httpx.ASGITransport(bench.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=20) as http:
            path = f"/api/files/{sha_of(DATA)}"
            many = [asyncio.create_task(http.get(path, headers=headers)) for _ in range(50)]
            place = f"/api/files/{sha_of(OTHER)}/parts/0?size={len(OTHER)}"
            many += [asyncio.create_task(http.put(place, headers=octets, content=OTHER)) for _ in range(50)]
            try:
                assert await asyncio.to_thread(full.wait, 60)
                answer = await asyncio.wait_for(http.get("/api/status", headers=headers), 60)
                assert answer.status_code == 200
            finally:
                opened.set()
            assert {each.status_code for each in await asyncio.gather(*many)} == {503}

    asyncio.run(calls())

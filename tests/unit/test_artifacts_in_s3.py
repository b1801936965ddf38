"""Tests artifacts in an S3 bucket of moto's server, with the same code as for a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from coordinator.artifacts.blobs import Blobs, WrongStore
from jobs.store.files import PART_BYTES
from tests.ports import free_port
from tests.unit.artifact_bench import Bench, sha_of


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Return the URL of a bucket's folder. One server is shared, because the driver keeps its connections."""
    port = free_port()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    patched = pytest.MonkeyPatch()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "tests"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        patched.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="cluster")
    yield "s3://cluster/artifacts"
    patched.undo()
    server.stop()


def test_a_folder_goes_to_a_bucket_comes_back_and_goes_from_it(bucket: str, any_redis_url: str, tmp_path: Path) -> None:
    work, got = tmp_path / "work", tmp_path / "got"
    work.mkdir()
    (work / "big.bin").write_bytes(os.urandom(PART_BYTES + 5))
    (work / "empty").touch()
    for number in range(20):
        (work / f"{number}.txt").write_text(f"{number}\n")
    bench = Bench(any_redis_url, bucket)

    def objects() -> int:
        listed = boto3.client("s3").list_objects_v2(Bucket="cluster", Prefix="artifacts/default/")
        return int(listed["KeyCount"])

    row = bench.client.artifacts.put(work, name="data")["artifact"]
    assert objects() == 2 + 21 + 1
    bench.client.artifacts.fetch("data", got)
    assert {path.name: path.read_bytes() for path in got.iterdir()} == {
        path.name: path.read_bytes() for path in work.iterdir()
    }
    sha = sha_of((work / "big.bin").read_bytes())
    answer = bench.ask("GET", f"/api/files/{sha}", Range=f"bytes={PART_BYTES - 2}-{PART_BYTES + 1}")
    assert answer.content == (work / "big.bin").read_bytes()[PART_BYTES - 2 : PART_BYTES + 2]

    with pytest.raises(WrongStore, match="has no file threads-cluster-artifacts"):
        Blobs("s3://cluster/elsewhere").check(bench.store.files)
    bench.delete(row["artifact_id"])
    for _ in range(2):
        bench.pass_time(601)
        bench.collect()
    assert objects() == 0
    bench.close()


def test_a_bucket_that_is_not_there_is_refused(bucket: str, any_redis_url: str) -> None:
    bench = Bench(any_redis_url, bucket)
    with pytest.raises(WrongStore, match="ARTIFACT_URL=s3://nobody/x cannot be written"):
        Blobs("s3://nobody/x").check(bench.store.files)
    bench.close()

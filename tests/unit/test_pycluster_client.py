"""Tests the client with PyCluster's interface: deployments, downloads, and the file that it does not read."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.unit.models_bench import WEIGHTS, Pool
from threads_cluster import LLMClusterManager
from threads_cluster.client.models import DownloadFailed
from threads_cluster.errors import ApiError, BadArgument

MODEL = "Qwen/Qwen3-0.6B"


@pytest.fixture
def manager(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LLMClusterManager:
    monkeypatch.chdir(tmp_path)
    return LLMClusterManager(pool.client)


def end_download(pool: Pool, files: dict[str, bytes]) -> threading.Thread:
    """Let the next download create these files, in another thread."""

    def work() -> None:
        while not (found := pool.ask("GET", "/api/workflows").json()["workflows"]):
            time.sleep(0.02)
        pool.look(found[0]["workflow_id"])
        pool.leave(found[0]["workflow_id"], "download--fetch", files)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_deploy_does_not_download_a_model_without_the_flag(manager: LLMClusterManager) -> None:
    with pytest.raises(ApiError) as refused:
        manager.deploy_model(MODEL)
    assert refused.value.status == 404
    command = f"cluster model download qwen3-0.6b --source hf://{MODEL} --wait"
    assert command in str(refused.value) and "download=True" in str(refused.value)


def test_deploy_downloads_the_model_once_with_the_flag(pool: Pool, manager: LLMClusterManager) -> None:
    ending = end_download(pool, {"model/m.gguf": WEIGHTS})
    made = manager.deploy_model(MODEL, download=True, model_size="0.6b")
    ending.join()
    assert made["deployment_id"] == "qwen-qwen3-0-6b"
    assert pool.client.models.get("qwen3-0.6b")["source"] == f"hf://{MODEL}"
    pool.client.services.delete("qwen-qwen3-0-6b")
    assert manager.deploy_model(MODEL, download=True)["deployment_id"] == "qwen-qwen3-0-6b"
    assert len(pool.sent("POST", "/download")) == 1


def test_a_failed_download_names_its_workflow(pool: Pool, manager: LLMClusterManager) -> None:
    ending = end_download(pool, {"model/readme.txt": b"no weights"})
    with pytest.raises(DownloadFailed, match=r"was not downloaded: .*has no file that ends in") as failed:
        manager.deploy_model(MODEL, download=True)
    ending.join()
    assert failed.value.next.startswith("see why with cluster workflow status ")


def test_a_download_does_not_replace_another_model(pool: Pool, manager: LLMClusterManager) -> None:
    pool.put_model("qwen3-0.6b")
    with pytest.raises(BadArgument, match=r"model qwen3-0\.6b already exists, from an uploaded file"):
        manager.deploy_model(MODEL, download=True)
    with pytest.raises(BadArgument, match="must be ORG/REPO"):
        manager.deploy_model("tiny", download=True)


def test_the_client_warns_about_its_unread_configuration_file(manager: LLMClusterManager, tmp_path: Path) -> None:
    (tmp_path / "pycluster.yaml").write_text("cluster: {}\n")
    with pytest.warns(UserWarning, match=r"pycluster\.yaml is not read\. .*docs/coming-from/pycluster\.md"):
        LLMClusterManager(manager.cluster)

"""Tests services with stored models: the engine by file type, required memory, and who may run models with code."""

from __future__ import annotations

import errno
import json
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import registry
from jobs.store import keys
from tests.unit.artifact_bench import Bench, sha_of
from threads_cluster.errors import ApiError

CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "max_position_embeddings": 512}
GPUS = {"gpus": 2}


@pytest.fixture
def bench(redis_url: str, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(redis_url, tmp_path)
    yield bench
    bench.close()


def put(bench: Bench, name: str, **files: bytes) -> None:
    """Store a folder under a name. In its file names, _ stands for a dot."""
    rows = []
    for path, data in sorted((path.replace("_", "."), data) for path, data in files.items()):
        assert bench.put_file(data).status_code == 200
        rows.append(["f", path, len(data), sha_of(data)])
    answer = bench.commit(*rows, name=name)
    assert answer.status_code in (200, 201), answer.text


@pytest.fixture
def models(bench: Bench) -> Bench:
    """A cluster with safetensors weights of 100,000 bytes, the same pickled, and an invalid GGUF file."""
    config = json.dumps(CONFIG).encode()
    put(bench, "safe", config_json=config, model_safetensors=bytes(100_000))
    put(bench, "pickled", config_json=config, model_safetensors=b"x", pytorch_bin=b"\x80\x02.")
    put(bench, "gguf", tiny_gguf=b"GGUF" + bytes(5000))
    put(bench, "text", readme_md=b"nothing")
    return bench


def runner(bench: Bench, memory_mib: int, *gpus: int) -> None:
    """Send the heartbeat of a runner with this amount of memory."""
    offer = {
        "cpus": 8,
        "memory_mib": memory_mib,
        "host": "h",
        "labels": [],
        "gpus": [{"memory_mib": each, "compute_capability": "9.0"} for each in gpus],
    }
    row: dict[str, Any] = {"device": "runner", "state": "idle", "lanes": 1, "host": "h", "offer": json.dumps(offer)}
    bench.store.fleet.heartbeat("runner-1", bench.store.fleet.birth(), row)


def serve(bench: Bench, model: str, engine: str = "", **more: Any) -> Any:
    return bench.client.services.serve("chat", engine, model=model, **more)


def test_the_engine_is_the_one_for_the_models_files(models: Bench) -> None:
    assert serve(models, "gguf")["engine"] == "llamacpp"
    models.client.services.delete("chat")
    assert serve(models, "safe", requirements=GPUS)["engine"] == "vllm"
    models.client.services.delete("chat")
    assert serve(models, "safe")["engine"] == "transformers"
    for model, engine in (("text", ""), ("text", "llamacpp"), ("pickled", "vllm")):
        with pytest.raises(ApiError) as refused:
            models.client.services.serve("other", engine, model=model, requirements=GPUS)
        assert refused.value.status == 422


def test_engines_are_told_with_their_parameters_and_the_packages_that_a_replica_gets(models: Bench) -> None:
    rows = {row["engine"]: row for row in models.client.services.engines()}
    assert list(rows) == sorted(rows) == ["dask", "http", "llamacpp", "transformers", "vllm"]
    assert [name for name, row in rows.items() if row["large"]] == ["transformers", "vllm"]
    assert rows["http"]["packages"] == "" and "context" in rows["vllm"]["parameters"]["properties"]
    serve(models, "safe")
    service = models.store.services.one("default", "chat")
    assert service and json.loads(service.job)["parameters"]["packages"] == rows["transformers"]["packages"]
    assert models.ask("GET", "/api/engines", token="x" * 40).status_code == 401


def test_engines_are_listed_while_no_file_can_be_opened(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    registry.names.cache_clear()
    registry.packages.cache_clear()
    for module, name in ((pkgutil, "iter_modules"), (registry, "text")):
        monkeypatch.setattr(module, name, refuse)
    assert len(bench.client.services.engines()) == 5


def test_the_memory_of_a_replica_is_kept_with_its_sum_and_compared_with_the_runners(models: Bench) -> None:
    runner(models, 4096, 81_920, 81_920)
    serve(models, "safe", requirements=GPUS, parameters={"gpu_memory_utilization": 0.5})
    memory = models.client.services.get("chat")["asked"]["memory"]
    assert memory["weights_bytes"] == 100_000 and memory["kept_bytes"] == 2 * 4 * 32 * 2 * 512
    assert memory["available_bytes"] == 80 << 30 and memory["words"].endswith("runner-1 has 80.0 GiB, which is enough")
    models.client.services.delete("chat")
    serve(models, "gguf", parameters={"context": 16, "parallel": 1})
    memory = models.client.services.get("chat")["asked"]["memory"]
    assert memory["available_bytes"] == 4 << 30 and "of unknown size" in memory["words"]


def test_an_estimate_creates_no_service(models: Bench) -> None:
    runner(models, 4096)
    body = {"name": "chat", "model": "gguf", "parameters": {"context": 16}}
    estimate = models.ask("POST", "/api/services/estimate", body).json()
    assert estimate["engine"] == "llamacpp" and estimate["fits"] and "runner-1 has 4.0 GiB" in estimate["memory"]
    assert models.client.services.list() == []
    wrong = models.ask("POST", "/api/services/estimate", body | {"model": "missing"})
    assert wrong.status_code == 404 and wrong.json()["field"] == "model"


def test_a_model_larger_than_any_runner_is_refused_and_served_when_forced(models: Bench) -> None:
    put(models, "large", large_gguf=b"GGUF" + bytes(3 << 20))
    runner(models, 2)
    with pytest.raises(ApiError, match=r"3\.0 MiB weights .* runner-1 has 2\.0 MiB, which is not enough") as refused:
        serve(models, "large")
    assert refused.value.status == 422 and models.store.client.scard(keys.SERVICES) == 0
    serve(models, "large", force=True)
    asked = models.client.services.get("chat")["asked"]
    assert asked["memory"]["weights_bytes"] > asked["memory"]["available_bytes"] and "force" not in asked


def test_code_that_a_model_brings_needs_the_scope_operate(models: Bench) -> None:
    body = {
        "name": "chat",
        "engine": "vllm",
        "model": "safe",
        "requirements": GPUS,
        "parameters": {"trust_remote_code": True},
    }
    runs, operates = models.token("default", "run", "read"), models.token("default", "run", "read", "operate")
    refused = models.ask("POST", "/api/services", body, token=runs)
    assert refused.status_code == 403 and "operate" in refused.text
    assert models.store.client.scard(keys.SERVICES) == 0
    assert models.ask("POST", "/api/services", body, token=operates).status_code == 201


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sharding_strategy": "tensor_parallel"}, {"--tensor-parallel-size": "2", "--pipeline-parallel-size": "1"}),
        ({"sharding_strategy": "pipeline_parallel"}, {"--tensor-parallel-size": "1", "--pipeline-parallel-size": "2"}),
        (
            {"precision": "fp16", "max_sequence_length": 256, "batch_size": 3},
            {"--dtype": "float16", "--max-model-len": "256", "--max-num-seqs": "3", "--tensor-parallel-size": "2"},
        ),
    ],
)
def test_a_deployment_is_divided_over_its_gpus_as_its_words_say(
    models: Bench, more: dict[str, Any], words: dict[str, str]
) -> None:
    given = {"model_size": "7b", "gpu_per_replica": 2, "max_memory_per_gpu": "12GB", "replicas": 1}
    assert models.client.deploy("safe", **given, **more) == {"deployment_id": "safe", "status": "waiting"}
    service = models.store.services.one("default", "safe")
    assert service
    command = json.loads(service.job)["parameters"]["command"]
    assert {flag: command[command.index(flag) + 1] for flag in words} == words
    assert models.client.services.get("safe")["asked"]["deployment"]["model_size"] == "7b"


def test_a_deployments_precision_that_no_engine_knows_is_refused_where_it_would_change_something(models: Bench) -> None:
    with pytest.raises(ApiError, match="precision: must be one of fp16"):
        models.client.deploy("safe", gpu_per_replica=1, precision="int3")
    assert models.client.deploy("gguf", precision="int3")["deployment_id"] == "gguf"
    with pytest.raises(ApiError, match="nosuch"):
        models.client.deploy("nosuch")

"""Tests inference jobs with the API of a GPU manager: submissions, results and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models_bench import Pool
from threads_cluster import ClusterClient
from threads_cluster.compat import cluster_client
from threads_cluster.errors import ApiError, BadArgument, JobEnded

GPU = {"memory_gb": 16, "compute_capability": "8.0"}


@pytest.fixture
def client(pool: Pool) -> ClusterClient:
    return ClusterClient("http://127.0.0.1", cluster=pool.client)


def answered(pool: Pool, job: str, *rows: dict[str, str]) -> None:
    """Let a job's batch return these answers."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    pool.leave(job, "answer--run", {"answers/answers.jsonl": lines.encode()})


def test_a_prompt_for_a_file_is_answered(pool: Pool, client: ClusterClient, tmp_path: Path) -> None:
    model = tmp_path / "tiny model.gguf"
    model.write_bytes(b"GGUF" + bytes(100))
    job = client.submit_job(
        model_path=model, input_data={"prompt": "once\nupon", "max_tokens": 7}, gpu_requirements=GPU
    )
    pool.look(job)
    run = pool.parameters(job, "answer--run")
    assert run["requirements"] == {"gpus": 1, "gpu_memory_mib": 16384, "compute_capability": "8.0"}
    assert run["command"] == ["python3", "batch.py", "model/tiny model.gguf", "7", "0.2"]
    assert client.status(job) == "running"
    answered(pool, job, {"text": " a time\u2028", "prompt": "once\nupon"})
    assert client.status(job) == "done"
    assert client.result(job, timeout=60) == {"text": " a time\u2028", "prompt": "once\nupon"}
    again = client.submit_job(model, {"prompt": "once\nupon"})
    assert again != job and not pool.sent("PUT", "tiny"), "the file is known by its name and bytes"


def test_several_prompts_for_a_model_of_the_cluster_come_back_in_their_order(pool: Pool, client: ClusterClient) -> None:
    pool.put_model("tiny")
    job = client.submit_job("tiny", {"prompt": ["a", "b"], "temperature": 0})
    pool.look(job)
    run = pool.parameters(job, "answer--run")
    assert not run["requirements"], "on whatever there is"
    assert run["command"][-2:] == ["200", "0.0"]
    rows = [{"text": "1", "prompt": "a"}, {"text": "2", "prompt": "b"}]
    answered(pool, job, *rows)
    assert client.result(job, timeout=60) == rows


def test_a_job_that_fails_or_is_cancelled_says_so(pool: Pool, client: ClusterClient) -> None:
    job = client.submit_job("nosuch", {"prompt": "a"})
    pool.look(job)
    with pytest.raises(JobEnded):
        client.result(job, timeout=60)
    pool.put_model("tiny")
    job = client.submit_job("tiny", {"prompt": "a"})
    pool.look(job)
    client.cancel(job)
    pool.look(job)
    with pytest.raises(JobEnded, match="cancelled"):
        client.result(job, timeout=60)


@pytest.mark.parametrize(
    ("data", "gpus", "words"),
    [
        ({}, None, "prompt must be a non-empty text"),
        ({"prompt": ""}, None, "list of non-empty texts"),
        ({"prompt": []}, None, "list of non-empty texts"),
        ({"prompt": ["a", 1]}, None, "list of non-empty texts"),
        (
            {"prompt": "a", "top_p": 1},
            None,
            "input_data: unknown field top_p; the fields are prompt, max_tokens, temperature",
        ),
        ("a", None, "input_data: must be a dictionary"),
        ({"prompt": "a"}, {"memory": 1}, "gpu_requirements: unknown field memory"),
        ({"prompt": "a"}, {"memory_gb": "16"}, "memory_gb must be a number of GiB above 0"),
        ({"prompt": "a"}, {"memory_gb": float("nan")}, "memory_gb must be a number"),
        ({"prompt": "a"}, {"memory_gb": True}, "memory_gb must be a number"),
        ({"prompt": "a"}, ["16"], "gpu_requirements: must be a dictionary"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_sent(
    pool: Pool, client: ClusterClient, data: Any, gpus: Any, words: str
) -> None:
    with pytest.raises(BadArgument) as refused:
        client.submit_job("tiny", data, gpus)
    assert words in str(refused.value) and not list(client.cluster.workflows.list())


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ({"gpus": 0}, "gpus"),
        ({"gpus": 65}, "gpus"),
        ({"gpus": 1, "compute_capability": "eight"}, "capability"),
        ({"gpus": 1, "gpu_memory_mib": 2**40}, "gpu_memory_mib"),
        ({"host": "a"}, "got host"),
        ([], "object"),
    ],
)
def test_requirements_of_an_action_are_checked_with_its_text(pool: Pool, requirements: Any, words: str) -> None:
    action = {
        "action_id": "i",
        "action_type": "inference",
        "model_name": "tiny",
        "input_data": "chunk-0",
        "output_device": "disk",
        "requirements": requirements,
    }
    with pytest.raises(ApiError) as refused:
        pool.client.workflows.submit({"name": "x", "actions": [action]})
    assert words in json.dumps(refused.value.problem)


def test_the_port_that_others_have_stands_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cluster_client, "Cluster", lambda url, _token: asked.append(url))
    for address in ("gpu1:9090", "https://gpu1:9090", "gpu1:3007", "gpu1"):
        ClusterClient(address)
    assert asked == ["gpu1:3000", "https://gpu1:3000", "gpu1:3007", "gpu1"]

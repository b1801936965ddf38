"""Tests how runners start engines: arguments, errors, the memory of replicas, and fake engines that run."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coordinator.services import memory_estimate
from engines import gguf_metadata, memory, registry, texts
from engines.contract import Model
from engines.memory import Cache, Need
from jobs import errors
from jobs.kinds.program_arguments import text_of
from jobs.kinds.service import launch
from tests import tiny_model
from tests.engine_runs import running

CONFIG = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
WEIGHTS = {"model-1.safetensors": 10 << 30, "model-2.safetensors": 5 << 30, "config.json": 100, "tokenizer.json": 9}


def model(files: dict[str, int] = WEIGHTS, config: object = CONFIG, name: str = "chat") -> Model:
    text = json.dumps(config).encode()
    return Model(artifact="a" * 64, name=name, files=files, head=lambda path, most: text[:most])


def launched(engine: str, given: Model | None, gpus: int = 0, **parameters: Any) -> list[Any]:
    definition = registry.definition(engine)
    launch = definition.launch(definition.Parameters(**parameters), given, gpus)
    return list(launch.command)


def needs(engine: str, given: Model, gpus: int = 0, **parameters: Any) -> Need:
    need = registry.need(engine)
    assert need
    return need(registry.definition(engine).Parameters(**parameters), given, gpus)


def test_nothing_is_filled_into_the_names_of_a_models_files() -> None:
    """A runner replaces {port} in the arguments of an engine, but not in file names that users chose."""
    path = "a{port}/{address}.gguf"
    words = launched("llamacpp", model({path: 5}, name="{python}"))
    filled = launch.arguments({"command": words}, {"port": "1", "address": "2", "python": "3"})
    assert filled[0] == "3" and filled[3:7] == ["--model", path, "--alias", "{python}"]


# -- memory ---------------------------------------------------------------------------------------------------------


def test_the_sum_of_a_models_memory_is_weights_tokens_and_a_margin() -> None:
    need = Need(weights=15 << 30, cache=memory.cache_from_config(CONFIG), tokens=8192, where="gpus")
    assert need.cache == Cache(layers=32, heads=32 * 8, width=256) and need.cache.token_bytes == 131_072
    assert need.cache_bytes == 1 << 30 and need.margin_bytes == (200 << 20) + int(0.05 * (15 << 30))
    assert need.bytes == need.weights + need.cache_bytes + need.margin_bytes
    assert need.words == (
        "15.0 GiB weights + 1.0 GiB for 8,192 tokens (256 heads in 32 layers x 256 x 2 bytes) + "
        "968 MiB margin (5% and 200 MiB) = 16.9 GiB"
    )
    assert "unknown" in Need(weights=1, cache=None, tokens=5, where="host").words


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        {"num_hidden_layers": "32"},
        {**CONFIG, "num_hidden_layers": -1},
        {**CONFIG, "num_attention_heads": 0},
        {**CONFIG, "hidden_size": 10**30},
        {**CONFIG, "num_hidden_layers": True},
        {**CONFIG, "hidden_size": 1.5},
    ],
)
def test_a_description_that_makes_no_sense_says_nothing_of_tokens(config: Any) -> None:
    assert needs("vllm", model(config=config), 1).cache is None


def test_a_models_own_description_of_its_text_counts() -> None:
    assert memory.cache_from_config({"text_config": CONFIG, "num_hidden_layers": 1}) == memory.cache_from_config(CONFIG)
    assert memory.cache_from_config({**CONFIG, "head_dim": 64}) == Cache(layers=32, heads=256, width=128)


def test_the_shape_of_a_gguf_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    known = gguf_metadata.parse_metadata(data[: gguf_metadata.MOST_BYTES])
    assert known["general.architecture"] == "llama" and known["llama.block_count"] == 1
    assert memory.cache_from_gguf(known) == Cache(layers=1, heads=4, width=32)
    given = Model(artifact="a", name="t", files={"t.gguf": len(data)}, head=lambda path, most: data[:most])
    need = needs("llamacpp", given, context=128, parallel=2)
    assert need.cache_bytes == 2 * 16 * 4 * 2 * 256 and need.where == "host"
    assert needs("llamacpp", given, gpus=1).where == "both"


def test_a_gguf_file_that_is_cut_off_or_lies_says_less_and_takes_no_time(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    for size in range(0, 4000, 7):
        assert memory.cache_from_gguf(gguf_metadata.parse_metadata(data[:size])) in (
            None,
            Cache(layers=1, heads=4, width=32),
        )
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**63)
    name = struct.pack("<Q", 1) + b"a"
    for lies in (
        b"",
        b"GGUF",
        b"\x80\x02]q\x00.",
        head,
        head + struct.pack("<Q", 2**63),
        head + name + struct.pack("<I", 99),
        head + name + struct.pack("<IIQ", 9, 9, 2**40),
        head + name + struct.pack("<IIQ", 9, 10, 2**63),
        head + name + struct.pack("<IIQ", 9, 77, 2**63),
        head + name + struct.pack("<IIQ", 9, 8, 2**63) + bytes(800),
    ):
        assert not any(gguf_metadata.parse_metadata(lies).values())
    varied = {"general.architecture": "x", "x.block_count": 2, "x.embedding_length": 64, "x.attention.head_count": 4}
    assert memory.cache_from_gguf({**varied, "x.attention.head_count_kv": [2, 1]}) == Cache(layers=2, heads=3, width=32)


OFFER = {"cpus": 8, "memory_mib": 16_384, "gpus": [], "host": "amber", "labels": []}
GPU = {"memory_mib": 81_920, "compute_capability": "9.0"}


def test_weights_that_no_runner_has_room_for_are_refused_with_the_sum_and_forced_where_asked() -> None:
    need = Need(weights=15 << 30, cache=memory.cache_from_config(CONFIG), tokens=8192, where="host")
    judged = memory_estimate.judged(need, {}, {"r": OFFER, "s": {**OFFER, "memory_mib": 8192}}, force=False)
    assert judged["available_bytes"] == 16 << 30 and judged["words"].endswith("r has 16.0 GiB, which is not enough")
    assert memory_estimate.judged(need, {}, {"r": {**OFFER, "memory_mib": 1 << 15}}, force=False)["words"].endswith(
        "is enough"
    )
    for needed in ({"memory_mib": 8192}, {"host": "basalt"}):
        runners = {"r": OFFER, "s": {**OFFER, "memory_mib": 8192, "host": "basalt"}}
        with pytest.raises(errors.InvalidRequest, match=r"15\.0 GiB weights.*has 8\.0 GiB.*force") as refused:
            memory_estimate.judged(need, needed, runners, force=False)
        assert refused.value.field == "model"
        assert memory_estimate.judged(need, needed, runners, force=True)["available_bytes"] == 8 << 30


def test_where_no_runner_fits_nothing_is_known_and_nothing_refused() -> None:
    need = Need(weights=1 << 50, cache=None, tokens=0, where="host")
    for needed in ({}, {"gpus": 1}, {"labels": ["x"]}):
        judged = memory_estimate.judged(need, needed, {"r": OFFER} if needed else {}, force=False)
        assert judged["available_bytes"] is None and "no live runner meets the requirements" in judged["words"]


def test_memory_of_gpus_is_that_of_as_many_as_a_replica_has() -> None:
    offer = {**OFFER, "gpus": [GPU, GPU, {**GPU, "memory_mib": 40_960}]}
    cases: list[tuple[memory.Where, float]] = [("gpus", 160 * 0.5), ("both", 160 * 0.5 + 16), ("host", 16)]
    for where, bytes_ in cases:
        need = Need(weights=1, cache=None, tokens=0, where=where, share=0.5)
        assert memory_estimate.available(need, {"gpus": 2}, offer) == bytes_ * 2**30


# -- safetensors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "asked", "field", "why"),
    [
        ({"a.gguf": 1}, None, "model", "no files with the suffix"),
        ({"a.safetensors": 1}, None, "model", "config.json"),
        ({**WEIGHTS, "training_args.bin": 1}, None, "model", "training_args.bin contains pickled weights"),
        ({**WEIGHTS, "sub/Pytorch_Model.PT": 1}, None, "model", "code"),
        ({"a/x.safetensors": 1, "b/x.safetensors": 1}, None, "parameters.folder", "such as a"),
        (WEIGHTS, "nosuch", "parameters.folder", "nosuch"),
        (WEIGHTS, "/etc", "parameters.folder", "/etc"),
        (WEIGHTS, "..", "parameters.folder", ".."),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_a_model_without_one_folder_of_sound_weights_is_refused(
    engine: str, files: dict[str, int], asked: str | None, field: str, why: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match=why) as refused:
        launched(engine, model(files), 1, folder=asked)
    assert refused.value.field == field
    with pytest.raises(errors.InvalidRequest, match="requires an artifact"):
        launched(engine, None, 1)


def test_a_folders_name_is_no_option_of_the_engine() -> None:
    files = {"--trust-remote-code/a.safetensors": 7, "--trust-remote-code/config.json": 1}
    words = launched("vllm", model(files), 1)
    assert words[words.index("--model") + 1] == "./--trust-remote-code" and "--trust-remote-code" not in words
    assert needs("vllm", model(files), 1).weights == 7 and launched(
        "vllm", model(files), 1, folder="--trust-remote-code/"
    )


# -- transformers ---------------------------------------------------------------------------------------------------


def test_transformers_is_told_what_to_serve_and_what_it_may_take() -> None:
    words = launched("transformers", model(), 0, context=512, threads=2, dtype="bfloat16")
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert flags == {
        "--model": ".",
        "--name": "chat",
        "--dtype": "bfloat16",
        "--context": "512",
        "--parallel": "2",
        "--threads": "2",
        "--gpus": "0",
    }
    assert "{" not in "".join(words[3:])
    assert launched("transformers", model(), trust_remote_code=True)[-1].endswith("code")


def test_weights_take_the_room_of_the_numbers_with_which_transformers_computes() -> None:
    wide = model(config={**CONFIG, "torch_dtype": "float32"})
    assert needs("transformers", wide).weights == 15 << 30 == needs("transformers", wide, dtype="float32").weights
    assert needs("transformers", wide, dtype="float16").weights == 15 << 29
    assert (needs("transformers", wide).where, needs("transformers", wide, gpus=1).where) == ("host", "gpus")
    assert needs("transformers", wide, context=100, parallel=3).tokens == 300


# -- vllm -----------------------------------------------------------------------------------------------------------


def test_vllm_is_told_how_to_divide_the_model_over_the_gpus_that_a_replica_has() -> None:
    words = launched("vllm", model(), 8, pipeline_parallel=2, context=4096, parallel=16, dtype="bfloat16")
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert flags == {
        "--model": ".",
        "--served-model-name": "chat",
        "--tensor-parallel-size": "4",
        "--pipeline-parallel-size": "2",
        "--dtype": "bfloat16",
        "--gpu-memory-utilization": "0.9",
        "--load-format": "safetensors",
        "--max-model-len": "4096",
        "--max-num-seqs": "16",
    }


@pytest.mark.parametrize(
    ("gpus", "parameters", "field"),
    [
        (0, {}, "requirements.gpus"),
        (2, {"tensor_parallel": 4}, "parameters.tensor_parallel"),
        (4, {"tensor_parallel": 4, "pipeline_parallel": 2}, "parameters.tensor_parallel"),
        (3, {"pipeline_parallel": 2}, "parameters.pipeline_parallel"),
    ],
)
def test_vllm_is_refused_gpus_that_do_not_come_out_even(gpus: int, parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        launched("vllm", model(), gpus, **parameters)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("stored", "dtype", "gibibytes"),
    [
        ("bfloat16", "auto", 15),
        ("float32", "auto", 7.5),
        ("float32", "float32", 15),
        ("float16", "float", 30),
    ],
)
def test_weights_take_the_room_of_the_numbers_with_which_vllm_computes(
    stored: str, dtype: str, gibibytes: float
) -> None:
    need = needs("vllm", model(config={**CONFIG, "torch_dtype": stored}), 1, dtype=dtype, gpu_memory_utilization=0.5)
    assert (need.weights, need.share, need.tokens) == (gibibytes * 2**30, 0.5, 8192)


def test_models_code_is_run_only_where_it_is_asked_for() -> None:
    definition = registry.definition("vllm")
    plain, trusting = (
        definition.launch(definition.Parameters(trust_remote_code=trusts), model(), 1) for trusts in (False, True)
    )
    assert not plain.runs_models_code and "--trust-remote-code" not in plain.command
    assert trusting.runs_models_code and trusting.command[-1] == "--trust-remote-code"


#: Fake vLLM server: parses its flags, checks its key, and answers requests of the OpenAI API.
_STAND_IN = """
import argparse, http.server, json, os
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--model", required=True)
parser.add_argument("--served-model-name", nargs="+")
for name in ("tensor-parallel-size", "pipeline-parallel-size", "max-model-len", "max-num-seqs", "port"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--dtype", choices=["auto", "half", "float16", "bfloat16", "float", "float32"])
parser.add_argument("--gpu-memory-utilization", type=float)
parser.add_argument("--load-format", choices=["auto", "pt", "safetensors", "npcache", "dummy"])
parser.add_argument("--trust-remote-code", action="store_true")
parser.add_argument("--host")
asked = parser.parse_args()
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text))); self.end_headers(); self.wfile.write(text)
    def let_in(self):
        if self.path == "/health" or self.headers["Authorization"] == "Bearer " + os.environ["VLLM_API_KEY"]:
            return True
        self.answer(401, {"error": "Unauthorized"})
    def do_GET(self):
        if self.let_in():
            self.answer(200, {"data": [{"id": name} for name in asked.served_model_name], "flags": vars(asked),
                              "offline": os.environ["HF_HUB_OFFLINE"]})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.let_in():
            assert body["model"] in asked.served_model_name
            self.answer(200, {"choices": [{"text": "abc"}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
http.server.ThreadingHTTPServer((asked.host, asked.port), Answer).serve_forever()
"""


def test_a_stand_in_with_vllms_flags_is_started_asked_and_lets_nobody_in_without_the_key(tmp_path: Path) -> None:
    place = tmp_path / "vllm" / "entrypoints" / "openai"
    place.mkdir(parents=True)
    for folder in (place, place.parent, place.parent.parent):
        (folder / "__init__.py").touch()
    (place / "api_server.py").write_text(_STAND_IN)
    definition = registry.definition("vllm")
    asked = definition.Parameters(context=2048, tensor_parallel=2, trust_remote_code=True)
    launch = definition.launch(asked, model(name="a-b"), 2)
    words = ["env", f"PYTHONPATH={tmp_path}", *map(str, launch.command)]
    with running(words, launch.env, tmp_path) as (client, key):
        told = client.get("/v1/models").json()
        assert [one["id"] for one in told["data"]] == ["a-b"] and told["offline"] == "1"
        flags = told["flags"]
        assert (flags["tensor_parallel_size"], flags["max_model_len"], flags["trust_remote_code"]) == (2, 2048, True)
        answer = client.post("/v1/completions", json={"model": "a-b", "prompt": "once"})
        assert answer.json()["choices"] == [{"text": "abc"}]
        assert client.get("/v1/models", headers={"Authorization": "Bearer x"}).status_code == 401
        assert key not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


_LLAMA = """
import os, sys
from types import SimpleNamespace
os.cpu_count = lambda: 64

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = (SimpleNamespace(n_threads=-1) for _ in range(3))

class Server:
    def __init__(self, chosen):
        sys.exit(f"{chosen.cpuparams.n_threads} {chosen.cpuparams_batch.n_threads}")
"""


@pytest.mark.parametrize(
    ("cores", "threads", "used"), [("4", 0, 4), ("64", 0, -1), ("96", 0, -1), (None, 0, -1), ("4", 6, 6)]
)
def test_llamacpp_starts_no_more_threads_than_its_container_has_cores(
    cores: str | None, threads: int, used: int, tmp_path: Path
) -> None:
    """The machine has 64 cores. -1 is llama.cpp's own choice, because older runners report no number."""
    (tmp_path / "xllamacpp.py").write_text(_LLAMA)
    definition = registry.definition("llamacpp")
    launch = definition.launch(definition.Parameters(threads=threads), model({"a.gguf": 1}), 0)
    words = [sys.executable, *map(text_of, launch.command[1:])]
    told = {"CLUSTER_ADDRESS": "127.0.0.1", "CLUSTER_PORT": "1", "CLUSTER_KEY": "k", "PYTHONPATH": str(tmp_path)}
    env = told | ({"CLUSTER_CPUS": cores} if cores else {})
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert (done.stderr.strip(), done.returncode) == (f"{used} {used}", 1)


# -- docs/adding-an-engine.md ---------------------------------------------------------------------------------------


def test_the_engine_of_the_guide_starts_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "adding-an-engine.md").read_text()
    files = dict(re.findall(r"^`engines/echo/(\S+)`\n\n```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL))
    definition = ModuleType("definition")
    monkeypatch.setattr(texts, "text", lambda engine, name: files[name])
    exec(files["definition.py"], vars(definition))  # noqa: S102 - the guide's code
    launched = definition.launch(definition.Parameters(prefix="echo: "), None, 0)
    assert definition.ROUTES == "openai" and definition.SUMMARY
    with running(launched.command, launched.env, tmp_path) as (client, _):
        chat = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
        answer = client.post("/v1/chat/completions", json=chat).json()
        assert answer["choices"][0]["message"]["content"] == "echo: hello"
        assert client.get("/health", headers={"Authorization": "Bearer wrong"}).status_code == 401

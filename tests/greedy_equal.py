"""Greedy text of one model, by llama.cpp from GGUF and by Transformers from safetensors, compared token by token.

`python -m tests.greedy_equal --python PYTHON`: PYTHON has torch and transformers, which no environment here has. The
model is made anew: the same weights of 32 bits in both files, drawn until each of 32 tokens leads the next best one by
a margin, by a third computation in 64 bits. What the server of Transformers refuses, and cuts off, is looked at, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import numpy.typing as npt

from engines import registry
from engines.contract import Model
from tests.engine_runs import running

Array = npt.NDArray[np.float64]

LAYERS, WIDTH, HEADS, KEPT_HEADS, INNER, CONTEXT, THETA, EPSILON = 2, 64, 4, 2, 128, 512, 10_000.0, 1e-5
HEAD = WIDTH // HEADS
VOCABULARY = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
#: Tokens that the model may say: bytes that are letters or digits, which every decoder shows alike.
SAID = [3 + byte for byte in range(128) if chr(byte).isalnum()]
TOKENS, PROMPTS = 32, (b"once upon a time", b"7 x 6 =", b"a")
#: Least lead of each token over the next best one. Keys and values of 16 bits err by less.
LEAD = 1e-3
_TEMPLATE = "<s>{% for message in messages %}{{ message['content'] }}{% endfor %}"
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def weights(seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return a model of random weights by the names of Transformers."""
    random = np.random.default_rng(seed)

    def drawn(*shape: int, scale: float = 0.15) -> npt.NDArray[np.float32]:
        return random.normal(0, scale, shape).astype(np.float32)

    found = {"model.embed_tokens.weight": drawn(len(VOCABULARY), WIDTH, scale=1.0)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.self_attn.q_proj.weight": drawn(WIDTH, WIDTH),
            f"{at}.self_attn.k_proj.weight": drawn(KEPT_HEADS * HEAD, WIDTH),
            f"{at}.self_attn.v_proj.weight": drawn(KEPT_HEADS * HEAD, WIDTH),
            f"{at}.self_attn.o_proj.weight": drawn(WIDTH, WIDTH),
            f"{at}.mlp.gate_proj.weight": drawn(INNER, WIDTH),
            f"{at}.mlp.up_proj.weight": drawn(INNER, WIDTH),
            f"{at}.mlp.down_proj.weight": drawn(WIDTH, INNER),
            f"{at}.input_layernorm.weight": np.ones(WIDTH, np.float32),
            f"{at}.post_attention_layernorm.weight": np.ones(WIDTH, np.float32),
        }
    found["model.norm.weight"] = np.ones(WIDTH, np.float32)
    said = np.zeros((len(VOCABULARY), WIDTH), np.float32)
    said[SAID] = drawn(len(SAID), WIDTH)
    return found | {"lm_head.weight": said}


# -- the third computation ------------------------------------------------------------------------------------------


def logits(model: Mapping[str, npt.NDArray[np.float32]], tokens: list[int]) -> Array:
    """Return the logits of the token that follows, in 64 bits."""
    wide = {name: tensor.astype(np.float64) for name, tensor in model.items()}
    state = wide["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        part = {name.removeprefix(f"model.layers.{layer}."): tensor for name, tensor in wide.items()}
        state = state + _attended(part, _normed(state))
        normed = _normed(state)
        gate = normed @ part["mlp.gate_proj.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (normed @ part["mlp.up_proj.weight"].T)
        state = state + inner @ part["mlp.down_proj.weight"].T
    found: Array = _normed(state[-1:])[0] @ wide["lm_head.weight"].T
    return found


def _normed(state: Array) -> Array:
    found: Array = state / np.sqrt((state**2).mean(-1, keepdims=True) + EPSILON)
    return found


def _attended(part: Mapping[str, Array], state: Array) -> Array:
    count = len(state)

    def heads(name: str) -> Array:
        several: Array = (state @ part[f"self_attn.{name}_proj.weight"].T).reshape(count, -1, HEAD).transpose(1, 0, 2)
        return several

    query, key, value = _turned(heads("q")), _turned(heads("k")), heads("v")
    key, value = (np.repeat(each, HEADS // KEPT_HEADS, axis=0) for each in (key, value))
    score = query @ key.transpose(0, 2, 1) / np.sqrt(HEAD)
    score = np.where(np.tri(count, dtype=bool), score, -np.inf)
    share = np.exp(score - score.max(-1, keepdims=True))
    mixed = (share / share.sum(-1, keepdims=True)) @ value
    found: Array = mixed.transpose(1, 0, 2).reshape(count, WIDTH) @ part["self_attn.o_proj.weight"].T
    return found


def _turned(heads: Array) -> Array:
    """Return heads with their positions: the first half of each turned against the second."""
    angle = np.outer(np.arange(heads.shape[1]), THETA ** (-np.arange(0, HEAD, 2) / HEAD))
    first, second = heads[..., : HEAD // 2], heads[..., HEAD // 2 :]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def greedy(model: Mapping[str, npt.NDArray[np.float32]], prompt: bytes) -> tuple[str, float]:
    """Return the greedy text of 32 tokens, and the least lead of one of them."""
    tokens, least = [1, *(3 + byte for byte in prompt)], np.inf
    for _ in range(TOKENS):
        found = logits(model, tokens)
        second, first = np.sort(found)[-2:]
        least = min(least, first - second)
        tokens.append(int(found.argmax()))
    return bytes(token - 3 for token in tokens[-TOKENS:]).decode(), float(least)


def made() -> tuple[dict[str, npt.NDArray[np.float32]], dict[bytes, str], float]:
    """Return the first model each of whose tokens leads by LEAD, its texts by prompt, and the least lead."""
    for seed in range(1000):
        model = weights(seed)
        found = {prompt: greedy(model, prompt) for prompt in PROMPTS}
        least = min(lead for _, lead in found.values())
        if least >= LEAD:
            return model, {prompt: text for prompt, (text, _) in found.items()}, least
    raise SystemExit("error: no model of a thousand leads by so much")


# -- files ----------------------------------------------------------------------------------------------------------


def write_safetensors(folder: Path, model: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write weights, configuration and tokenizer as Transformers reads them."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in model.items():
        head[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.tobytes() for tensor in model.values())
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEPT_HEADS,
        "head_dim": HEAD,
        "vocab_size": len(VOCABULARY),
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "rope_theta": THETA,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    special = [
        {
            "id": number,
            "content": VOCABULARY[number],
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for number in range(3)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "ByteFallback"},
        "model": {
            "type": "BPE",
            "vocab": {word: number for number, word in enumerate(VOCABULARY)},
            "merges": [],
            "byte_fallback": True,
            "unk_token": "<unk>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    known = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(known))


def write_gguf(path: Path, model: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write the same weights as llama.cpp reads them: rows of queries and keys in the order of its rotation."""
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KEPT_HEADS)
    out.add_layer_norm_rms_eps(EPSILON)
    out.add_rope_dimension_count(HEAD)
    out.add_rope_freq_base(THETA)
    out.add_tokenizer_model("llama")
    out.add_token_list([word.encode() for word in VOCABULARY])
    out.add_token_scores([0.0] * len(VOCABULARY))
    out.add_token_types([_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    for name, tensor in model.items():
        out.add_tensor(_named(name), _ordered(name, tensor))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _named(name: str) -> str:
    plain = name.removesuffix(".weight")
    if plain in _ENDS:
        return f"{_ENDS[plain]}.weight"
    layer, _, inner = plain.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_NAMES[inner]}.weight"


def _ordered(name: str, tensor: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    halves = tensor.reshape(-1, 2, HEAD // 2, WIDTH)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(tensor.shape))


# -- engines --------------------------------------------------------------------------------------------------------


def said(engine: str, folder: Path, python: str, **parameters: Any) -> dict[bytes, str]:
    """Return the greedy texts of an engine by prompt, whole and streamed, which are equal."""
    definition = registry.definition(engine)
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    model = Model(artifact="a" * 64, name="same", files=files)
    launch = definition.launch(definition.Parameters(context=128, threads=1, **parameters), model, 0)
    with running([*map(str, launch.command)], launch.env, folder, python) as (client, _):
        texts = {}
        for prompt in PROMPTS:
            tokens = [1, *(3 + byte for byte in prompt)]
            body = {"model": "same", "prompt": tokens, "max_tokens": TOKENS, "temperature": 0}
            answer = client.post("/v1/completions", json=body).raise_for_status().json()
            texts[prompt] = answer["choices"][0]["text"]
            assert answer["usage"]["completion_tokens"] == TOKENS, answer
            with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as streamed:
                frames = [line[6:] for line in streamed.iter_lines() if line.startswith("data: ")]
            assert frames[-1] == "[DONE]"
            pieces = [json.loads(frame)["choices"][0]["text"] for frame in frames[:-1]]
            assert "".join(pieces) == texts[prompt], pieces
        if engine == "transformers":
            _look_at_refusals(client, texts)
            _look_at_ends(client, texts)
    return texts


def _look_at_refusals(client: httpx.Client, texts: Mapping[bytes, str]) -> None:
    refused: list[tuple[Any, str]] = [
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1, 10**6]}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": [1] * 200}, "exceeds the available context"),
        ({"prompt": None}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"n": 2}, "n: is not known"),
        ({"logprobs": 3}, "logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"seed": -1}, "seed"),
        ({"top_p": 2}, "top_p"),
        ({"tools": [{}]}, "tools"),
    ]
    for body, why in refused:
        answer = client.post("/v1/completions", json={"prompt": "a", **body})
        assert answer.status_code == 400 and why in answer.json()["error"]["message"], (body, answer.text)
    assert client.post("/v1/chat/completions", json={"messages": "x"}).status_code == 400
    assert client.post("/v1/completions", content=b"[" * 100_000).status_code == 400
    assert client.post("/v1/completions", content=b"[]").status_code == 400
    assert client.post("/v1/embeddings", json={"input": "x"}).status_code == 404
    assert client.post("/v1/completions", json={}, headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.get("/v1/models", headers={"Authorization": ""}).status_code == 401
    assert client.get("/health").status_code == 200


def _look_at_ends(client: httpx.Client, texts: Mapping[bytes, str]) -> None:
    """Chat, texts that end an answer, counts in a stream, and clients that leave while others wait."""
    whole = texts[b"a"]
    body = {"prompt": [1, 3 + ord("a")], "max_tokens": TOKENS, "temperature": 0}
    answer = client.post("/v1/completions", json={**body, "stop": whole[9:12]}).json()
    assert answer["choices"][0] == {"index": 0, "text": whole[:9], "finish_reason": "stop", "logprobs": None}, answer
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": TOKENS, "temperature": 0}
    found = client.post("/v1/chat/completions", json=chat).json()
    assert found["choices"][0]["message"] == {"role": "assistant", "content": whole}, found
    counted = {**chat, "stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", "/v1/chat/completions", json=counted) as streamed:
        frames = [line[6:] for line in streamed.iter_lines() if line.startswith("data: ")]
    assert json.loads(frames[-2])["usage"]["completion_tokens"] == TOKENS and frames[-1] == "[DONE]"
    for _ in range(20):
        with client.stream("POST", "/v1/completions", json={**body, "max_tokens": 100, "stream": True}) as streamed:
            next(streamed.iter_lines())
    assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python that has torch and transformers")
    python = parser.parse_args().python
    model, expected, least = made()
    with tempfile.TemporaryDirectory() as place:
        folders = {"llamacpp": Path(place, "gguf"), "transformers": Path(place, "safetensors")}
        for folder in folders.values():
            folder.mkdir()
        write_gguf(folders["llamacpp"] / "same.gguf", model)
        write_safetensors(folders["transformers"], model)
        texts = {
            "llamacpp": said("llamacpp", folders["llamacpp"], sys.executable, parallel=1),
            "transformers": said("transformers", folders["transformers"], python),
        }
    for engine, found in texts.items():
        print(f"{engine:13} {found}")
        if found != expected:
            raise SystemExit(f"error: {engine} differs from what 64 bits give: {expected}")
    print(f"{len(PROMPTS)} texts of {TOKENS} tokens are equal; the least lead of a token is {least:.4f}")


if __name__ == "__main__":
    main()

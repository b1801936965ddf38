"""A model of random weights that llama.cpp serves: half a megabyte of GGUF, made in a moment.

`python -m tests.tiny_model FILE.gguf` writes one.
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

_LAYERS, _WIDTH, _HEADS, _INNER, _CONTEXT = 1, 64, 4, 128, 512
#: What a chat becomes.
_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_END = 2
#: Tokens before the 256 tokens of bytes.
_FIRST_BYTE = 3
#: First component of every token's embedding, which no layer changes, and the output weight that makes it the logit of
#: a hidden token. The logit is so low that the next token is a letter at any temperature.
_SHARED, _HIDE = 0.2, -1000.0


def write(path: Path, seed: int = 7) -> None:
    """Write a model that reads any bytes and answers with random ASCII letters, one a token, up to the token limit."""
    out = gguf.GGUFWriter(str(path), "llama")
    _describe(out)
    random = np.random.default_rng(seed)
    _add_tokens(out)

    def drawn(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.05, shape).astype(np.float32)

    def add(name: str, *shape: int, keeps_shared: bool = False) -> None:
        weights = drawn(*shape)
        if keeps_shared:
            weights[0] = 0
        out.add_tensor(name, weights)

    tokens = _FIRST_BYTE + 256
    embedded, logits = drawn(tokens, _WIDTH), drawn(tokens, _WIDTH)
    embedded[:, 0] = _SHARED
    logits[_hidden_tokens(), 0] = _HIDE
    out.add_tensor("token_embd.weight", embedded)
    out.add_tensor("output.weight", logits)
    out.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    for layer in range(_LAYERS):
        for name in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.{layer}.{name}.weight", _WIDTH, _WIDTH)
        add(f"blk.{layer}.attn_output.weight", _WIDTH, _WIDTH, keeps_shared=True)
        add(f"blk.{layer}.ffn_gate.weight", _INNER, _WIDTH)
        add(f"blk.{layer}.ffn_up.weight", _INNER, _WIDTH)
        add(f"blk.{layer}.ffn_down.weight", _WIDTH, _INNER, keeps_shared=True)
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{layer}.{name}.weight", np.ones(_WIDTH, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _hidden_tokens() -> list[int]:
    """Return the tokens that are not letters: some decode to no text, or only together with the next ones."""
    letters = {_FIRST_BYTE + byte for byte in string.ascii_letters.encode()}
    return [token for token in range(_FIRST_BYTE + 256) if token not in letters]


def _describe(out: gguf.GGUFWriter) -> None:
    out.add_context_length(_CONTEXT)
    out.add_embedding_length(_WIDTH)
    out.add_block_count(_LAYERS)
    out.add_feed_forward_length(_INNER)
    out.add_head_count(_HEADS)
    out.add_head_count_kv(_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(_WIDTH // _HEADS)
    out.add_pooling_type(gguf.PoolingType.MEAN)
    out.add_chat_template(_TEMPLATE)


def _add_tokens(out: gguf.GGUFWriter) -> None:
    out.add_tokenizer_model("llama")
    out.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))])
    out.add_token_scores([0.0] * 259)
    out.add_token_types([_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(_END)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

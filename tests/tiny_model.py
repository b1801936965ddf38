"""A model of random weights that llama.cpp serves: half a megabyte of GGUF, made in a moment.

`python -m tests.tiny_model FILE.gguf` writes one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

_LAYERS, _WIDTH, _HEADS, _INNER, _CONTEXT = 1, 64, 4, 128, 512
#: What a chat becomes.
_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def write(path: Path, seed: int = 7) -> None:
    """Write a model whose tokens are bytes, and which knows nothing."""
    out = gguf.GGUFWriter(str(path), "llama")
    _describe(out)
    random = np.random.default_rng(seed)
    _add_tokens(out)

    def add(name: str, *shape: int) -> None:
        out.add_tensor(name, random.normal(0, 0.05, shape).astype(np.float32))

    tokens = 3 + 256
    add("token_embd.weight", tokens, _WIDTH)
    add("output.weight", tokens, _WIDTH)
    out.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    for layer in range(_LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", _WIDTH, _WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", _INNER, _WIDTH)
        add(f"blk.{layer}.ffn_up.weight", _INNER, _WIDTH)
        add(f"blk.{layer}.ffn_down.weight", _WIDTH, _INNER)
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{layer}.{name}.weight", np.ones(_WIDTH, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _describe(out: gguf.GGUFWriter) -> None:
    out.add_context_length(_CONTEXT)
    out.add_embedding_length(_WIDTH)
    out.add_block_count(_LAYERS)
    out.add_feed_forward_length(_INNER)
    out.add_head_count(_HEADS)
    out.add_head_count_kv(_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(_WIDTH // _HEADS)
    out.add_chat_template(_TEMPLATE)


def _add_tokens(out: gguf.GGUFWriter) -> None:
    out.add_tokenizer_model("llama")
    out.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))])
    out.add_token_scores([0.0] * 259)
    out.add_token_types([_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

"""Tests the random model of the tests: every token of its answers is text, so that streams have frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_model

xllamacpp = pytest.importorskip("xllamacpp")

PROMPTS = ("", "once", "hello " * 20, "é ü 猫 🐈", "\x00\x01\x7f", '{"a": [1, 2]}', "<|im_start|>", "\n\n\t ")
TOKENS = 16


def server(path: Path) -> Any:
    chosen = xllamacpp.CommonParams()
    chosen.model.path, chosen.n_ctx, chosen.n_parallel = str(path), 512, 1
    chosen.endpoint_metrics = chosen.endpoint_slots = chosen.ui = False
    return xllamacpp.Server(chosen)


@pytest.mark.parametrize("seed", range(4))
def test_every_token_of_an_answer_is_a_letter(tmp_path: Path, seed: int) -> None:
    tiny_model.write(tmp_path / "tiny.gguf", seed)
    model = server(tmp_path / "tiny.gguf")
    for prompt in PROMPTS:
        for temperature in (0.0, 0.8, 5.0):
            asked = {"prompt": prompt, "max_tokens": TOKENS, "temperature": temperature, "seed": seed}
            answer = model.handle_completions(asked)
            answer = answer if isinstance(answer, dict) else json.loads(answer)
            text = answer["choices"][0]["text"]
            assert answer["usage"]["completion_tokens"] == TOKENS, answer
            assert len(text) == TOKENS and text.isascii() and text.isalpha(), (prompt, temperature, text)

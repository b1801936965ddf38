"""Tests the program that answers a batch of prompts with llama.cpp: its inputs, answers and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.llamacpp import batch
from tests import tiny_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the program's working folder, with a model and without prompts."""
    (tmp_path / "input").mkdir()
    tiny_model.write(tmp_path / "tiny.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["batch.py", "tiny.gguf", "3", "0"])
    return tmp_path


def test_prompts_are_lines_of_all_files_in_the_order_of_their_names(folder: Path) -> None:
    (folder / "input" / "b.txt").write_text("plain line\n\n  \n7 is no\n")
    (folder / "input" / "a.jsonl").write_text(
        '"once"\n{"prompt": "upon", "x": 1}\n{"text": "a\u2028b", "prompt": "no"}', "utf-8"
    )
    assert list(batch.prompts(Path("input"))) == ["once", "upon", "a\u2028b", "plain line", "7 is no"]


@pytest.mark.parametrize("line", ["7", "[]", "null", "{}", '{"text": 7}'])
def test_a_line_that_is_no_prompt_is_named(folder: Path, line: str) -> None:
    (folder / "input" / "a").write_text(f'"once"\n{line}\n')
    with pytest.raises(SystemExit) as ended:
        batch.main()
    assert "input/a, line 2: a prompt must be a text" in str(ended.value.code)


def test_answers_come_in_the_order_of_the_prompts_and_are_prompts_again(folder: Path) -> None:
    asked = [f"prompt {number}" for number in range(10)] + [""]
    (folder / "input" / "a").write_text("".join(f"{json.dumps(one)}\n" for one in asked))
    batch.main()
    rows = [json.loads(line) for line in (folder / "answers" / "answers.jsonl").read_text("utf-8").strip().split("\n")]
    assert [row["prompt"] for row in rows] == asked
    again = list(batch.prompts(folder / "answers"))
    assert again == [row["text"] for row in rows]


def test_what_the_model_refuses_ends_it_with_the_prompts_number(folder: Path) -> None:
    (folder / "input" / "a").write_text('"once"\n"%s"\n' % ("x" * 9000))
    with pytest.raises(SystemExit) as ended:
        batch.main()
    assert "prompt 2 of 2: " in str(ended.value.code) and "context size" in str(ended.value.code)


def test_files_without_prompts_are_refused(folder: Path) -> None:
    with pytest.raises(SystemExit, match="the input contains no prompts"):
        batch.main()

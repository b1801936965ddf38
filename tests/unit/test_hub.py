"""Tests names of Hugging Face models, and the conversion of page addresses into sources."""

from __future__ import annotations

import pytest

from threads_protocol import hub


@pytest.mark.parametrize(
    ("page", "source"),
    [
        ("https://huggingface.co/Qwen/Qwen3-0.6B", "hf://Qwen/Qwen3-0.6B"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/", "hf://Qwen/Qwen3-0.6B"),
        ("http://www.huggingface.co/a/b?library=x#top", "hf://a/b"),
        ("https://hf.co/a/b/tree/v1.0", "hf://a/b@v1.0"),
        ("https://huggingface.co/a/b/blob/main/q/m.gguf", "hf://a/b@main/q/m.gguf"),
        ("https://huggingface.co/a/b/resolve/main/a%20b.gguf?download=true", "hf://a/b@main/a b.gguf"),
    ],
)
def test_the_address_of_a_models_page_becomes_its_source(page: str, source: str) -> None:
    assert hub.resolve_page(page) == source


@pytest.mark.parametrize(
    "source",
    [
        "hf://a/b",
        "https://example.org/a/b",
        "https://huggingface.co/a",
        "https://huggingface.co/datasets/a/b",
        "https://huggingface.co/datasets/a",
        "https://huggingface.co.example.org/a/b",
        "https://huggingface.co/a/b/discussions/1",
        "s3://huggingface.co/a/b",
    ],
)
def test_other_sources_do_not_change(source: str) -> None:
    assert hub.resolve_page(source) == source


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
        ("a/b@main", "b"),
        ("a/b-GGUF/B-Q8_0.gguf", "b-q8_0"),
        ("a/" + "x" * 90, "x" * 64),
    ],
)
def test_the_name_in_a_cluster_follows_from_the_model(model: str, name: str) -> None:
    assert hub.is_model(model) and hub.stored_name(model) == name


@pytest.mark.parametrize("text", ["tiny", "", "/a/b", "../b", "a/", "hf://a/b", "a b/c"])
def test_other_names_are_not_models_of_the_hub(text: str) -> None:
    assert not hub.is_model(text)

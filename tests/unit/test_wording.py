"""Replaced words do not come back, sentences of the documentation stay short, and commit subjects have one form.

These checks only remind: a text that passes can still be hard to read. docs/glossary.md has the terms to use.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Files that are not prose, or that the project did not write.
EXEMPT = re.compile(
    r"LICENSE|requirements/.*|.*(_pb2\.pyi?|package-lock\.json|\.(png|svg|csv|woff2))|tests/unit/test_wording\.py"
)
#: Word: the term to use instead, and the number of uses that are left. Lower the number after replacing some of them.
REPLACED = {
    "anew": ("again", 103),
    "asker": ("principal", 0),
    "freshness": ("cache", 0),
    "janitor": ("leader task", 0),
    "overseer": ("leader task", 0),
    "timekeeper": ("leader task", 0),
    "whoever": ("a noun, such as `the client`", 26),
}
#: Maximum number of words of a sentence in the documentation.
LONGEST_SENTENCE = 45
#: Start of the commits whose subjects are checked.
UNCHECKED = "b55d9bb7"
#: An area, a colon, and a summary that starts with a lower-case verb and has no period.
SUBJECT = re.compile(r"[a-z][\w./-]*: [a-z0-9`].*[^.]")
LONGEST_SUBJECT = 72
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def run_git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@cache
def read_texts() -> dict[str, str]:
    """Return the text of each tracked file by its path."""
    listed = [path for path in run_git("ls-files", "-z").split("\0") if path and not EXEMPT.fullmatch(path)]
    return {path: (ROOT / path).read_text(errors="replace") for path in listed if (ROOT / path).is_file()}


def find_uses(word: str, text: str) -> list[str]:
    """Return the uses of a word, alone or as a part of a name: `asker`, `is_asker`, `AskerList`."""
    return re.findall(rf"(?<![a-z]){word}s?(?![a-z])|{word.capitalize()}s?(?![a-z])", text)


def find_long_sentences(document: str) -> Iterator[str]:
    for paragraph in CODE.sub("", document).split("\n\n"):
        text = " ".join(paragraph.split())
        if text[:1] in "#|-*>![<:=":
            continue
        yield from (
            sentence for sentence in re.split(r"(?<=[.!?:]) ", text) if len(sentence.split()) > LONGEST_SENTENCE
        )


@pytest.mark.parametrize(("word", "term", "left"), [(word, *rest) for word, rest in REPLACED.items()])
def test_a_replaced_word_is_not_used_more_often(word: str, term: str, left: int) -> None:
    uses = {path: len(found) for path, text in read_texts().items() if (found := find_uses(word, text))}
    assert sum(uses.values()) <= left, f"use {term!r} instead of {word!r}: {uses}"


@pytest.mark.parametrize("text", ["An asker.", "is_asker", "askers = 1", "AskerList", "newAsker"])
def test_a_use_is_found_in_names_too(text: str) -> None:
    assert len(find_uses("asker", text)) == 1
    assert not find_uses("ask", text)


def test_sentences_of_the_documentation_are_short() -> None:
    documents = {path: text for path, text in read_texts().items() if path.endswith(".md")}
    long = {path: sentences for path, text in documents.items() if (sentences := list(find_long_sentences(text)))}
    assert not long, f"split sentences of more than {LONGEST_SENTENCE} words"


def test_a_long_sentence_is_found_outside_code_and_tables() -> None:
    sentence = "word " * LONGEST_SENTENCE + "end."
    assert len(list(find_long_sentences(f"Short. {sentence} Short.\n\n| {sentence} |\n\n```\n{sentence}\n```\n"))) == 1


def is_subject(subject: str) -> bool:
    return len(subject) <= LONGEST_SUBJECT and bool(SUBJECT.fullmatch(subject))


def test_subjects_of_commits_have_an_area_and_a_short_summary() -> None:
    known = subprocess.run(["git", "cat-file", "-e", UNCHECKED], cwd=ROOT, capture_output=True).returncode == 0
    commits = run_git("log", "--no-merges", "--format=%h %s", *([f"{UNCHECKED}..HEAD"] if known else ["-1"]))
    wrong = [line for line in commits.splitlines() if not is_subject(line.partition(" ")[2])]
    assert not wrong, "write `area: imperative summary`, in at most 72 characters and without a period"


@pytest.mark.parametrize(
    ("subject", "good"),
    [
        ("store: load functions by version", True),
        ("jobs/store: delete unused keys", True),
        ("Load functions", False),
        ("store, web: load functions", False),
        ("store: Load functions", False),
        ("store: load functions.", False),
        ("store: " + "load " * 20, False),
    ],
)
def test_the_form_of_a_subject(subject: str, good: bool) -> None:
    assert is_subject(subject) is good

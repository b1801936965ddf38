"""Tests manifests from untrusted sources: a text is either rejected or the only encoding of its tree."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threads_protocol import folders, manifest
from threads_protocol.errors import MalformedText
from threads_protocol.manifest import Entry

SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


NAMES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "a-b",
        "ä",
        "\N{GRINNING FACE}",
        "..",
        ".",
        "",
        "..a",
        "a\\b",
        "a\0",
        "\ud800",
        "\u2028",
        '"',
        "n" * 255,
        "n" * 256,
        "ä" * 128,
    ]
)
GOOD_NAMES = st.sampled_from(["a", "b", "c", "ab", "a-b", "ä", "\u2028", "..a", "n" * 255])


def _paths(names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(names, min_size=1, max_size=3).map("/".join)


TARGETS = st.one_of(
    _paths(st.sampled_from(["a", "b", "c", "..", ".", "ä"])),
    st.sampled_from(["", "/a", "a\0", "x" * 4095, "x" * 4096, "\ud800", "a/", "a//b"]),
)
SIZES = st.sampled_from([0, 1, 7, manifest.MAX_FILE, manifest.MAX_FILE + 1, -1, True, 1.0, "1", None, 10**30])
SHAS = st.sampled_from([SHA, "0" * 64, SHA.upper(), SHA[:-1], SHA + "\n", list(SHA), None, 7])


def rows(names: st.SearchStrategy[str], sizes: Any, shas: Any) -> st.SearchStrategy[list[Any]]:
    paths = _paths(names)
    return st.one_of(
        st.tuples(st.just("d"), paths),
        st.tuples(st.just("l"), paths, TARGETS),
        st.tuples(st.sampled_from("fx"), paths, sizes, shas),
    ).map(list)


#: Texts that JSON parsers can mistake for a row.
STRANGE = st.sampled_from(
    [
        [],
        ["d"],
        ["d", "a", "b"],
        ["q", "a"],
        "da",
        {"0": "d"},
        None,
        7,
        [["d"], "a"],
        ["f", "a", 1],
        ["l", "a", 7],
        ["l", "a", ["b"]],
        ["d", 7],
        {"d": 1, "e": 2},
    ]
)
GOOD = st.lists(rows(GOOD_NAMES, st.just(7), st.sampled_from([SHA, "0" * 64])), max_size=8)
ANY = st.lists(st.one_of(rows(GOOD_NAMES, st.just(7), st.just(SHA)), rows(NAMES, SIZES, SHAS), STRANGE), max_size=5)


#: Changes to a text: position, inserted bytes, and number of replaced bytes.
CHANGE = st.tuples(st.integers(0, 10**6), st.binary(max_size=3), st.integers(0, 3))


def _text(lines: list[Any], spaced: bool, escaped: bool) -> bytes:
    texts = [json.dumps(line, ensure_ascii=escaped, separators=None if spaced else (",", ":")) for line in lines]
    return "".join(f"{line}\n" for line in (manifest.HEAD, *texts)).encode("utf-8", "surrogatepass")


def _sorted(lines: list[Any]) -> list[Any]:
    return sorted(lines, key=lambda line: str(line[1]) if isinstance(line, list) and len(line) > 1 else "")


def read(text: bytes) -> list[Entry] | None:
    """Return the entries of a text, or None if it is rejected."""
    try:
        entries = manifest.entries(text)
    except MalformedText:
        return None
    assert manifest.serialize(entries) == text
    assert all(end is not None for end in folders.resolve_links(entries).values())
    assert manifest.parse(text).files == len([entry for entry in entries if entry.is_file])
    return entries


def test_a_tree_is_taken_or_refused() -> None:
    seen: Counter[bool] = Counter()

    @settings(max_examples=400)
    @given(lines=GOOD, unique=st.booleans())
    def check(lines: list[Any], unique: bool) -> None:
        by_path = {line[1]: line for line in lines}
        seen[read(_text(_sorted(list(by_path.values()) if unique else lines), False, False)) is not None] += 1

    check()
    assert min(seen[True], seen[False]) > 50, "of 400 taken and refused: else this says little"


@settings(max_examples=600)
@given(lines=ANY, in_order=st.booleans(), spaced=st.sampled_from([False] * 4 + [True]), escaped=st.booleans())
def test_lines_of_any_kind_are_taken_or_refused(lines: list[Any], in_order: bool, spaced: bool, escaped: bool) -> None:
    read(_text(_sorted(lines) if in_order else lines, spaced, escaped))


@settings(max_examples=600)
@given(lines=GOOD, changes=st.lists(CHANGE, max_size=2))
def test_a_text_that_was_changed_is_taken_or_refused(lines: list[Any], changes: list[tuple[int, bytes, int]]) -> None:
    text = _text(_sorted(list({line[1]: line for line in lines}.values())), False, False)
    for place, put, length in changes:
        at = place % (len(text) + 1)
        text = text[:at] + put + text[at + length :]
    read(text)


FIRST, FILE = b'{"artifact":1}\n', b'["f","a/b",1,"' + SHA.encode() + b'"]\n'
LINKED = FIRST + FILE + b'["l","up","a"]\n["l","x","up/../a/b"]\n'


@pytest.mark.parametrize("text", [FIRST, FIRST + FILE, LINKED])
def test_these_are_taken(text: bytes) -> None:
    assert read(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"{",
        FIRST[:-1],
        FIRST.replace(b"1", b"2"),
        FIRST.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + FIRST,
        FIRST + b'["d","a"]',
        FIRST + b'["d","a"]\n\n',
        FIRST + b"\xff\n",
        FIRST + b"[" * 60_000 + b"\n",
        FIRST + b'["d","a"]\n["d","a"]\n',
        FIRST + b'["d","b"]\n["d","a"]\n',
        FIRST + FILE.replace(b",1,", b",1e0,"),
        FIRST + FILE.replace(b",1,", b"," + b"9" * 5000 + b","),
        FIRST + b'["l","a","b"]\n["l","b","a"]\n',
        FIRST + FILE + b'["l","up","a"]\n["l","x","up/../../a/b"]\n',
        FIRST + FILE + FILE.replace(b'"a/b",1', b'"c",2'),
    ],
)
def test_these_are_refused(text: bytes) -> None:
    assert read(text) is None

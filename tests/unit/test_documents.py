"""Tests that document links lead to existing pages and headings, and that named files exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
FILES = [name for name in LISTED if name and (ROOT / name).is_file()]
FOLDERS = {f"{folder}/" for name in FILES for folder in PurePosixPath(name).parents if folder.name}
DOCUMENTS = [name for name in FILES if name.endswith(".md")]
#: A changelog names files that existed at the time.
WITH_PATHS = [name for name in DOCUMENTS if name != "CHANGELOG.md"] + [".env.example", "docker-compose.yml"]
#: Paths outside a checkout, created by a command, by the reader, or by docs/adding-a-kind.md.
MADE = (
    ".cluster/",
    ".venv/",
    "benchmarks/pi/",
    "k2_points.py",
    "names.txt",
    "work.py",
    "benchmarks/results.json",
    "engines/echo/",
    "jobs/__init__.py",
    "jobs/kinds/__init__.py",
    "jobs/kinds/pi/",
    "secrets/",
    "tests/browser/screenshots",
    "web/dist",
)
SUFFIXES = "bats|conf|cu|cuh|css|hpp|html|js|json|lua|md|mjs|py|sh|toml|ts|tsx|txt|yml"
#: A file with or without folders, or a folder with its slash; stars match as in a shell.
PATH = re.compile(rf"(?:[\w.*-]+/)*(?:[\w.*-]+\.(?:{SUFFIXES})|[\w.*-]+/)")
PLACEHOLDER = re.compile("NAME|PAGE")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
MENTION = re.compile(r"(?<![\w/])docs/[\w/-]+\.md\b")


def anchors(document: str) -> set[str]:
    """Return the anchors of a document's headings in GitHub's format."""
    headings = HEADING.findall(FENCED.sub("", (ROOT / document).read_text()))
    plain = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def dead_links(document: str) -> Iterator[str]:
    for target, anchor in LINK.findall((ROOT / document).read_text()):
        path = (ROOT / document).parent / target if target else ROOT / document
        if not path.exists():
            yield target
        elif anchor and anchor not in anchors(path.resolve().relative_to(ROOT).as_posix()):
            yield f"{target}#{anchor}"


def is_there(path: str, document: str) -> bool:
    """Return True if a path exists: from the root if it starts with a top folder, otherwise from any folder."""
    if path.startswith(MADE) or ((ROOT / document).parent / path).exists():
        return True
    pattern = f"/{path}" if path.count("/") and f"{path.partition('/')[0]}/" in FOLDERS else f"*/{path}"
    return any(fnmatchcase(f"/{name}", pattern) for name in (*FILES, *FOLDERS))


def missing_paths(document: str) -> list[str]:
    quotes = QUOTED.findall((ROOT / document).read_text())
    named = {PLACEHOLDER.sub("*", quoted.removeprefix("./")) for quoted in quotes}
    return sorted(path for path in named if PATH.fullmatch(path) and not is_there(path, document))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    assert not list(dead_links(document))


@pytest.mark.parametrize("document", WITH_PATHS)
def test_paths_in_backticks_are_in_the_checkout(document: str) -> None:
    assert not missing_paths(document)


def test_pages_that_code_mentions_are_there() -> None:
    """Messages, comments and alerts refer to pages in docs/."""
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in FILES if "/" in name}
    dead = [(name, page) for name, text in texts.items() for page in MENTION.findall(text) if page not in FILES]
    assert not dead


def test_a_dead_link_and_a_missing_path_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "page.md").write_text("# One `word`\n[a](#one-word) [b](#two) [c](gone.md) `jobs/gone.py` `gone/`\n")
    assert list(dead_links("page.md")) == ["#two", "gone.md"]
    assert missing_paths("page.md") == ["gone/", "jobs/gone.py"]


def promises() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each guarantee of docs/guarantees.md with the names and files of its tests."""
    chapter = (ROOT / "docs/guarantees.md").read_text().partition("\n## Limits\n")[0]
    rows = re.findall(r"^\| (?!guarantee|---)(.+?) \| (.+) \|$", chapter, re.MULTILINE)
    return [(promise, re.findall(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)", tests)) for promise, tests in rows]


def test_every_guarantee_is_attacked_by_a_test_that_exists() -> None:
    assert len(promises()) > 10
    assert [promise for promise, tests in promises() if not tests] == []
    named = {(name, file) for _, tests in promises() for name, file in tests}
    gone = [name for name, file in named if not re.search(rf"def {name}\(", (ROOT / file).read_text())]
    assert gone == []


@pytest.mark.parametrize("document", ["README.md", "docs/benchmarks.md"])
def test_speed_of_verification_is_compared_with_the_fastest_published_search(document: str) -> None:
    text = (ROOT / document).read_text()
    assert "Barina's worker" in text
    assert "Angeltveit" in text, f"{document} must name the fastest published search beside the peer of P1"


def test_the_log_messages_to_search_for_exist() -> None:
    programs = ("coordinator/", "cpu_worker/", "gpu_worker/", "jobs/", "runner/")
    sources = "".join((ROOT / name).read_text() for name in FILES if name.startswith(programs) and name.endswith(".py"))
    searches = {
        (document, text)
        for document in DOCUMENTS
        for text in re.findall(r'grep "([^"]+)"', (ROOT / document).read_text())
    }
    assert len(searches) > 3
    assert sorted((document, text) for document, text in searches if text not in sources) == []

"""What the pages' formatter leaves alone: comments and texts."""

from __future__ import annotations

from pathlib import Path

WEB = Path(__file__).resolve().parents[2] / "web"
SUFFIXES = {".ts", ".tsx", ".mjs", ".css"}


def test_no_line_is_longer_than_120_characters() -> None:
    files = [path for folder in ("src", "test", "scripts") for path in (WEB / folder).rglob("*")]
    sources = [path for path in files if path.suffix in SUFFIXES and path.name != "schema.d.ts"]
    long = [
        f"{path.relative_to(WEB)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
    ]
    assert len(sources) > 100 and long == []

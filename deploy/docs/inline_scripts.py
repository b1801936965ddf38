"""Moves inline scripts of HTML pages to files, because the Content-Security-Policy forbids inline scripts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from posixpath import dirname, relpath

#: Pattern of a script without attributes. Scripts with the attribute `type` contain data.
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
FOLDER = "assets/inline"


def extract(html: str, page: str, site: Path) -> str:
    """Write each inline script of a page to a file. Return the HTML with references to the files."""

    def replace(found: re.Match[str]) -> str:
        name = f"{FOLDER}/{hashlib.sha256(found[1].encode()).hexdigest()[:16]}.js"
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found[1])
        return f'<script src="{relpath(name, dirname(page) or ".")}"></script>'

    return _SCRIPT.sub(replace, html)

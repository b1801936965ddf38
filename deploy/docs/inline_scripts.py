"""Inline scripts of pages as files: the Content-Security-Policy allows no inline scripts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from posixpath import dirname, relpath

#: A script without attributes; one with a type holds data.
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
FOLDER = "assets/inline"


def extract(html: str, page: str, site: Path) -> str:
    """Return the HTML with each inline script replaced by a script of a file, which is written to the site."""

    def replace(found: re.Match[str]) -> str:
        name = f"{FOLDER}/{hashlib.sha256(found[1].encode()).hexdigest()[:16]}.js"
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found[1])
        return f'<script src="{relpath(name, dirname(page) or ".")}"></script>'

    return _SCRIPT.sub(replace, html)

"""Changes links to files of the checkout to links within the documentation site."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from posixpath import dirname, normpath, relpath

#: Pattern of a fenced code block. Links in code blocks are ignored.
_FENCED = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
#: Pattern of a link to another file, or of an image.
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]"
    r"\((?![a-z]+:|#|/)(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)"
)
#: Folder whose pages are at the top level of the site. Other files have the same path as in the checkout.
_DOCS = "docs/"


def rewrite(text: str, source: str, root: Path, pages: Collection[str]) -> str:
    """Return the Markdown of a page with links that are valid in the site.

    `source` is the path of the page in the checkout, and `pages` contains the paths of all files of the site. A link to
    another file of the checkout, such as a module, is replaced by its text.
    """

    def replace(found: re.Match[str]) -> str:
        path = normpath(f"{dirname(source)}/{found['path']}")
        target = next((each for each in (path, f"{path}/README.md") if each in pages), None)
        if target:
            here, there = (_in_site(each) for each in (source, target))
            return f"{found['image']}[{found['text']}]({relpath(there, dirname(here) or '.')}{found['anchor'] or ''})"
        outside = not path.startswith(_DOCS) and (root / path).exists()
        return found["text"] if outside else found[0]

    return _outside_fences(text, lambda part: _LINK.sub(replace, part))


def _in_site(path: str) -> str:
    return path.removeprefix(_DOCS)


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCED.split(text)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))

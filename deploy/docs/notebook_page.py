"""Conversion of the notebook to a page of the documentation site."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Pattern of inline styles, which the Content-Security-Policy forbids.
_STYLE = re.compile(r' style="[^"]*"')
#: Path of the notebook in docs/, and of its page in the site.
SOURCE, PAGE = "notebook.ipynb", "notebook.md"


def render(root: Path) -> str:
    """Return the Markdown of docs/notebook.ipynb: its texts, its code, and the stored outputs."""
    notebook = json.loads((root / "docs" / SOURCE).read_text())
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            yield _STYLE.sub("", "".join(data["text/html"]))
        else:
            yield f"```text\n{''.join(output.get('text') or data['text/plain']).strip()}\n```"

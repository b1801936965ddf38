"""Names of models on Hugging Face: ORG/REPO, optionally with @REVISION and /FILE, as in sources that start with hf://."""

from __future__ import annotations

import re
from urllib.parse import unquote

SCHEME = "hf://"
_PART = r"[A-Za-z0-9][\w.-]*"
_MODEL = re.compile(rf"{_PART}/{_PART}(@[\w.-]+)?(/[\w./-]+)?", re.ASCII)
#: Address of a model's page in a browser, or of one of its files.
_PAGE = re.compile(
    rf"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(?!datasets/|spaces/|docs/|api/)({_PART}/{_PART})"
    r"(?:/(?:tree|blob|resolve)/([\w.-]+)(?:/([^?#]+))?)?/?(?:[?#].*)?",
    re.ASCII,
)
_INVALID = re.compile(r"[^a-z0-9._-]+")
_LONGEST_NAME = 64


def is_model(text: str) -> bool:
    """Return True if a text has the form ORG/REPO, optionally with @REVISION and /FILE."""
    return bool(_MODEL.fullmatch(text))


def stored_name(model: str) -> str:
    """Return the name under which a cluster stores a model: qwen3-0.6b for Qwen/Qwen3-0.6B."""
    last = model.rpartition("/")[2].partition("@")[0].lower().removesuffix(".gguf")
    return _INVALID.sub("-", last)[:_LONGEST_NAME].strip("._-")


def resolve_page(source: str) -> str:
    """Return the source hf://ORG/REPO for the address of a model's page. Other sources are returned unchanged."""
    found = _PAGE.fullmatch(source)
    if found is None:
        return source
    model, revision, file = found.groups()
    return f"{SCHEME}{model}{f'@{revision}' if revision else ''}{f'/{unquote(file)}' if file else ''}"
